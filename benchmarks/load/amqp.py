"""AMQP 0.9.1 throughput: one producer, one consumer, together or one after the other.

`python -m benchmarks.load.amqp --amqp-port 5672 --size 100 --seconds 5 --queue-type quorum`
"""

import argparse
import os
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks.load import amqp_wire
from benchmarks.load.command_line import add_target_options, print_report, target_from
from benchmarks.load.crew import RECEIVED, SENT, SENT_FINAL, Board, Crew, Stopwatch, cpu_percent, span_s
from benchmarks.load.payloads import make_bodies
from benchmarks.load.sockets import REST_BELOW_BYTES, REST_S, receive_answers
from benchmarks.load.target import Target, broker_cpu

PUBLISHER, CONSUMER = "publisher", "consumer"
STALL_S = 10.0


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
    topic_bindings: int = 0  # published to a topic exchange that has so many; 0: to the default exchange
    fanout: int = 0  # published to a fanout exchange of so many queues, of which one is consumed
    queue_arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def limit_s(self) -> float:
        return self.seconds * 5 + 30


def run_together(target: Target, load: AmqpLoad) -> dict[str, Any]:
    """Producer and consumer at once; the rate counts until the last delivery and the last confirm."""
    queue = _declare(target, load)
    crew = Crew()
    crew.add(PUBLISHER, publisher, target, load, queue)
    crew.add(CONSUMER, consumer, target, load, queue)
    with broker_cpu(target) as cpu:
        reports = crew.run(load.limit_s)
    _delete(target, load, queue)
    seconds = span_s(reports)
    received = reports[CONSUMER]["count"]
    return {
        "messages": received,
        "seconds": round(seconds, 3),
        "rate": round(received / seconds),
        "lost": reports[PUBLISHER]["sent"] - received,
        "refused": reports[PUBLISHER]["refused"],
        "client_cpu_percent": cpu_percent(reports, seconds),
        "broker_cpu_percent": cpu.percent(seconds),
    }


