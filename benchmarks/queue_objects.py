"""What a queue takes in Python objects, and what it costs to declare one: the core alone.

    python -m benchmarks.queue_objects [--queues 2000]

For queues without groups, with their default group, and with that and a message. Processor time is the least
of several rounds.
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from collections.abc import Callable

from benchmarks.core import NOW_MS, new_manager
from broker.serve import tune_garbage_collection
from queue_manager.definitions import QueueDefinition
from queue_manager.manager import QueueManager
from queue_manager.policy import QueuePolicy
from queue_manager.queue.queue import Queue

ROUNDS = 5
LONG_AFTER_MS = NOW_MS + 3_600_000
POLICY = QueuePolicy(visibility_timeout_ms=30_000, message_bytes_max=1 << 20)


def commit_all(manager: QueueManager) -> None:
    """Write whatever is to be written."""
    while (commit := manager.seal(LONG_AFTER_MS)) is not None:
        commit.write_ops()
        manager.committed(commit)


class Queues:
    """Queues of one manager that all have been put to the same use."""

    def __init__(self, use: Callable[[QueueManager, Queue], None]) -> None:
        self._manager = new_manager(POLICY)
        self._use = use
        self._count = 0

    def declare(self, count: int) -> None:
        """Declare some more."""
        for number in range(self._count, self._count + count):
            definition = QueueDefinition(f"queue-{number:08}", durable=True, policy=POLICY)
            self._use(self._manager, self._manager.queues.declare(definition, NOW_MS))
        self._count += count
        commit_all(self._manager)


def leave_alone(manager: QueueManager, queue: Queue) -> None:
    """It is declared, and nothing else."""


def give_group(manager: QueueManager, queue: Queue) -> None:
    """It gets its default group."""
    queue.group("")


def give_message(manager: QueueManager, queue: Queue) -> None:
    """It gets its default group and a message."""
    queue.group("")
    address = f"$queue/{queue.name}"
    plan = manager.plan(address, 0, b"", True)
    plan.aim(manager.publisher.route(address, NOW_MS))
    manager.publish(plan, [b"x" * 100], NOW_MS)


def measure(use: Callable[[QueueManager, Queue], None], count: int) -> tuple[float, float]:
    """Bytes and microseconds a queue."""
    queues = Queues(use)
    queues.declare(100)
    best_s = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time()
        queues.declare(count)
        best_s = min(best_s, time.process_time() - begun)
    gc.collect()
    tracemalloc.start()
    queues.declare(count)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / count, best_s / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queues", type=int, default=2_000)
    count = parser.parse_args().queues
    tune_garbage_collection()
    for title, use in (
        ("without groups", leave_alone),
        ("with its default group", give_group),
        ("with that and a message", give_message),
    ):
        size, spent_us = measure(use, count)
        print(f"a queue {title}: {size:.0f} B of Python objects, {spent_us:.1f} us of the processor")


if __name__ == "__main__":
    main()
