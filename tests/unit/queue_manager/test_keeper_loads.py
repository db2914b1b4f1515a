"""What expires or is too much: reading for that ends, and so do calls within calls."""

from __future__ import annotations

from typing import Any

import pytest

from broker.shard import Shard
from config import limits
from queue_manager.manager import ACCEPTED
from queue_manager.options import PublishOptions
from queue_manager.policy import DROP_HEAD
from queue_manager.queue import Queue
from storage.memory_store import MemoryStore
from tests.model.harness import DEFAULT_POLICY, FakeClock, drive, load
from tests.unit.queue_manager.managers import NOW_MS, make_manager, make_queue, publish

TTL_MS = 10_000


def open_shard() -> tuple[Shard, FakeClock]:
    """A shard that keeps nothing in memory that is on the store."""
    clock = FakeClock()
    shard = drive(
        Shard.open(
            MemoryStore(),
            clock,  # type: ignore[arg-type]
            default_policy=DEFAULT_POLICY,
            auto_create=False,
            cache_bytes_max=0,
        )
    )
    return shard, clock


def fill(shard: Shard, clock: FakeClock, count: int, **options: Any) -> None:
    """Publish so many messages, and have them leave memory."""
    plan = shard.manager.plan("$queue/jobs", 0, b"", True, PublishOptions(**options))
    plan.aim(shard.manager, shard.manager.route(plan.topic, clock.ms))
    shard.manager.publish(plan, [b"x"] * count, clock.ms)
    drive(shard.commit_once(everything=True))


def settle(shard: Shard, clock: FakeClock) -> int:
    """Fire the timers and perform loads until nothing is due; how many rounds that took."""
    for rounds in range(50):
        due_ms = shard.manager.timers.next_ms()
        if due_ms is not None and due_ms <= clock.ms:
            shard.manager.fire_timers(clock.ms)
        if not load(shard):
            return rounds
    raise AssertionError("timers and loads never end")


def make_groups(shard: Shard, queue: Queue, *names: str) -> None:
    for name in names:
        shard.manager.group(queue, name, "#")


@pytest.mark.parametrize("groups", [[], ["a"], ["a", "b"]])
@pytest.mark.parametrize("priority_max", [0, 2])
@pytest.mark.parametrize("load_max", [2, 100])
def test_reading_for_one_does_not_have_another_read_again(
    monkeypatch: pytest.MonkeyPatch, groups: list[str], priority_max: int, load_max: int
) -> None:
    monkeypatch.setattr(limits, "LOAD_MESSAGES_MAX", load_max)
    monkeypatch.setattr(limits, "TAIL_BYTES_PER_QUEUE_MIN", 0)
    monkeypatch.setattr(limits, "EXPIRY_READ_INTERVAL_MS", 0)
    shard, clock = open_shard()
    fields = {"message_ttl_ms": TTL_MS, "priority_max": priority_max}
    queue = make_queue(shard.manager, durable=True, **fields)
    make_groups(shard, queue, *groups)
    for priority in range(3):
        fill(shard, clock, 5, priority=priority)
    clock.ms += TTL_MS - 1
    for priority in range(3):
        fill(shard, clock, 5, priority=priority)
    assert all(part.tail.first_offset > part.head_offset for part in queue.parts())
    settle(shard, clock)
    assert queue.ready_count() == 30
    for part in queue.parts():
        part.keep().on_timer(clock.ms)
    settle(shard, clock)
    clock.ms += 1
    settle(shard, clock)
    assert queue.ready_count() == 15
    clock.ms += TTL_MS
    settle(shard, clock)
    assert queue.ready_count() == 0


def test_a_long_row_of_dead_letter_queues_is_gone_through_in_steps() -> None:
    manager = make_manager()
    count = 300  # more than calls can be nested
    for number in range(count):
        make_queue(manager, f"q{number}", depth_max=1, overflow=DROP_HEAD, dead_letter=f"q{number + 1}")
    last = make_queue(manager, f"q{count}")
    for _ in range(count + 2):
        assert publish(manager, 1, "$queue/q0") == ACCEPTED
    for _ in range(count):
        manager.fire_timers(NOW_MS)
    assert last.ready_count() == 2
    assert all(manager.find(f"q{number}").ready_count() == 1 for number in range(count))
