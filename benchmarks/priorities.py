"""A backlog of mixed priorities: how fast it is taken in and given out, beside a queue without priorities.

    python -m benchmarks.priorities [--messages 300000] [--priorities 9] [--rounds 3]

Rounds alternate between the two queues; the medians are reported, and how many messages came out of order.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import tempfile
import time
from pathlib import Path
from statistics import median

from pamqp import commands, frame, header

from benchmarks.brokers import SluiceMQ
from benchmarks.load import amqp_wire
from benchmarks.load.target import Target

BODY = b"x" * 99  # after the byte that says how urgent it is
BATCH = 500
CHANNEL = 1


def frames_of(queue: str, priority: int) -> bytes:
    """One persistent publish; the body begins with its priority."""
    properties = commands.Basic.Properties(delivery_mode=2, priority=priority)
    body = bytes((priority,)) + BODY
    return (
        frame.marshal(commands.Basic.Publish(exchange="", routing_key=queue), CHANNEL)
        + frame.marshal(header.ContentHeader(0, len(body), properties), CHANNEL)
        + struct.pack(">BHI", 3, CHANNEL, len(body))
        + body
        + b"\xce"
    )


def fill(target: Target, queue: str, priorities: list[int], arguments: dict[str, int]) -> float:
    """Publish one message per priority; gives messages per second, confirmed."""
    frames = [frames_of(queue, priority) for priority in range(max(priorities) + 1)]
    client = amqp_wire.AmqpClient(target.host, target.amqp_port, wait_s=60)
    client.declare_queue(queue, durable=True, arguments=arguments)
    client.select_confirms()
    confirms = amqp_wire.ConfirmCounter()
    began = time.monotonic()
    for start in range(0, len(priorities), BATCH):
        client.sock.sendall(b"".join([frames[p] for p in priorities[start : start + BATCH]]))
        while confirms.confirmed < start - 8 * BATCH:
            confirms.feed(client.sock.recv(1 << 16))
    while confirms.confirmed < len(priorities):
        confirms.feed(client.sock.recv(1 << 16))
    rate = len(priorities) / (time.monotonic() - began)
    client.close()
    return rate


def drain(target: Target, queue: str, count: int) -> tuple[float, int]:
    """Consume everything; gives messages per second, and how many came after less urgent ones."""
    client = amqp_wire.AmqpClient(target.host, target.amqp_port, wait_s=60)
    began = time.monotonic()
    client.consume(queue, prefetch=2_000, no_ack=False)
    counter = amqp_wire.DeliveryCounter(client.take_buffered())
    counter.scan(keep_bodies=1)
    came = counter.last_bodies
    acked = 0
    while counter.count < count:
        counter.last_bodies = []
        counter.receive(client.sock, keep_bodies=1)
        came += counter.last_bodies
        if counter.count - acked >= 500 or counter.count == count:
            acked = counter.count
            client.sock.sendall(amqp_wire.encode_ack_multiple(acked))
    rate = count / (time.monotonic() - began)
    client.close()
    client = amqp_wire.AmqpClient(target.host, target.amqp_port)
    client.delete_queue(queue)
    client.close()
    return rate, sum(1 for one, two in zip(came, came[1:], strict=False) if two > one)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--priorities", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    priorities = random.Random(1).choices(range(given.priorities + 1), k=given.messages)
    kinds = {"with": {"x-max-priority": given.priorities}, "without": {}}
    rates: dict[str, dict[str, list[float]]] = {kind: {"publish": [], "drain": []} for kind in kinds}
    out_of_order = 0
    with tempfile.TemporaryDirectory(prefix="sluicemq-") as directory:
        broker = SluiceMQ(Path(directory))
        broker.start()
        try:
            for number in range(given.rounds):
                for kind, arguments in kinds.items():
                    queue = f"{kind}-{number}"
                    rates[kind]["publish"].append(fill(broker.target, queue, priorities, arguments))
                    rate, wrong = drain(broker.target, queue, given.messages)
                    rates[kind]["drain"].append(rate)
                    out_of_order += wrong if kind == "with" else 0
        finally:
            broker.stop()
    report = {
        kind: {phase: round(median(found)) for phase, found in phases.items()}
        for kind, phases in rates.items()
    }
    print(json.dumps({"messages": given.messages, "rates": report, "out_of_order": out_of_order}, indent=2))


if __name__ == "__main__":
    main()
