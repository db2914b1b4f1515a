"""How long one client that does something large holds up everybody else.

    python -m benchmarks.stalls [--only CASE] [--rounds 3]

In each case another client, an MQTT device, asks for a sign of life (PINGREQ) a hundred times a second: its
p50, p99 and longest wait are told, and what the broker itself says of its event loop (`loop.stalled`). The
first row, with nobody else there, is what the machine does by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

from pamqp import body, commands, frame, header

from benchmarks.brokers import SluiceMQ
from benchmarks.load import amqp_wire
from benchmarks.load.amqp_wire import AmqpClient
from benchmarks.load.mqtt_wire import MqttClient
from benchmarks.load.target import Target

PING_INTERVAL_S = 0.01
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"
QUIET_S = 1.0
WAIT_S = 60.0
HELD = 65_535
BODY = b"x" * 100
LARGE_BYTES = 40 * 1024 * 1024
DELETED_QUEUES = 5_000
DELETED_MESSAGES = 300_000
CONSUMERS = 1_000
BURST = 30_000


class Pings(NamedTuple):
    """What a device waited for its answers."""

    count: int
    p50_ms: float
    p99_ms: float
    longest_ms: float


class Result(NamedTuple):
    """One round of a case: the pings, and the longest stall that the broker logged."""

    case: str
    ping_count: int
    p50_ms: float
    p99_ms: float
    longest_ms: float
    stalled_ms: int
    doing: str


class Pinger:
    """A device that pings, from `__enter__` to `__exit__`, in a process of its own: a busy client is none."""

    def __init__(self, target: Target) -> None:
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self._ready = context.Event()
        self._results, results = context.Pipe(duplex=False)
        arguments = (target.host, target.mqtt_port, self._ready, self._stop, results)
        self._process = context.Process(target=_ping, args=arguments)
        self.result = Pings(0, 0.0, 0.0, 0.0)

    def __enter__(self) -> Pinger:
        self._process.start()
        self._ready.wait(WAIT_S)
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._results.poll(WAIT_S):
            self.result = self._results.recv()
        self._process.join(WAIT_S)
        self._process.kill()


def _ping(host: str, port: int, ready: Event, stop: Event, results: Connection) -> None:
    client = MqttClient(host, port, "pinger", WAIT_S)
    waits = []
    due = time.monotonic()
    while not stop.wait(max(0.0, due - time.monotonic())):
        client.sock.sendall(PINGREQ)
        answer = b""
        while len(answer) < len(PINGRESP):
            answer += client.sock.recv(len(PINGRESP))
        waits.append((time.monotonic() - due) * 1000)  # those that a stall kept from being sent waited, too
        due += PING_INTERVAL_S
        ready.set()
    client.close()
    waits.sort()
    p99 = waits[len(waits) * 99 // 100]
    results.send(Pings(len(waits), statistics.median(waits), p99, waits[-1]))


def publish(target: Target, queue: str, count: int) -> None:
    """Publish to a queue, confirmed."""
    client = AmqpClient(target.host, target.amqp_port, WAIT_S)
    client.select_confirms()
    confirms = amqp_wire.ConfirmCounter()
    batch = amqp_wire.publish_batch(queue, [BODY] * 1_000, delivery_mode=1)
    sent = 0
    while sent < count:
        size = min(1_000, count - sent)
        client.sock.sendall(batch[: len(batch) * size // 1_000])
        sent += size
        while confirms.confirmed < sent - 5_000:
            confirms.feed(client.sock.recv(1 << 16))
    while confirms.confirmed < count:
        confirms.feed(client.sock.recv(1 << 16))
    client.close()


def declare(target: Target, *names: str) -> None:
    client = AmqpClient(target.host, target.amqp_port, WAIT_S)
    for name in names:
        client.declare_queue(name, durable=True)
    client.close()


def holder(target: Target, queue: str, count: int) -> AmqpClient:
    """A consumer that has been given `count` messages and has settled none."""
    client = AmqpClient(target.host, target.amqp_port, WAIT_S)
    client.consume(queue, prefetch=HELD, no_ack=False)
    receive(client, count)
    return client


def receive(client: AmqpClient, count: int) -> None:
    """Take deliveries until there were `count`."""
    needle = struct.pack(">HH", 60, 60)  # basic.deliver
    seen, rest = 0, client.take_buffered()
    seen += rest.count(needle)
    while seen < count:
        data = rest[-3:] + client.sock.recv(1 << 20)
        seen += data.count(needle)
        rest = data


def nothing(target: Target, pinging: Callable[[], object]) -> None:
    """Nobody else is there."""
    pinging()
    time.sleep(2)


def disconnect(target: Target, pinging: Callable[[], object]) -> None:
    """A consumer with 65,535 unsettled messages is cut off."""
    declare(target, "held")
    publish(target, "held", HELD)
    client = holder(target, "held", HELD)
    pinging()
    client.sock.close()


def redelivery(target: Target, pinging: Callable[[], object]) -> None:
    """What a consumer of 65,535 unsettled messages leaves goes to another that waits for it."""
    declare(target, "again")
    publish(target, "again", HELD)
    first = holder(target, "again", HELD)
    second = AmqpClient(target.host, target.amqp_port, WAIT_S)
    second.consume("again", prefetch=HELD, no_ack=False)
    pinging()
    first.sock.close()
    receive(second, HELD)
    second.sock.close()


def nack_multiple(target: Target, pinging: Callable[[], object]) -> None:
    """65,535 messages are handed back by one basic.nack with multiple and requeue."""
    declare(target, "nacked")
    publish(target, "nacked", HELD)
    client = holder(target, "nacked", HELD)
    client.sock.sendall(frame.marshal(commands.Basic.Cancel(amqp_wire.CONSUMER_TAG), amqp_wire.CHANNEL))
    pinging()
    nack = commands.Basic.Nack(HELD, multiple=True, requeue=True)
    client.sock.sendall(frame.marshal(nack, amqp_wire.CHANNEL))
    client.call(commands.Basic.Qos(0, 1), commands.Basic.QosOk)
    client.sock.close()


def ack_multiple(target: Target, pinging: Callable[[], object]) -> None:
    """65,535 messages are settled by one basic.ack with multiple."""
    declare(target, "acked")
    publish(target, "acked", HELD)
    client = holder(target, "acked", HELD)
    pinging()
    client.sock.sendall(frame.marshal(commands.Basic.Ack(HELD, multiple=True), amqp_wire.CHANNEL))
    client.call(commands.Basic.Qos(0, 1), commands.Basic.QosOk)
    time.sleep(QUIET_S)
    client.sock.close()


def delete_large(target: Target, pinging: Callable[[], object]) -> None:
    """A queue with 300,000 messages is deleted."""
    declare(target, "full")
    publish(target, "full", DELETED_MESSAGES)
    client = AmqpClient(target.host, target.amqp_port, WAIT_S)
    pinging()
    client.call(commands.Queue.Delete(queue="full"), commands.Queue.DeleteOk)
    time.sleep(QUIET_S)
    client.close()


def pipelined_deletes(target: Target, pinging: Callable[[], object]) -> None:
    """5,000 durable queues are deleted, the requests sent at once."""
    names = [f"deleted-{number}" for number in range(DELETED_QUEUES)]
    declare(target, *names)
    client = AmqpClient(target.host, target.amqp_port, WAIT_S)
    pinging()
    deletes = [
        frame.marshal(commands.Queue.Delete(queue=name, nowait=True), amqp_wire.CHANNEL) for name in names
    ]
    client.sock.sendall(b"".join(deletes))
    client.call(commands.Basic.Qos(0, 1), commands.Basic.QosOk)
    client.close()


def large_body(target: Target, pinging: Callable[[], object]) -> None:
    """One message of 40 MiB."""
    declare(target, "large")
    client = AmqpClient(target.host, target.amqp_port, WAIT_S)
    client.select_confirms()
    confirms = amqp_wire.ConfirmCounter()
    parts = [
        frame.marshal(commands.Basic.Publish(0, "", "large"), amqp_wire.CHANNEL),
        frame.marshal(header.ContentHeader(0, LARGE_BYTES, commands.Basic.Properties()), amqp_wire.CHANNEL),
    ]
    for start in range(0, LARGE_BYTES, amqp_wire.BODY_BYTES_MAX):
        size = min(amqp_wire.BODY_BYTES_MAX, LARGE_BYTES - start)
        parts.append(frame.marshal(body.ContentBody(bytes(size)), amqp_wire.CHANNEL))
    message = b"".join(parts)
    pinging()
    client.sock.sendall(message)
    while not confirms.confirmed:
        confirms.feed(client.sock.recv(1 << 16))
    client.close()


def consumers_of(target: Target, queue: str) -> list[AmqpClient]:
    """1,000 consumers of a queue."""
    declare(target, queue)
    clients = []
    for _ in range(CONSUMERS):
        client = AmqpClient(target.host, target.amqp_port, WAIT_S)
        client.consume(queue, prefetch=100, no_ack=True)
        clients.append(client)
    return clients


def many_consumers(target: Target, pinging: Callable[[], object]) -> None:
    """A burst of 30,000 messages for 1,000 consumers of one queue."""
    clients = consumers_of(target, "shared")
    pinging()
    publish(target, "shared", BURST)
    time.sleep(QUIET_S)
    for client in clients:
        client.close()


def many_lost(target: Target, pinging: Callable[[], object]) -> None:
    """The 1,000 consumers of a queue are cut off at once."""
    clients = consumers_of(target, "lost")
    pinging()
    for client in clients:
        client.sock.close()


CASES: dict[str, Callable[[Target, Callable[[], object]], None]] = {
    case.__name__.replace("_", "-"): case
    for case in (
        nothing,
        disconnect,
        redelivery,
        nack_multiple,
        ack_multiple,
        delete_large,
        pipelined_deletes,
        large_body,
        many_consumers,
        many_lost,
    )
}


class WatchedBroker(SluiceMQ):
    """Takes messages of 40 MiB, and logs as JSON."""

    def configuration(self) -> dict[str, Any]:
        return super().configuration() | {
            "log": {"format": "json"},
            "queues": [{"name": "large", "limits": {"max_message_size": "64MB"}}],
        }

    def longest_stall(self) -> tuple[int, str]:
        """What it logged of its loop: the longest stall in ms, and what it did."""
        stalls = [(0, "")]
        for line in (self.directory / "output.log").read_text().splitlines():
            if '"loop.stalled"' in line:
                logged = json.loads(line)
                stalls.append((logged["ms"], logged["doing"]))
        return max(stalls)


def measure(name: str, directory: Path) -> Result:
    """One case on a broker of its own."""
    broker = WatchedBroker(directory)
    broker.start()
    try:
        with contextlib.ExitStack() as pinging:
            pinger = Pinger(broker.target)
            CASES[name](broker.target, lambda: pinging.enter_context(pinger))
            time.sleep(QUIET_S)  # what it left behind is worked off
        longest_stall_ms, doing = broker.longest_stall()
    finally:
        broker.clear()
    return Result(name, *pinger.result, longest_stall_ms, doing)


def table(results: list[Result]) -> str:
    """The results as a Markdown table, the rounds of a case together."""
    lines = [
        "| case | ping p50 | p99 | longest | the broker says | doing |",
        "|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(result.case for result in results):
        rounds = [result for result in results if result.case == name]
        worst = max(rounds, key=lambda result: result.stalled_ms)
        cells = [
            f"{statistics.median(result.p50_ms for result in rounds):.2f} ms",
            f"{statistics.median(result.p99_ms for result in rounds):.1f} ms",
            f"{statistics.median(result.longest_ms for result in rounds):.0f} ms",
            f"{statistics.median(result.stalled_ms for result in rounds):.0f} ms",
            worst.doing,
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=list(CASES), action="append")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="sluicemq-") as directory:
        for round_number in range(given.rounds):
            for name in given.only or CASES:
                results.append(measure(name, Path(directory) / f"{name}-{round_number}"))
                print(results[-1], flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
