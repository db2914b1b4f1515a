"""AMQP 0.9.1 loads: throughput of one producer and one consumer, latency at a fixed rate, a deep backlog."""

import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pamqp import commands

from benchmarks.load import process_stat
from benchmarks.load.counters import (
    TRANSIENT,
    ConfirmCounter,
    DeliveryCounter,
    amqp_batch,
    amqp_varied_batch,
    make_bodies,
)
from benchmarks.load.crew import (
    RECEIVED,
    SENT,
    SENT_FINAL,
    Board,
    Crew,
    Stopwatch,
    cpu_percent,
    span_s,
)
from benchmarks.load.target import REST_BELOW_BYTES, REST_S, Target, receive_answers, set_wait
from broker.commands.bench_clients import CHANNEL, CONSUMER_TAG, ClientError
from protocols.amqp091.client import PERSISTENT, encode_publish
from protocols.amqp091.hot import encode_ack

PUBLISHER, CONSUMER = "publisher", "consumer"
STALL_S = 10.0
STAMP = struct.Struct("<q")
SPIN_S = 0.0003
FIRST_DELIVERY_TIMEOUT_S = 60.0
SETTLE_S = 1.0
BACKLOG_LIMIT_S = 240.0
PERCENTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))


@dataclass(frozen=True)
class AmqpLoad:
    """One AMQP run. Sizes in bytes; `messages` and `seconds` both bound the publisher."""

    size: int = 100
    seconds: float = 5.0
    messages: int = 1 << 62
    window: int = 5_000
    batch: int = 100
    prefetch: int = 2_000
    ack_every: int = 200
    durable: bool = True
    confirms: bool = True
    no_ack: bool = False
    flow_window: int = 0
    varied: bool = False  # each message has properties of its own
    links: int = 0  # of AMQP 1.0: published on so many, each with one message in flight
    topic_bindings: int = 0  # published to a topic exchange that has so many; 0: to the default exchange
    fanout: int = 0  # published to a fanout exchange of so many queues, of which one is consumed
    queue_arguments: dict[str, Any] = field(default_factory=dict)


def run_together(target: Target, load: AmqpLoad, clients: Any = None) -> dict[str, Any]:
    """Producer and consumer at once; the rate counts until the last delivery and the last confirm.

    `clients` is a module that has both; by default they speak AMQP 0.9.1.
    """
    queue = declare(target, load)
    crew = Crew()
    produce = publisher
    if clients:
        produce = clients.links_publisher if load.links else clients.publisher
    crew.add(PUBLISHER, produce, target, load, queue)
    crew.add(CONSUMER, clients.consumer if clients else consumer, target, load, queue)
    report = crew.measure(target, load.seconds, PUBLISHER, [CONSUMER])
    delete(target, load, queue)
    return report | {"refused": crew.reports[PUBLISHER]["refused"]}


def run_publish_then_drain(target: Target, load: AmqpLoad) -> dict[str, Any]:
    """Publish everything, then consume everything; `rate` is messages over both times together."""
    queue = declare(target, load)
    cpu_s = process_stat.cpu_s(target.pid)
    published = fill(target, load, queue)
    drained = drain(target, load, queue, published["sent"])
    cpu_s = process_stat.cpu_s(target.pid) - cpu_s
    delete(target, load, queue)
    seconds = published["seconds"] + drained["seconds"]
    return {
        "messages": drained["count"],
        "seconds": round(seconds, 3),
        "rate": round(drained["count"] / seconds),
        "publish_rate": published["rate"],
        "drain_rate": drained["rate"],
        "lost": published["sent"] - drained["count"],
        "client_cpu_percent": published["client_cpu_percent"] | drained["client_cpu_percent"],
        "broker_cpu_percent": round(100 * cpu_s / seconds, 1),
    }


def fill(target: Target, load: AmqpLoad, queue: str) -> dict[str, Any]:
    """Publish only."""
    return _alone(PUBLISHER, publisher, target, load, queue)


def drain(target: Target, load: AmqpLoad, queue: str, expected: int, skipped: int = 0) -> dict[str, Any]:
    """Consume `expected` messages that wait in the queue, whose first `skipped` were consumed before."""
    return _alone(CONSUMER, consumer, target, load, queue, expected, skipped)


def _alone(name: str, function: Any, target: Target, load: AmqpLoad, *args: Any) -> dict[str, Any]:
    crew = Crew()
    crew.add(name, function, target, load, *args)
    reports = crew.run(load.seconds)
    report = reports[name]
    seconds = span_s(reports)
    rate = round(report["count"] / seconds)
    return report | {"seconds": seconds, "rate": rate, "client_cpu_percent": cpu_percent(reports, seconds)}


