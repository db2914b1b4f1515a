"""AMQP clients that publish to some queues and consume from them, and an account of every message."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPConnectionError, AMQPError, NackError

QUEUES = ("one", "two", "three", "four")
STREAM_OFFSET = "x-stream-offset"
GROUP_OFFSET = "x-offset"
SIP_S = 0.03


class Confirm(NamedTuple):
    """A publish that was confirmed, by the monotonic clock."""

    queue: str
    body: bytes
    asked_s: float
    came_s: float


@dataclass(slots=True)
class Reading:
    """One consumer, from its making to its end, by the monotonic clock; `came_s` are its deliveries."""

    queue: str
    asked_s: float = field(default_factory=time.monotonic)
    made_s: float = 0.0
    came_s: list[float] = field(default_factory=list)


class Ledger:
    """What was confirmed and what came, by queue or stream; told by several threads. `backlogs` are queues
    with messages that are to be there all the time, so that there is always something to deliver.
    """

    def __init__(self, streams: Sequence[str] = (), backlogs: Sequence[str] = ()) -> None:
        self.streams = streams
        self.backlogs = backlogs
        self.names = (*QUEUES, *streams)
        self.confirmed: dict[str, set[bytes]] = {name: set() for name in self.names}
        self.came: dict[str, Counter[bytes]] = {name: Counter() for name in (*self.names, *backlogs)}
        self.confirms: list[Confirm] = []
        self.readings: list[Reading] = []
        self.longest_wait_s = 0.0
        self.wrong: list[str] = []
        self._told: dict[tuple[str, str], dict[int, bytes]] = {}

    def lost(self) -> dict[str, list[bytes]]:
        """What was confirmed and never came."""
        missing = {name: sorted(self.confirmed[name] - set(self.came[name])) for name in self.names}
        return {name: bodies for name, bodies in missing.items() if bodies}

    def about_lost(self) -> list[str]:
        """Tell when what is lost was confirmed, and, of streams, what came of the messages around it."""
        told = []
        for queue, bodies in self.lost().items():
            confirms = [each for each in self.confirms if each.queue == queue]
            offsets = {body: offset for offset, body in self._told.get((queue, STREAM_OFFSET), {}).items()}
            confirms.sort(key=lambda each: each.asked_s)
            for at in [at for at, each in enumerate(confirms) if each.body in bodies]:
                told += [f"{each}: {offsets.get(each.body)}" for each in confirms[max(at - 3, 0) : at + 4]]
            told.append(f"{queue}: {len(offsets)} offsets up to {max(offsets.values(), default=None)}")
        return told

    def note_offset(self, queue: str, kind: str, offset: int, body: bytes) -> None:
        """Note at which offset a message was said to be: no other one ever is."""
        told = self._told.setdefault((queue, kind), {}).setdefault(offset, body)
        if told != body:
            self.wrong.append(f"{kind} {offset} of {queue!r} is told of {told!r} and of {body!r}")


Connect = Callable[[], pika.BlockingConnection]
"""Connects to the broker, or to any of its nodes. Raises AMQPError, OSError."""


def connected(port: int, *, heartbeat_s: int = 0) -> pika.BlockingConnection:
    """Connect. Raises AMQPError, OSError."""
    parameters = pika.ConnectionParameters(port=port, heartbeat=heartbeat_s, blocked_connection_timeout=20)
    try:
        return pika.BlockingConnection(parameters)
    except AMQPConnectorException as error:  # of those that pika lets out some are no AMQPError
        raise AMQPConnectionError(str(error)) from error


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
        queue, body = chance.choice(ledger.names), f"{name}-{time.monotonic_ns()}".encode()
        began = time.monotonic()
        try:
            channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2), mandatory=True)
            ledger.confirmed[queue].add(body)
            ledger.confirms.append(Confirm(queue, body, began, time.monotonic()))
        except NackError:
            time.sleep(0.02)
        ledger.longest_wait_s = max(ledger.longest_wait_s, time.monotonic() - began)
    channel.connection.close()


def consume(
    connect: Connect, stop: threading.Event, ledger: Ledger, queue: str, group: str | None = None
) -> None:
    """Consume a queue, or as a group of it, and acknowledge, until that is cancelled."""

    def came(properties: pika.BasicProperties, body: bytes) -> None:
        ledger.came[queue][body] += 1
        if group is not None:
            ledger.note_offset(queue, GROUP_OFFSET, properties.headers[GROUP_OFFSET], body)

    arguments = None if group is None else {"x-consumer-group": group}
    _consume(connect, stop, ledger, queue, came, arguments)


def sip(connect: Connect, stop: threading.Event, ledger: Ledger, queue: str) -> None:
    """Consume a backlog slowly, until that is cancelled."""

    def came(properties: pika.BasicProperties, body: bytes) -> None:
        ledger.came[queue][body] += 1
        time.sleep(SIP_S)

    _consume(connect, stop, ledger, queue, came, None, prefetch=5)


def read(connect: Connect, stop: threading.Event, ledger: Ledger, stream: str, begin: list[int]) -> None:
    """Read a stream on from the offset in `begin`, until that is cancelled."""

    def came(properties: pika.BasicProperties, body: bytes) -> None:
        offset = properties.headers[STREAM_OFFSET]
        if offset != begin[0]:
            ledger.wrong.append(f"offset {offset} of {stream!r} came instead of {begin[0]}")
        begin[0] = offset + 1
        ledger.came[stream][body] += 1
        ledger.note_offset(stream, STREAM_OFFSET, offset, body)

    _consume(connect, stop, ledger, stream, came, {STREAM_OFFSET: begin[0]})


def _consume(
    connect: Connect,
    stop: threading.Event,
    ledger: Ledger,
    queue: str,
    take: Callable[[pika.BasicProperties, bytes], None],
    arguments: dict[str, Any] | None,
    prefetch: int = 20,
) -> None:
    connection = connect()
    channel = connection.channel()
    channel.basic_qos(prefetch_count=prefetch)
    reading = Reading(queue)
    is_over = threading.Event()

    def came(channel: Any, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        reading.came_s.append(time.monotonic())
        take(properties, body)
        channel.basic_ack(method.delivery_tag)

    channel.add_on_cancel_callback(lambda _: is_over.set())
    channel.basic_consume(queue, came, arguments=arguments)
    reading.made_s = time.monotonic()
    ledger.readings.append(reading)
    while not (stop.is_set() or is_over.is_set()):
        connection.process_data_events(0.2)
    connection.close()


@contextmanager
def clients(connect: Connect, ledger: Ledger, groups: Sequence[tuple[str, str]] = ()) -> Iterator[None]:
    """Publishers and consumers at work; `groups` are further ones, by queue and name."""
    stop = threading.Event()
    threads = [
        work(stop, ledger, lambda name=f"p{number}": publish(connect, stop, ledger, name))  # type: ignore[misc]
        for number in range(3)
    ]
    threads += [
        work(stop, ledger, lambda queue=queue: consume(connect, stop, ledger, queue))  # type: ignore[misc]
        for queue in QUEUES
    ]
    threads += [
        work(stop, ledger, partial(consume, connect, stop, ledger, queue, group)) for queue, group in groups
    ]
    threads += [work(stop, ledger, partial(sip, connect, stop, ledger, queue)) for queue in ledger.backlogs]
    for stream in ledger.streams:
        begin = [0]
        threads.append(work(stop, ledger, partial(read, connect, stop, ledger, stream, begin)))
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
