"""CPU cost of selectors: evaluations alone, and messages through a group: `python -m benchmarks.selectors`.

The second table is the queue manager alone, as in `benchmarks.plain_path`: publish, evaluate, claim, ack,
commit, without store or wire. Each of N consumers has a selector of its own and each message is for one of
them; with "scan" no selector has an equality by which its messages are found, so that each is asked about
each message.
"alike": all messages of a region have the same properties; otherwise each message has properties of its own.
"""

from __future__ import annotations

import argparse
import time

from benchmarks.core import NOW_MS, Collector, new_manager
from broker.properties.filter_fields import fields_of
from protocols.amqp091.content import Properties, encode_properties
from queue_manager.definitions import QueueDefinition
from queue_manager.filters import Selector
from queue_manager.filters.consumer_filter import consumer_filter
from queue_manager.policy import QueuePolicy
from storage.envelope import PROPERTIES_AMQP, EnvelopeTemplate

ROUNDS = 5
TEXT = "region = 'eu' AND qty > 10"
TARGET_PER_S = 200_000


def properties(region: int, number: int) -> bytes:
    """An AMQP content header with two headers and a message ID."""
    source = Properties()
    source.delivery_mode = 2
    source.message_id = str(number)
    return encode_properties(source, [("region", f"r{region}"), ("qty", 11)])


def evaluations_per_s() -> tuple[float, float]:
    """(of decoded fields, decoding included) of the selector, one message after the other."""
    matches = Selector(TEXT, "jms").matches
    source = Properties()
    source.delivery_mode = 2
    template = EnvelopeTemplate(
        "orders", PROPERTIES_AMQP, encode_properties(source, [("region", "eu"), ("qty", 11)])
    )
    fields = fields_of(template)
    count = 200_000
    begun = time.process_time()
    for _ in range(count):
        matches(fields)
    plain_s = time.process_time() - begun
    begun = time.process_time()
    for _ in range(count // 10):
        matches(fields_of(template))
    return count / plain_s, count / 10 / (time.process_time() - begun)


def messages_per_s(selector_count: int, message_count: int, *, scan: bool, alike: bool) -> float:
    """One round of messages through a group."""
    policy = QueuePolicy(visibility_timeout_ms=30_000, message_bytes_max=1 << 20)
    manager = new_manager(policy)
    manager.context.fields.read_by(fields_of)
    queue = manager.queues.declare(QueueDefinition("jobs", durable=True, policy=policy), NOW_MS)
    sinks = [Collector() for _ in range(selector_count)]
    for index, sink in enumerate(sinks):
        text = f"region IN ('r{index}') AND qty > 10" if scan else f"region = 'r{index}' AND qty > 10"
        manager.consumption.subscribe(
            queue,
            "",
            "#",
            sink,
            consumer_id="c",
            credit_max=10_000,
            no_ack=False,
            exclusive=False,
            lease_ms=30_000,
            wanted=consumer_filter(text, {}),
        )
    plans = []
    for index in range(min(selector_count, message_count) if alike else message_count):
        plan = manager.plan(
            "$queue/jobs", PROPERTIES_AMQP, properties(index % selector_count, 0 if alike else index), True
        )
        plan.aim_at((queue,), 1)
        plans.append(plan)
    bodies = [b"x" * 100]
    now_ms = NOW_MS
    settled = 0
    begun = time.process_time()
    for turn in range(message_count):
        manager.publish(plans[turn % len(plans)], bodies, now_ms)
        if turn % 50 != 49:
            continue
        manager.dispatch(now_ms)
        for sink in sinks:
            if sink.claims:
                settled += len(sink.claims)
                manager.ack(sink.claims, now_ms)
                sink.claims = []
        if turn % 500 == 499:
            now_ms += 5
            commit = manager.seal(now_ms)
            if commit is not None:
                commit.write_ops()
                manager.committed(commit)
    cpu_s = time.process_time() - begun
    assert settled >= message_count - 50
    return message_count / cpu_s


def main() -> None:
    """Print the best of some rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    plain, decoded = map(max, zip(*(evaluations_per_s() for _ in range(options.rounds)), strict=True))
    print(f"{plain:12,.0f} evaluations/s of {TEXT}  (target {TARGET_PER_S:,})")
    print(f"{decoded:12,.0f} evaluations/s with the properties decoded each time; messages/s:")
    print(f"{'selectors':>10} {'look-up, alike':>16} {'look-up':>12} {'scan, alike':>14} {'scan':>12}")
    for selector_count in (1, 10, 100):
        rates = [
            max(
                messages_per_s(selector_count, options.messages, scan=scan, alike=alike)
                for _ in range(options.rounds)
            )
            for scan, alike in ((False, True), (False, False), (True, True), (True, False))
        ]
        print(f"{selector_count:10} {rates[0]:16,.0f} {rates[1]:12,.0f} {rates[2]:14,.0f} {rates[3]:12,.0f}")


if __name__ == "__main__":
    main()