def publisher(board: Board, index: int, target: Target, load: AmqpLoad, queue: str) -> dict[str, Any]:
    """Publish batches of ready-made frames, at most `window` of them unconfirmed."""
    client = target.amqp()
    if load.confirms:
        client.select_confirms()
    set_wait(client.sock, STALL_S)
    bodies = make_bodies(load.size, load.batch)
    if load.varied:
        blob = amqp_varied_batch(queue, bodies, 2 if load.durable else 1)
    else:
        exchange, key = _destination(load, queue)
        blob = amqp_batch(key, bodies, PERSISTENT if load.durable else TRANSIENT, exchange)
    board.wait_start(index)
    watch = Stopwatch()
    sent, refused = _publish(board, client.sock, blob, load, watch)
    client.close()
    return watch.report(count=sent - refused, sent=sent - refused, refused=refused)


def _publish(
    board: Board, sock: socket.socket, blob: bytes, load: AmqpLoad, watch: Stopwatch
) -> tuple[int, int]:
    cells, clock, batch = board.cells, time.monotonic, load.batch
    room = load.window - batch if load.confirms else 1 << 62
    flow_room = load.flow_window - batch if load.flow_window else 1 << 62
    counter = ConfirmCounter()
    sent, deadline = 0, watch.started + load.seconds
    while sent < load.messages and clock() < deadline:
        if sent - cells[RECEIVED] > flow_room:
            time.sleep(REST_S)
            continue
        while sent - counter.confirmed > room:
            counter.feed(receive_answers(sock, STALL_S))
        sock.sendall(blob % tuple(range(sent, sent + batch)) if load.varied else blob)
        sent += batch
        cells[SENT] = sent
        if load.confirms:
            with suppress(BlockingIOError):
                counter.feed(sock.recv(65_536, socket.MSG_DONTWAIT))
    while load.confirms and counter.confirmed < sent:
        counter.feed(receive_answers(sock, STALL_S))
    watch.finished = clock()
    cells[SENT_FINAL] = sent - counter.refused
    return sent, counter.refused


def consumer(
    board: Board, index: int, target: Target, load: AmqpLoad, queue: str, expected: int = -1, skipped: int = 0
) -> dict[str, Any]:
    """Consume until everything sent has come (or nothing comes any more), with multiple acks."""
    client = target.amqp()
    if expected >= 0:  # a drain starts with its basic.consume
        board.wait_start(index)
        watch = Stopwatch()
    begun = client.consume(queue, 0 if load.no_ack else load.prefetch, no_ack=load.no_ack)
    set_wait(client.sock, 0.05)
    counter = DeliveryCounter(begun, make_bodies(load.size, load.batch), skipped)
    if expected < 0:
        board.wait_start(index)
        watch = Stopwatch()
    counter.scan()
    count = consume_all(board, client.sock, counter, load, watch, expected)
    client.close()
    return watch.report(count=count)


def consume_all(
    board: Board,
    sock: socket.socket,
    counter: Any,
    load: AmqpLoad,
    watch: Stopwatch,
    expected: int = -1,
    acknowledge: Callable[[int], bytes] = lambda count: encode_ack(CHANNEL, count, True),
) -> int:
    """Count deliveries up to what the publisher said it sent (or `expected`); returns the count.

    `counter` has a `count`, and a `receive` that reads and counts; `acknowledge` makes what is sent for all
    messages up to a count.
    """
    cells, clock = board.cells, time.monotonic
    acked = 0
    while True:
        total = expected if expected >= 0 else cells[SENT_FINAL]
        if 0 <= total <= counter.count:
            break
        try:
            got = counter.receive(sock)
        except BlockingIOError:
            if clock() - watch.finished > STALL_S:
                break
            continue
        watch.finished = clock()
        count = counter.count
        cells[RECEIVED] = count
        if not load.no_ack and count - acked >= load.ack_every:
            sock.sendall(acknowledge(count))
            acked = count
        if got < REST_BELOW_BYTES:
            time.sleep(REST_S)
    if not load.no_ack and counter.count > acked:
        sock.sendall(acknowledge(counter.count))
    return int(counter.count)


def declare(target: Target, load: AmqpLoad) -> str:
    """Make what a load goes through; its first queue is given."""
    queue = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    client = target.amqp()
    for name in _queues(load, queue):
        client.declare(name, durable=load.durable, arguments=load.queue_arguments)
    exchange, _ = _destination(load, queue)
    if exchange:
        kind = "fanout" if load.fanout else "topic"
        made = commands.Exchange.Declare(exchange=exchange, exchange_type=kind, durable=load.durable)
        client.call(made, commands.Exchange.DeclareOk)
    bindings = [(queue, f"site.{number}.*.temperature") for number in range(load.topic_bindings)]
    bindings += [(name, "") for name in _queues(load, queue) if load.fanout]
    for name, key in bindings:
        client.call(commands.Queue.Bind(0, name, exchange, key), commands.Queue.BindOk)
    client.close()
    return queue


