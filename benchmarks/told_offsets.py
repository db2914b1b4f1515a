"""What it costs that deliveries which tell offsets wait until their messages are durable.

    python -m benchmarks.told_offsets [--messages 20000] [--rounds 3]

AMQP in, durable, confirmed; an MQTT 5 subscriber out. Once one message after the other, once in bursts: the
latency from the publish to the (first) delivery, and the broker's processor time for each message. Beside it
a broker that delivers at once. Rounds take turns; the least of them counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.brokers import SluiceMQ
from benchmarks.load import amqp_wire, process_stat
from benchmarks.load.mqtt_wire import encode_packet, encode_string
from benchmarks.load.sockets import connect

QUEUE: Final = "told"
BURST: Final = 500
AT_ONCE: Final = """
from queue_manager.cursor.backlog import Backlog
Backlog.wait = lambda self: None
from broker.__main__ import main
main()
"""


class AtOnce(SluiceMQ):
    """A broker that shows offsets before they are durable."""

    def command(self) -> list[str]:
        return [sys.executable, "-c", AT_ONCE, *super().command()[3:]]


class Subscriber:
    """An MQTT 5 client that acknowledges what it is given."""

    def __init__(self, port: int) -> None:
        self._sock = connect("127.0.0.1", port, 10)
        connecting = encode_string("MQTT") + b"\x05\x02\x00\x3c\x00" + encode_string("subscriber")
        self._sock.sendall(encode_packet(0x10, connecting))
        self._buffer = b""
        self._packets = self._read()
        next(self._packets)
        self._sock.sendall(encode_packet(0x82, b"\x00\x01\x00" + encode_string(f"$queue/{QUEUE}") + b"\x01"))
        next(self._packets)

    def take(self, count: int) -> float:
        """Take so many messages; gives when the first came."""
        first = 0.0
        answers = []
        for _ in range(count):
            kind, body = next(self._packets)
            first = first or time.monotonic()
            if kind >> 4 == 3:
                topic_bytes = int.from_bytes(body[:2], "big")
                answers.append(b"\x40\x02" + body[2 + topic_bytes : 4 + topic_bytes])
        self._sock.sendall(b"".join(answers))
        return first

    def _read(self) -> Iterator[tuple[int, bytes]]:
        while True:
            length, at = 0, 1
            while at < len(self._buffer):
                length |= (self._buffer[at] & 0x7F) << 7 * (at - 1)
                at += 1
                if self._buffer[at - 1] < 0x80:
                    break
            if at > 1 and self._buffer[at - 1] < 0x80 and len(self._buffer) >= at + length:
                kind, body = self._buffer[0], self._buffer[at : at + length]
                self._buffer = self._buffer[at + length :]
                yield kind, body
            else:
                self._buffer += self._sock.recv(1 << 16)


class Publisher:
    """An AMQP client whose publishes are confirmed."""

    def __init__(self, port: int) -> None:
        self._client = amqp_wire.AmqpClient("127.0.0.1", port)
        self._client.declare_queue(QUEUE, durable=True)
        self._client.select_confirms()
        self._confirms = amqp_wire.ConfirmCounter()
        self._sent = 0

    def send(self, count: int) -> float:
        """Send so many messages; gives when."""
        frames = amqp_wire.publish_frames(QUEUE, struct.pack(">Q", self._sent).ljust(100), delivery_mode=2)
        self._sent += count
        begun = time.monotonic()
        self._client.sock.sendall(frames * count)
        return begun

    def wait(self) -> None:
        """Return once all are confirmed."""
        while self._confirms.confirmed < self._sent:
            self._confirms.feed(self._client.sock.recv(1 << 16))


def measure(broker: SluiceMQ, messages: int) -> dict[str, float]:
    """Milliseconds, and microseconds of processor time for each message."""
    publisher, subscriber = Publisher(broker.amqp_port), Subscriber(broker.mqtt_port)
    report = {}
    for name, burst in (("one", 1), ("burst", BURST)):
        latencies = []
        before = process_stat.cpu_s(broker.pid)
        for _ in range(messages // 10 if burst == 1 else messages // burst):
            begun = publisher.send(burst)
            latencies.append(1e3 * (subscriber.take(burst) - begun))
            publisher.wait()
        count = burst * len(latencies)
        report[f"{name}_p50_ms"] = round(statistics.median(latencies), 3)
        report[f"{name}_us"] = round(1e6 * (process_stat.cpu_s(broker.pid) - before) / count, 1)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    reports: dict[str, list[dict[str, float]]] = {"durable": [], "at once": []}
    for _ in range(given.rounds):
        for name, made in (("durable", SluiceMQ), ("at once", AtOnce)):
            with tempfile.TemporaryDirectory() as directory:
                broker = made(Path(directory))
                broker.start()
                try:
                    reports[name].append(measure(broker, given.messages))
                finally:
                    broker.stop()
    for name, rounds in reports.items():
        print(name, json.dumps({key: min(each[key] for each in rounds) for key in rounds[0]}))


if __name__ == "__main__":
    main()
