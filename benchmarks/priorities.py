"""A backlog of mixed priorities: how fast it is taken in and given out, beside a queue without priorities.

    python -m benchmarks.priorities [--messages 300000] [--priorities 9] [--rounds 3]

Rounds alternate between the two queues; the medians are reported, and how many messages came out of order.
"""

from __future__ import annotations

import json
import random
import time
from statistics import median
from typing import Any

from benchmarks import command_line
from benchmarks.brokers import SluiceMQ, started
from benchmarks.load import amqp
from benchmarks.load.counters import DeliveryCounter
from benchmarks.load.target import Target
from broker.commands.bench_clients import CHANNEL
from protocols.amqp091.client import encode_publish
from protocols.amqp091.content import Properties, encode_properties
from protocols.amqp091.hot import encode_ack

BODY = b"x" * 99  # after the byte that says how urgent it is
WINDOW = 4_000


def fill(target: Target, queue: str, priorities: list[int], arguments: dict[str, Any]) -> float:
    """Publish one message per priority; gives messages per second, confirmed."""
    properties = [Properties(delivery_mode=2, priority=each) for each in range(max(priorities) + 1)]
    frames = [
        encode_publish(queue, bytes((priority,)) + BODY, encode_properties(each))
        for priority, each in enumerate(properties)
    ]
    target.declare(queue, arguments=arguments)
    return amqp.publish_all(target, (frames[priority] for priority in priorities), WINDOW)


def drain(target: Target, queue: str, count: int) -> tuple[float, int]:
    """Consume everything; gives messages per second, and how many came after less urgent ones."""
    client = target.amqp(60)
    began = time.monotonic()
    counter = DeliveryCounter(client.consume(queue, 2_000))
    counter.scan(keep_bodies=1)
    came = counter.last_bodies
    acked = 0
    while counter.count < count:
        counter.last_bodies = []
        counter.receive(client.sock, keep_bodies=1)
        came += counter.last_bodies
        if counter.count - acked >= 500 or counter.count == count:
            acked = counter.count
            client.sock.sendall(encode_ack(CHANNEL, acked, True))
    rate = count / (time.monotonic() - began)
    client.delete(queue)
    client.close()
    return rate, sum(1 for one, two in zip(came, came[1:], strict=False) if two > one)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--priorities", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    priorities = random.Random(1).choices(range(given.priorities + 1), k=given.messages)
    kinds = {"with": {"x-max-priority": given.priorities}, "without": {}}
    rates: dict[str, dict[str, list[float]]] = {kind: {"publish": [], "drain": []} for kind in kinds}
    out_of_order = 0
    with started(SluiceMQ) as broker:
        for number in range(given.rounds):
            for kind, arguments in kinds.items():
                queue = f"{kind}-{number}"
                rates[kind]["publish"].append(fill(broker.target, queue, priorities, arguments))
                rate, wrong = drain(broker.target, queue, given.messages)
                rates[kind]["drain"].append(rate)
                out_of_order += wrong if kind == "with" else 0
    report = {
        kind: {phase: round(median(found)) for phase, found in phases.items()}
        for kind, phases in rates.items()
    }
    print(json.dumps({"messages": given.messages, "rates": report, "out_of_order": out_of_order}, indent=2))


if __name__ == "__main__":
    main()
