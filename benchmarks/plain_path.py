"""CPU time per message of the queue manager alone: publish, claim, ack, commit, without store or wire.

    python -m benchmarks.plain_path [--messages 400000] [--run 50] [--ephemeral] [--publish-only]

Takes CPU time, the best of several rounds, so that two checkouts can be compared on a noisy machine.
"""

from __future__ import annotations

import time

from benchmarks import command_line
from broker.serve import tune_garbage_collection
from queue_manager.claims.claim import Claim, Consumer
from queue_manager.manager import QueueManager
from queue_manager.model import Message
from queue_manager.policy import QueuePolicy
from queue_manager.queue.queue import Queue
from queue_manager.routing.plan import PublishPlan
from queue_manager.spec_records import QueueDefinition
from storage.metadata_log import MetadataLog
from storage.records import message_ids
from storage.sequence import SequenceAllocator

NOW_MS = 1_767_225_600_000
POLICY = QueuePolicy(visibility_timeout_ms=30_000, message_bytes_max=1 << 20)
ROUNDS = 7
MESSAGES_PER_TURN = 500  # of those that publish only


class Collector:
    """A consumer that keeps what it was given until it settles."""

    def __init__(self) -> None:
        self.claims: list[Claim] = []

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        self.claims += claims or []
        return True

    def revoked(self, consumer: Consumer, claims: list[Claim]) -> None: ...

    def cancelled(self, consumer: Consumer, reason: str) -> None: ...


def manager_with_queue(*, durable: bool) -> tuple[QueueManager, Queue, PublishPlan]:
    """A queue manager with one queue, and the plan of a publish to it."""
    manager = QueueManager(
        default_policy=POLICY,
        auto_create=False,
        cache_bytes_max=1 << 26,
        log=MetadataLog(),
        message_ids=SequenceAllocator(message_ids.key()),
    )
    queue = manager.queues.declare(QueueDefinition("jobs", durable=durable, policy=POLICY), NOW_MS)
    plan = manager.plan("$queue/jobs", 0, b"", True)
    plan.aim(manager.publisher.route("$queue/jobs", NOW_MS))
    return manager, queue, plan


def publish_ns_per_message(message_count: int, run_count: int) -> float:
    """One round of publishing alone to a durable queue that nobody consumes from."""
    manager, _, plan = manager_with_queue(durable=True)
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
    manager, queue, plan = manager_with_queue(durable=durable)
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
    parser = command_line(__doc__)
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
