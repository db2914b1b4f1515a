"""A million messages for later: memory while they wait, start with them, and how exactly they come.

    python -m benchmarks.scheduled [--messages 1000000] [--timed 20000] [--spread-s 10]

Publishes `--messages` that are due in a year, weighs the broker, kills it, starts it again, and publishes
`--timed` that are due at single times within `--spread-s` seconds. Reports how late those came and whether
any came early or out of order.
"""

from __future__ import annotations

import argparse
import json
import struct
import tempfile
import threading
import time
from pathlib import Path
from statistics import median, quantiles

from pamqp import commands, frame, header

from benchmarks.brokers import SluiceMQ
from benchmarks.load import amqp_wire, process_stat
from benchmarks.load.target import Target

QUEUE = "scheduled"
YEAR_MS = 365 * 86_400_000
BATCH = 1_000
BODY = b"x" * 92  # after the 8 bytes that say when it is due
LEAD_MS = 2_000
CHANNEL = 1


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def frames_of(due_ms: int) -> bytes:
    """One persistent publish with `deliver-at`; the body begins with the same time."""
    properties = commands.Basic.Properties(delivery_mode=2, headers={"deliver-at": due_ms})
    body = struct.pack(">Q", due_ms) + BODY
    return (
        frame.marshal(commands.Basic.Publish(exchange="", routing_key=QUEUE), CHANNEL)
        + frame.marshal(header.ContentHeader(0, len(body), properties), CHANNEL)
        + struct.pack(">BHI", 3, CHANNEL, len(body))
        + body
        + b"\xce"
    )


def publish(target: Target, dues_ms: list[int]) -> float:
    """Publish one message per time; gives messages per second, confirmed."""
    client = amqp_wire.AmqpClient(target.host, target.amqp_port, wait_s=60)
    client.declare_queue(QUEUE, durable=True)
    client.select_confirms()
    confirms = amqp_wire.ConfirmCounter()
    began = time.monotonic()
    for start in range(0, len(dues_ms), BATCH):
        client.sock.sendall(b"".join(map(frames_of, dues_ms[start : start + BATCH])))
        while confirms.confirmed < start - 3 * BATCH:
            confirms.feed(client.sock.recv(1 << 16))
    while confirms.confirmed < len(dues_ms):
        confirms.feed(client.sock.recv(1 << 16))
    rate = len(dues_ms) / (time.monotonic() - began)
    client.close()
    return rate


def collect(target: Target, count: int, found: list[tuple[int, int]]) -> None:
    """Append (due, came) of `count` deliveries in the order they come, in ms."""
    client = amqp_wire.AmqpClient(target.host, target.amqp_port, wait_s=120)
    client.consume(QUEUE, prefetch=0, no_ack=True)
    counter = amqp_wire.DeliveryCounter(client.take_buffered())
    while len(found) < count:
        counter.receive(client.sock, keep_bodies=8)
        came_ms = now_ms()
        found += [(struct.unpack(">Q", body)[0], came_ms) for body in counter.last_bodies]
        counter.last_bodies = []
    client.close()


def time_deliveries(target: Target, count: int, spread_s: float) -> dict[str, float]:
    first_ms = now_ms() + LEAD_MS + count // 10
    dues_ms = [first_ms + int(index * 7_919 % count * spread_s * 1_000 / count) for index in range(count)]
    found: list[tuple[int, int]] = []
    collecting = threading.Thread(target=collect, args=(target, count, found))
    collecting.start()
    rate = publish(target, dues_ms)
    if now_ms() > first_ms:
        raise SystemExit("publishing took longer than the lead: fewer --timed")
    collecting.join()
    late = [came - due for due, came in found]
    return {
        "publish_rate": round(rate),
        "late_p50_ms": median(late),
        "late_p99_ms": quantiles(late, n=100)[98],
        "late_max_ms": max(late),
        "early": sum(1 for one in late if one < 0),
        "out_of_order": sum(1 for one, two in zip(found, found[1:], strict=False) if two[0] < one[0]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--timed", type=int, default=20_000)
    parser.add_argument("--spread-s", type=float, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluicemq-") as directory:
        broker = SluiceMQ(Path(directory))
        broker.start()
        try:
            report = measure(broker, given.messages, given.timed, given.spread_s)
        finally:
            broker.stop()
    print(json.dumps(report, indent=2))


def measure(broker: SluiceMQ, messages: int, timed: int, spread_s: float) -> dict[str, object]:
    year = now_ms() + YEAR_MS
    idle = process_stat.rss_bytes(broker.target.pid)
    rate = publish(broker.target, [year + index for index in range(messages)])
    time.sleep(1)
    waiting = process_stat.rss_bytes(broker.target.pid)
    broker.stop(kill=True)
    began = time.monotonic()
    broker.start()
    restarted_s = time.monotonic() - began
    time.sleep(3)
    return {
        "messages": messages,
        "publish_rate": round(rate),
        "rss_idle_mb": idle // 1_000_000,
        "rss_waiting_mb": waiting // 1_000_000,
        "restart_s": round(restarted_s, 2),
        "rss_restarted_mb": process_stat.rss_bytes(broker.target.pid) // 1_000_000,
        "timed": time_deliveries(broker.target, timed, spread_s),
    }


if __name__ == "__main__":
    main()
