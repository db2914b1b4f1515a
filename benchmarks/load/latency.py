"""End-to-end latency of durable, confirmed AMQP messages at a fixed rate (open loop).

Every message carries the moment it was due, so a generator or broker that falls behind shows in the figures.
`python -m benchmarks.load.latency --amqp-port 5672 --rate 500 --seconds 8`
"""

import argparse
import os
import select
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks.load import amqp_wire
from benchmarks.load.command_line import add_target_options, print_report, target_from
from benchmarks.load.crew import SENT_FINAL, Board, Crew, LoadError, Stopwatch, cpu_percent, span_s
from benchmarks.load.target import Target, broker_cpu

PUBLISHER, CONSUMER = "publisher", "consumer"
STAMP = struct.Struct("<q")
SPIN_S = 0.0003
STALL_S = 10.0
PERCENTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))


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


def run(target: Target, load: LatencyLoad) -> dict[str, Any]:
    """Percentiles in milliseconds: due time -> delivery, and due time -> confirm."""
    queue = f"bench-latency-{os.getpid()}-{time.monotonic_ns()}"
    control = amqp_wire.AmqpClient(target.host, target.amqp_port)
    control.declare_queue(queue, durable=True, arguments=load.queue_arguments)
    crew = Crew()
    crew.add(CONSUMER, consumer, target, load, queue)
    crew.add(PUBLISHER, publisher, target, load, queue)
    with broker_cpu(target) as cpu:
        reports = crew.run(load.seconds + load.warmup_s + 30)
    control.delete_queue(queue)
    control.close()
    seconds = span_s(reports)
    return {
        "messages": reports[CONSUMER]["count"],
        "seconds": round(seconds, 3),
        "rate": load.rate,
        **_percentiles_ms(reports[CONSUMER]["waits_ns"], ""),
        **_percentiles_ms(reports[PUBLISHER]["waits_ns"], "confirm_"),
        "lost": load.messages - reports[CONSUMER]["count"],
        "send_delay_ms_max": reports[PUBLISHER]["send_delay_ms_max"],
        "client_cpu_percent": cpu_percent(reports, seconds),
        "broker_cpu_percent": cpu.percent(seconds),
    }


def _percentiles_ms(waits_ns: list[int], prefix: str) -> dict[str, float]:
    if not waits_ns:
        raise LoadError("nothing arrived")
    ordered = sorted(waits_ns)
    last = len(ordered) - 1
    return {
        f"{prefix}{name}_ms": round(ordered[min(last, int(part * len(ordered)))] / 1e6, 3)
        for name, part in PERCENTILES
    }


def publisher(board: Board, index: int, target: Target, load: LatencyLoad, queue: str) -> dict[str, Any]:
    """Send each message when it is due; confirms are read while waiting for the next."""
    client = amqp_wire.AmqpClient(target.host, target.amqp_port)
    client.select_confirms()
    client.set_wait(STALL_S)
    sock, clock = client.sock, time.monotonic_ns
    message = amqp_wire.publish_frames(queue, bytes(load.size), delivery_mode=2)
    head, tail = message[: -load.size - 1], message[-load.size - 1 + STAMP.size :]
    counter = amqp_wire.ConfirmCounter()
    board.wait_start(index)
    watch = Stopwatch()
    interval_ns = 1_000_000_000 // load.rate
    begin = clock() + 10_000_000
    waits: list[int] = []
    worst_delay = 0
    for number in range(load.messages):
        due = begin + number * interval_ns
        _wait_until(sock, due, counter, waits, begin, interval_ns)
        sock.sendall(head + STAMP.pack(due) + tail)
        worst_delay = max(worst_delay, clock() - due)
    while counter.confirmed < load.messages:
        try:
            data = sock.recv(65_536)
        except BlockingIOError:
            raise LoadError("no confirm came any more") from None
        _confirm(data, counter, waits, begin, interval_ns)
    board.cells[SENT_FINAL] = load.messages
    watch.finished = time.monotonic()
    client.close()
    return watch.report(
        waits_ns=waits[load.warmup_messages :],
        send_delay_ms_max=round(worst_delay / 1e6, 3),
        count=len(waits),
    )


def _wait_until(
    sock: socket.socket,
    due: int,
    counter: amqp_wire.ConfirmCounter,
    waits: list[int],
    begin: int,
    interval_ns: int,
) -> None:
    """Take confirms until `due`; the last fraction of a millisecond is spun away, sleeping is not exact."""
    while True:
        left = (due - time.monotonic_ns()) / 1e9
        if left <= 0:
            return
        try:
            _confirm(sock.recv(65_536, socket.MSG_DONTWAIT), counter, waits, begin, interval_ns)
        except BlockingIOError:
            if left > SPIN_S:
                select.select((sock,), (), (), left - SPIN_S)


def _confirm(
    data: bytes, counter: amqp_wire.ConfirmCounter, waits: list[int], begin: int, interval_ns: int
) -> None:
    now = time.monotonic_ns()
    before = counter.confirmed
    counter.feed(data)
    waits.extend(now - begin - number * interval_ns for number in range(before, counter.confirmed))


def consumer(board: Board, index: int, target: Target, load: LatencyLoad, queue: str) -> dict[str, Any]:
    """Read the due time of each message at its arrival and acknowledge at once."""
    client = amqp_wire.AmqpClient(target.host, target.amqp_port)
    client.consume(queue, prefetch=1_000, no_ack=False)
    client.set_wait(0.2)
    sock, unpack = client.sock, STAMP.unpack
    counter = amqp_wire.DeliveryCounter(client.take_buffered())
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
        sock.sendall(amqp_wire.encode_ack_multiple(counter.count))
        watch.finished = time.monotonic()
    client.close()
    return watch.report(count=counter.count, waits_ns=waits[load.warmup_messages :])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_target_options(parser)
    parser.add_argument("--rate", type=int, default=500, help="messages per second")
    parser.add_argument("--size", type=int, default=100, help="body bytes, at least 8")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--queue-type", choices=["classic", "quorum"], default="classic")
    given = parser.parse_args()
    arguments = {"x-queue-type": given.queue_type} if given.queue_type == "quorum" else {}
    load = LatencyLoad(given.rate, max(given.size, STAMP.size), given.seconds, queue_arguments=arguments)
    print_report("latency", target_from(given), run(target_from(given), load))


if __name__ == "__main__":
    main()
