"""Workers are killed -9 at random while clients of all of them work: every confirmed message is there."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPError, NackError

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.workers import is_there, pids
from tests.waiting import until

pytestmark = pytest.mark.extension

SEED = int(os.environ.get("CRASH_SEED", "20261126"))
QUEUES = ("one", "two", "three", "four")
WAIT_S_MAX = 6.0  # a publish that meets a worker which is away is refused after 2 s
DRAIN_S = 60.0


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


def connect(broker: BrokerProcess) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters(port=broker.amqp_port, heartbeat=0, blocked_connection_timeout=20)
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


def publish(broker: BrokerProcess, stop: threading.Event, ledger: Ledger, name: str) -> None:
    """Publish to all queues, one confirm at a time."""
    channel = connect(broker).channel()
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


def consume(broker: BrokerProcess, stop: threading.Event, ledger: Ledger, queue: str) -> None:
    """Consume a queue, and acknowledge."""
    channel = connect(broker).channel()
    channel.basic_qos(prefetch_count=20)
    for method, _, body in channel.consume(queue, inactivity_timeout=0.2):
        if stop.is_set():
            break
        if method is not None and body is not None:
            ledger.came[queue][body] += 1
            channel.basic_ack(method.delivery_tag)
    channel.connection.close()


@contextmanager
def clients(broker: BrokerProcess, ledger: Ledger) -> Iterator[None]:
    """Publishers and consumers at work."""
    stop = threading.Event()
    threads = [
        work(stop, ledger, lambda name=f"p{number}": publish(broker, stop, ledger, name))  # type: ignore[misc]
        for number in range(3)
    ]
    threads += [
        work(stop, ledger, lambda queue=queue: consume(broker, stop, ledger, queue))  # type: ignore[misc]
        for queue in QUEUES
    ]
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def take_rest(broker: BrokerProcess, ledger: Ledger) -> bool:
    """Take what is left in the queues; whether nothing is missing then."""
    with suppress(AMQPError, OSError):
        connection = connect(broker)
        channel = connection.channel()
        for queue in QUEUES:
            while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
                ledger.came[queue][got[2]] += 1
        connection.close()
    return not ledger.lost()


def run(directory: Path, kills: int, seed: int) -> Ledger:
    chance = random.Random(seed)
    ledger = Ledger()
    broker = BrokerProcess(directory, {"workers": 2}).start()
    for queue in QUEUES:
        connection = connect(broker)
        connection.channel().queue_declare(queue, durable=True)
        connection.close()
    with clients(broker, ledger):
        for _ in range(kills):
            time.sleep(chance.uniform(0.5, 2.0))
            alive = [pid for pid in pids(broker) if is_there(pid)]
            if alive:
                os.kill(chance.choice(alive), signal.SIGKILL)
        time.sleep(2.0)
    with suppress(AssertionError):  # the ledger tells what is lost
        until(lambda: take_rest(broker, ledger), DRAIN_S)
    assert broker.stop() == 0
    return ledger


def check(ledger: Ledger, seed: int) -> None:
    assert ledger.lost() == {}, f"CRASH_SEED={seed}"
    assert ledger.wrong == []
    assert all(ledger.confirmed.values())
    assert ledger.longest_wait_s < WAIT_S_MAX


def test_nothing_confirmed_is_lost_when_workers_are_killed(tmp_path: Path) -> None:
    check(run(tmp_path, 3, SEED), SEED)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(SEED, SEED + 20))
def test_nothing_confirmed_is_lost_in_many_kills(tmp_path: Path, seed: int) -> None:
    check(run(tmp_path, 40, seed), seed)
