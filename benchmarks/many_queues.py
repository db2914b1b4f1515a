"""Many durable queues on one broker: how fast they are declared, what they cost, how long a restart takes.

    python -m benchmarks.many_queues [--queues 10000] [--clients 16]

Declares them over AMQP, publishes one message to each, weighs the broker, watches what it does while nobody
asks for anything, kills it and starts it again.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks import command_line
from benchmarks.brokers import SluiceMQ, started
from benchmarks.load import amqp, process_stat
from benchmarks.load.target import Target
from protocols.amqp091.client import PERSISTENT, encode_publish

IDLE_S = 5.0
BODY = b"x" * 100


def declare_all(target: Target, names: list[str], clients: int) -> float:
    """Queues declared per second, by `clients` at a time, each waiting for one answer after the other."""
    began = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(lambda first: target.declare(*names[first::clients]), range(clients)))
    return len(names) / (time.monotonic() - began)


def idle_cpu_percent(target: Target) -> float:
    """CPU the broker takes while nobody asks for anything."""
    before = process_stat.cpu_s(target.pid)
    time.sleep(IDLE_S)
    return 100 * (process_stat.cpu_s(target.pid) - before) / IDLE_S


def measure(broker: SluiceMQ, count: int, clients: int) -> dict[str, object]:
    names = [f"queue-{number}" for number in range(count)]
    empty = process_stat.rss_bytes(broker.target.pid)
    declare_rate = declare_all(broker.target, names, clients)
    declared = process_stat.rss_bytes(broker.target.pid)
    publish_rate = amqp.publish_all(
        broker.target, (encode_publish(name, BODY, PERSISTENT) for name in names), len(names)
    )
    time.sleep(2)
    report: dict[str, object] = {
        "queues": count,
        "declared_per_s": round(declare_rate),
        "published_per_s": round(publish_rate),
        "rss_empty_mb": empty // 1_000_000,
        "rss_declared_mb": declared // 1_000_000,
        "idle_cpu_percent": round(idle_cpu_percent(broker.target), 1),
    }
    broker.stop(kill=True)
    report["restart_s"] = round(broker.start(), 2)
    time.sleep(2)
    report["rss_restarted_mb"] = process_stat.rss_bytes(broker.target.pid) // 1_000_000
    report["idle_cpu_restarted_percent"] = round(idle_cpu_percent(broker.target), 1)
    return report


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=16)
    given = parser.parse_args()
    with started(SluiceMQ) as broker:
        report = measure(broker, given.queues, given.clients)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
