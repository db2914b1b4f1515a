"""CPU time per message of the queue manager alone: publish, claim, ack, commit, without store or wire.

    python -m benchmarks.plain_path [--messages 400000] [--run 50] [--ephemeral] [--publish-only]

Takes CPU time, the best of several rounds, so that two checkouts can be compared on a noisy machine.
"""

from __future__ import annotations

import argparse
import time

from benchmarks.core import NOW_MS, Collector, new_manager
from broker.serve import tune_garbage_collection
from queue_manager.definitions import QueueDefinition
from queue_manager.policy import QueuePolicy

ROUNDS = 7
MESSAGES_PER_TURN = 500  # of those that publish only


def publish_ns_per_message(message_count: int, run_count: int) -> float:
    """One round of publishing alone to a durable queue that nobody consumes from."""
    policy = QueuePolicy(visibility_timeout_ms=30_000, message_bytes_max=1 << 20)
    manager = new_manager(policy)
    manager.queues.declare(QueueDefinition("jobs", durable=True, policy=policy), NOW_MS)
    plan = manager.plan("$queue/jobs", 0, b"", True)
    plan.aim(manager.publisher.route("$queue/jobs", NOW_MS))
    bodies = [b"x" * 100] * run_count
    spent_ns = 0
    for _ in range(message_count // MESSAGES_PER_TURN):
        begun = time.process_time_ns()
        for _ in range(MESSAGES_PER_TURN // run_count):
            manager.publish(plan, bodies, NOW_MS)
        spent_ns += time.process_time_ns() - begun
        commit = manager.seal(NOW_MS)
        if commit is not None:
            manager.committed(commit)
    return spent_ns / message_count


def cpu_ns_per_message(message_count: int, run_count: int, *, durable: bool) -> float:
    """One round."""
    policy = QueuePolicy(visibility_timeout_ms=30_000, message_bytes_max=1 << 20)
    manager = new_manager(policy)
    queue = manager.queues.declare(QueueDefinition("jobs", durable=durable, policy=policy), NOW_MS)
    sink = Collector()
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
    )
    plan = manager.plan("$queue/jobs", 0, b"", True)
    plan.aim(manager.publisher.route("$queue/jobs", NOW_MS))
    bodies = [b"x" * 100] * run_count
    now_ms = NOW_MS
    begun = time.process_time_ns()
    for turn in range(message_count // run_count):
        manager.publish(plan, bodies, now_ms)
        manager.dispatch(now_ms)
        manager.ack(sink.claims, now_ms)
        sink.claims = []
        if turn % 10 == 9:
            now_ms += 5
            commit = manager.seal(now_ms)
            if commit is not None:
                commit.write_ops()
                manager.committed(commit)
    return (time.process_time_ns() - begun) / message_count


def main() -> None:
    """Print the best round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--run", type=int, default=50, help="messages published at a time")
    parser.add_argument("--ephemeral", action="store_true")
    parser.add_argument("--publish-only", action="store_true")
    options = parser.parse_args()
    tune_garbage_collection()
    best = min(
        publish_ns_per_message(options.messages, options.run)
        if options.publish_only
        else cpu_ns_per_message(options.messages, options.run, durable=not options.ephemeral)
        for _ in range(ROUNDS)
    )
    print(f"{best:.0f} ns of CPU per message, published {options.run} at a time")


if __name__ == "__main__":
    main()