def delete(target: Target, load: AmqpLoad, queue: str) -> None:
    """Take away what `declare` made."""
    client = target.amqp(60)
    if exchange := _destination(load, queue)[0]:
        client.call(commands.Exchange.Delete(exchange=exchange), commands.Exchange.DeleteOk)
    for name in _queues(load, queue):
        client.delete(name)
    client.close()


def _destination(load: AmqpLoad, queue: str) -> tuple[str, str]:
    """The exchange and the routing key that are published to."""
    if load.topic_bindings:
        return f"{queue}-x", "site.0.a.temperature"
    return (f"{queue}-x", "") if load.fanout else ("", queue)


def _queues(load: AmqpLoad, queue: str) -> list[str]:
    """The queues of a load; the first one is consumed."""
    return [queue, *(f"{queue}-{number}" for number in range(1, load.fanout))]


@dataclass(frozen=True)
class LatencyLoad:
    """`rate` messages per second for `warmup_s + seconds`; the warm-up is not counted."""

    rate: int = 500
    size: int = 100
    seconds: float = 8.0
    warmup_s: float = 1.0
    queue_arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        return round(self.rate * (self.seconds + self.warmup_s))

    @property
    def warmup_messages(self) -> int:
        return round(self.rate * self.warmup_s)


def run_latency(target: Target, load: LatencyLoad, clients: Any = None) -> dict[str, Any]:
    """Percentiles in milliseconds: due time -> delivery, and due time -> confirm.

    Every message carries the moment it was due, so a generator or broker that falls behind shows. `clients`
    as for `run_together`.
    """
    queue = declare(target, AmqpLoad(queue_arguments=load.queue_arguments))
    crew = Crew()
    crew.add(CONSUMER, clients.timing_consumer if clients else timing_consumer, target, load, queue)
    crew.add(PUBLISHER, clients.timed_publisher if clients else timed_publisher, target, load, queue)
    report = crew.measure(target, load.seconds + load.warmup_s, PUBLISHER, [CONSUMER])
    delete(target, AmqpLoad(), queue)
    return report | {
        "rate": load.rate,
        **_percentiles_ms(crew.reports[CONSUMER]["waits_ns"], ""),
        **_percentiles_ms(crew.reports[PUBLISHER]["waits_ns"], "confirm_"),
        "send_delay_ms_max": crew.reports[PUBLISHER]["send_delay_ms_max"],
    }


def _percentiles_ms(waits_ns: list[int], prefix: str) -> dict[str, float]:
    if not waits_ns:
        raise ClientError("nothing arrived")
    ordered = sorted(waits_ns)
    last = len(ordered) - 1
    return {
        f"{prefix}{name}_ms": round(ordered[min(last, int(part * len(ordered)))] / 1e6, 3)
        for name, part in PERCENTILES
    }


def timed_publisher(
    board: Board, index: int, target: Target, load: LatencyLoad, queue: str
) -> dict[str, Any]:
    """Send each message when it is due; confirms are read while waiting for the next.

    The last fraction of a millisecond is spun away, sleeping is not exact.
    """
    client = target.amqp()
    client.select_confirms()
    set_wait(client.sock, STALL_S)
    sock, clock = client.sock, time.monotonic_ns
    message = encode_publish(queue, bytes(load.size), PERSISTENT)
    head, tail = message[: -load.size - 1], message[-load.size - 1 + STAMP.size :]
    counter = ConfirmCounter()
    waits: list[int] = []
    worst_delay = 0

    def confirm(data: bytes) -> None:
        now, before = clock(), counter.confirmed
        counter.feed(data)
        waits.extend(now - begin - number * interval_ns for number in range(before, counter.confirmed))

    board.wait_start(index)
    watch = Stopwatch()
    interval_ns = 1_000_000_000 // load.rate
    begin = clock() + 10_000_000
    for number in range(load.messages):
        due = begin + number * interval_ns
        while (left := (due - clock()) / 1e9) > 0:
            try:
                confirm(sock.recv(65_536, socket.MSG_DONTWAIT))
            except BlockingIOError:
                if left > SPIN_S:
                    select.select((sock,), (), (), left - SPIN_S)
        sock.sendall(head + STAMP.pack(due) + tail)
        worst_delay = max(worst_delay, clock() - due)
    while counter.confirmed < load.messages:
        confirm(receive_answers(sock, STALL_S))
    board.cells[SENT_FINAL] = load.messages
    watch.finished = time.monotonic()
    client.close()
    waits, late_ms = waits[load.warmup_messages :], round(worst_delay / 1e6, 3)
    return watch.report(waits_ns=waits, send_delay_ms_max=late_ms, sent=load.messages)


