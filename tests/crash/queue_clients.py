"""AMQP clients that publish to some queues and consume from them, and an account of every message."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pika
from pika.exceptions import AMQPError, NackError

QUEUES = ("one", "two", "three", "four")


class Ledger:
    """What was confirmed and what came, by queue; told by several threads."""

    def __init__(self) -> None:
        self.confirmed: dict[str, set[bytes]] = {queue: set() for queue in QUEUES}
        self.came: dict[str, Counter[bytes]] = {queue: Counter() for queue in QUEUES}
        self.longest_wait_s = 0.0
        self.wrong: list[str] = []

    def lost(self) -> dict[str, list[bytes]]:
        """What was confirmed and never came."""
        missing = {queue: sorted(self.confirmed[queue] - set(self.came[queue])) for queue in QUEUES}
        return {queue: bodies for queue, bodies in missing.items() if bodies}


Connect = Callable[[], pika.BlockingConnection]
"""Connects to the broker, or to any of its nodes. Raises AMQPError, OSError."""


def connected(port: int) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters(port=port, heartbeat=0, blocked_connection_timeout=20)
    )


def work(stop: threading.Event, ledger: Ledger, session: Callable[[], None]) -> threading.Thread:
    """Do it again and again, over a new connection each time one ends."""

    def run() -> None:
        while not stop.is_set():
            try:
                session()
            except (AMQPError, OSError):
                time.sleep(0.05)  # its worker is gone, or the queue's
            except Exception as error:
                ledger.wrong.append(repr(error))
                raise

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def publish(connect: Connect, stop: threading.Event, ledger: Ledger, name: str) -> None:
    """Publish to all queues, one confirm at a time."""
    channel = connect().channel()
    channel.confirm_delivery()
    chance = random.Random(name)
    while not stop.is_set():
        queue, body = chance.choice(QUEUES), f"{name}-{time.monotonic_ns()}".encode()
        began = time.monotonic()
        try:
            channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2), mandatory=True)
            ledger.confirmed[queue].add(body)
        except NackError:
            time.sleep(0.02)
        ledger.longest_wait_s = max(ledger.longest_wait_s, time.monotonic() - began)
    channel.connection.close()


def consume(connect: Connect, stop: threading.Event, ledger: Ledger, queue: str) -> None:
    """Consume a queue, and acknowledge."""
    channel = connect().channel()
    channel.basic_qos(prefetch_count=20)
    for method, _, body in channel.consume(queue, inactivity_timeout=0.2):
        if stop.is_set():
            break
        if method is not None and body is not None:
            ledger.came[queue][body] += 1
            channel.basic_ack(method.delivery_tag)
    channel.connection.close()


@contextmanager
def clients(connect: Connect, ledger: Ledger) -> Iterator[None]:
    """Publishers and consumers at work."""
    stop = threading.Event()
    threads = [
        work(stop, ledger, lambda name=f"p{number}": publish(connect, stop, ledger, name))  # type: ignore[misc]
        for number in range(3)
    ]
    threads += [
        work(stop, ledger, lambda queue=queue: consume(connect, stop, ledger, queue))  # type: ignore[misc]
        for queue in QUEUES
    ]
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def take_rest(connect: Connect, ledger: Ledger) -> bool:
    """Take what is left in the queues; whether nothing is missing then."""
    with suppress(AMQPError, OSError):
        connection = connect()
        channel = connection.channel()
        for queue in QUEUES:
            while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
                ledger.came[queue][got[2]] += 1
        connection.close()
    return not ledger.lost()