def run_publish_then_drain(target: Target, load: AmqpLoad) -> dict[str, Any]:
    """Publish everything, then consume everything; `rate` is messages over both times together."""
    queue = _declare(target, load)
    with broker_cpu(target) as cpu:
        published = fill(target, load, queue)
        drained = drain(target, load, queue, published["sent"])
    _delete(target, load, queue)
    seconds = published["seconds"] + drained["seconds"]
    return {
        "messages": drained["count"],
        "seconds": round(seconds, 3),
        "rate": round(drained["count"] / seconds),
        "publish_rate": published["rate"],
        "drain_rate": drained["rate"],
        "lost": published["sent"] - drained["count"],
        "client_cpu_percent": published["client_cpu_percent"] | drained["client_cpu_percent"],
        "broker_cpu_percent": cpu.percent(seconds),
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
    reports = crew.run(load.limit_s)
    report = reports[name]
    seconds = span_s(reports)
    rate = round(report["count"] / seconds)
    return report | {"seconds": seconds, "rate": rate, "client_cpu_percent": cpu_percent(reports, seconds)}


def publisher(board: Board, index: int, target: Target, load: AmqpLoad, queue: str) -> dict[str, Any]:
    """Publish batches of ready-made frames, at most `window` of them unconfirmed."""
    client = amqp_wire.AmqpClient(target.host, target.amqp_port, login=target.login)
    if load.confirms:
        client.select_confirms()
    client.set_wait(STALL_S)
    bodies = make_bodies(load.size, load.batch)
    mode = 2 if load.durable else 1
    if load.varied:
        blob = amqp_wire.varied_batch(queue, bodies, delivery_mode=mode)
    else:
        exchange, key = _destination(load, queue)
        blob = amqp_wire.publish_batch(key, bodies, delivery_mode=mode, exchange=exchange)
    board.wait_start(index)
    watch = Stopwatch()
    if load.confirms:
        sent, refused = _publish_confirmed(board, client.sock, blob, load, watch)
    else:
        sent, refused = _publish_unconfirmed(board, client.sock, blob, load, watch), 0
    client.close()
    return watch.report(count=sent - refused, sent=sent - refused, refused=refused)


def _publish_confirmed(
    board: Board, sock: socket.socket, blob: bytes, load: AmqpLoad, watch: Stopwatch
) -> tuple[int, int]:
    cells, clock, batch = board.cells, time.monotonic, load.batch
    room = load.window - batch
    counter = amqp_wire.ConfirmCounter()
    sent, deadline = 0, watch.started + load.seconds
    while sent < load.messages and clock() < deadline:
        while sent - counter.confirmed > room:
            counter.feed(receive_answers(sock, STALL_S))
        sock.sendall(blob % tuple(range(sent, sent + batch)) if load.varied else blob)
        sent += batch
        cells[SENT] = sent
        try:
            counter.feed(sock.recv(65_536, socket.MSG_DONTWAIT))
        except BlockingIOError:
            pass
    while counter.confirmed < sent:
        counter.feed(receive_answers(sock, STALL_S))
    watch.finished = clock()
    cells[SENT_FINAL] = sent - counter.refused
    return sent, counter.refused


def _publish_unconfirmed(
    board: Board, sock: socket.socket, blob: bytes, load: AmqpLoad, watch: Stopwatch
) -> int:
    cells, clock, batch = board.cells, time.monotonic, load.batch
    room = load.flow_window - batch if load.flow_window else 1 << 62
    sent, deadline = 0, watch.started + load.seconds
    while sent < load.messages and clock() < deadline:
        if sent - cells[RECEIVED] > room:
            time.sleep(REST_S)
            continue
        sock.sendall(blob % tuple(range(sent, sent + batch)) if load.varied else blob)
        sent += batch
        cells[SENT] = sent
    watch.finished = clock()
    cells[SENT_FINAL] = sent
    return sent


def consumer(
    board: Board, index: int, target: Target, load: AmqpLoad, queue: str, expected: int = -1, skipped: int = 0
) -> dict[str, Any]:
    """Consume until everything sent has come (or nothing comes any more), with multiple acks."""
    client = amqp_wire.AmqpClient(target.host, target.amqp_port, login=target.login)
    if expected >= 0:  # a drain starts with its basic.consume
        board.wait_start(index)
        watch = Stopwatch()
    client.consume(queue, prefetch=load.prefetch, no_ack=load.no_ack)
    client.set_wait(0.05)
    counter = amqp_wire.DeliveryCounter(client.take_buffered(), make_bodies(load.size, load.batch), skipped)
    if expected < 0:
        board.wait_start(index)
        watch = Stopwatch()
    count = consume_all(board, client.sock, counter, load, watch, expected)
    client.close()
    return watch.report(count=count)


def consume_all(
    board: Board,
    sock: socket.socket,
    counter: amqp_wire.DeliveryCounter,
    load: AmqpLoad,
    watch: Stopwatch,
    expected: int,
) -> int:
    """Count deliveries up to what the publisher said it sent (or `expected`); returns the count."""
    cells, clock = board.cells, time.monotonic
    counter.scan()
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
            sock.sendall(amqp_wire.encode_ack_multiple(count))
            acked = count
        if got < REST_BELOW_BYTES:
            time.sleep(REST_S)
    if not load.no_ack and counter.count > acked:
        sock.sendall(amqp_wire.encode_ack_multiple(counter.count))
    return counter.count


def _declare(target: Target, load: AmqpLoad) -> str:
    queue = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    client = amqp_wire.AmqpClient(target.host, target.amqp_port, login=target.login)
    for name in _queues(load, queue):
        client.declare_queue(name, durable=load.durable, arguments=load.queue_arguments)
    exchange, _ = _destination(load, queue)
    if exchange:
        client.declare_exchange(exchange, "fanout" if load.fanout else "topic", durable=load.durable)
    for number in range(load.topic_bindings):
        client.bind_queue(queue, exchange, f"site.{number}.*.temperature")
    if load.fanout:
        for name in _queues(load, queue):
            client.bind_queue(name, exchange, "")
    client.close()
    return queue


def _delete(target: Target, load: AmqpLoad, queue: str) -> None:
    client = amqp_wire.AmqpClient(target.host, target.amqp_port, wait_s=60, login=target.login)
    exchange, _ = _destination(load, queue)
    if exchange:
        client.delete_exchange(exchange)
    for name in _queues(load, queue):
        client.delete_queue(name)
    client.close()


def _destination(load: AmqpLoad, queue: str) -> tuple[str, str]:
    """The exchange and the routing key that are published to."""
    if load.topic_bindings:
        return f"{queue}-x", "site.0.a.temperature"
    return (f"{queue}-x", "") if load.fanout else ("", queue)


def _queues(load: AmqpLoad, queue: str) -> list[str]:
    """The queues of a load; the first one is consumed."""
    return [queue, *(f"{queue}-{number}" for number in range(1, load.fanout))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_target_options(parser)
    parser.add_argument("--size", type=int, default=100, help="body bytes")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to publish")
    parser.add_argument("--messages", type=int, default=1 << 62, help="at most so many messages")
    parser.add_argument("--window", type=int, default=5_000, help="unconfirmed messages")
    parser.add_argument("--batch", type=int, default=100, help="messages in one send")
    parser.add_argument("--prefetch", type=int, default=2_000)
    parser.add_argument("--ack-every", type=int, default=200)
    parser.add_argument("--queue-type", choices=["classic", "quorum"], default="classic")
    parser.add_argument("--transient", action="store_true", help="no confirms, no acks, nothing stored")
    parser.add_argument("--varied", action="store_true", help="each message has properties of its own")
    parser.add_argument("--topic-bindings", type=int, default=0, help="of a topic exchange")
    parser.add_argument("--fanout", type=int, default=0, help="queues of a fanout exchange")
    parser.add_argument("--drain", action="store_true", help="publish everything first, then consume")
    given = parser.parse_args()
    load = AmqpLoad(
        size=given.size,
        seconds=given.seconds,
        messages=given.messages,
        window=given.window,
        batch=given.batch,
        prefetch=given.prefetch,
        ack_every=given.ack_every,
        durable=not given.transient,
        varied=given.varied,
        topic_bindings=given.topic_bindings,
        fanout=given.fanout,
        confirms=not given.transient,
        no_ack=given.transient,
        flow_window=50_000 if given.transient else 0,
        queue_arguments={"x-queue-type": given.queue_type} if given.queue_type == "quorum" else {},
    )
    run = run_publish_then_drain if given.drain else run_together
    print_report("amqp", target_from(given), run(target_from(given), load))


if __name__ == "__main__":
    main()