def timing_consumer(
    board: Board, index: int, target: Target, load: LatencyLoad, queue: str
) -> dict[str, Any]:
    """Read the due time of each message at its arrival and acknowledge at once."""
    client = target.amqp()
    counter = DeliveryCounter(client.consume(queue, 1_000))
    set_wait(client.sock, 0.2)
    sock, unpack = client.sock, STAMP.unpack
    board.wait_start(index)
    watch = Stopwatch()
    waits: list[int] = []
    while counter.count < load.messages:
        before = counter.count
        try:
            counter.receive(sock, STAMP.size)
        except BlockingIOError:
            if time.monotonic() - watch.finished > STALL_S:
                break
            continue
        if counter.count == before:
            continue
        now = time.monotonic_ns()
        waits.extend(now - unpack(body)[0] for body in counter.last_bodies)
        sock.sendall(encode_ack(CHANNEL, counter.count, True))
        watch.finished = time.monotonic()
    client.close()
    return watch.report(count=counter.count, waits_ns=waits[load.warmup_messages :])


def run_backlog(
    target: Target, messages: int, size: int, restart: Callable[[], tuple[Target, float]] | None = None
) -> dict[str, Any]:
    """Fill, weigh, restart, time the first delivery, drain. Sizes in MB (10^6 bytes), times in seconds.

    `restart` stops the broker and starts it on the same data; it returns where it listens now and the
    monotonic time at which the new process was started. A broker elsewhere is not restarted, or weighed.
    """
    load = AmqpLoad(size=size, messages=messages, seconds=BACKLOG_LIMIT_S)
    queue = declare(target, load)
    filled = fill(target, load, queue)
    time.sleep(SETTLE_S)
    report = {
        "messages": filled["sent"],
        "seconds": round(filled["seconds"], 3),
        "rate": filled["rate"],
        "rss_mb": _mb(process_stat.rss_bytes(target.pid)),
    }
    waiting, skipped = filled["sent"], 0
    if restart is not None:
        target, started = restart()
        connected, served = first_delivery(target, queue)
        report |= {
            "restart_connect_s": round(connected - started, 3),
            "restart_serving_s": round(served - started, 3),
            "rss_after_restart_mb": _mb(process_stat.rss_bytes(target.pid)),
        }
        waiting, skipped = waiting - 1, 1
    drained = drain(target, load, queue, waiting, skipped)
    delete(target, load, queue)
    return report | {
        "drain_rate": drained["rate"],
        "lost": waiting - drained["count"],
        "client_cpu_percent": filled["client_cpu_percent"] | drained["client_cpu_percent"],
    }


def first_delivery(target: Target, queue: str) -> tuple[float, float]:
    """Monotonic times of "connected" and "first message here"; that message is acknowledged."""
    client = target.amqp(FIRST_DELIVERY_TIMEOUT_S)
    connected = time.monotonic()
    counter = DeliveryCounter(client.consume(queue, 1))
    counter.scan()
    while not counter.count:
        try:
            counter.receive(client.sock)
        except BlockingIOError:
            raise ClientError("no delivery after the restart") from None
    served = time.monotonic()
    # or the next one is given out, comes back, and is redelivered with a header more
    client.call(commands.Basic.Cancel(consumer_tag=CONSUMER_TAG), commands.Basic.CancelOk)
    client.sock.sendall(encode_ack(CHANNEL, counter.count, True))
    client.close()
    return connected, served


def _mb(size: int) -> float:
    return round(size / 1e6, 1)


def publish_all(target: Target, frames: Iterable[bytes], window: int) -> float:
    """Send publishes, each its frames, at most about `window` unconfirmed; return messages per second."""
    client = target.amqp(60)
    client.select_confirms()
    confirms = ConfirmCounter()
    began, sent, left = time.monotonic(), 0, iter(frames)
    while part := list(islice(left, max(1, window // 8))):
        client.sock.sendall(b"".join(part))
        sent += len(part)
        while confirms.confirmed < sent - window:
            confirms.feed(client.sock.recv(1 << 16))
    while confirms.confirmed < sent:
        confirms.feed(client.sock.recv(1 << 16))
    rate = sent / (time.monotonic() - began)
    client.close()
    return rate
