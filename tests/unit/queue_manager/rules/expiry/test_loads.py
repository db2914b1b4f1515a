"""What expires or is too much: reading for that ends, and so do calls within calls."""

from __future__ import annotations

from typing import Any

import pytest

from broker.engine.removing import Removals
from broker.engine.shard import Shard
from config import limits
from queue_manager.options import PublishOptions
from queue_manager.outcomes import ACCEPTED
from queue_manager.policy import DROP_HEAD
from queue_manager.queue.queue import Queue
from storage.errors import StorageError
from storage.records import payload
from tests.memory_store import MemoryStore
from tests.model.harness import DEFAULT_POLICY, FakeClock, drive, load
from tests.model.leaks import all_rows
from tests.unit.queue_manager.managers import (
    NOW_MS,
    consume,
    make_manager,
    make_queue,
    publish,
    waiting_bytes,
)

TTL_MS = 10_000


def open_shard(store: MemoryStore | None = None, clock: FakeClock | None = None) -> tuple[Shard, FakeClock]:
    """A shard that keeps nothing in memory that is on the store."""
    clock = clock or FakeClock()
    shard = drive(
        Shard.open(
            store or MemoryStore(),
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
    plan.aim(shard.manager.publisher.route(plan.topic, clock.ms))
    shard.manager.publish(plan, [b"x"] * count, clock.ms)
    drive(shard.commit_once(everything=True))


def settle(shard: Shard, clock: FakeClock) -> int:
    """Fire the timers and perform loads until nothing is due; how many rounds that took."""
    for rounds in range(50):
        due_ms = shard.manager.context.timers.next_ms()
        if due_ms is not None and due_ms <= clock.ms:
            shard.manager.fire_timers(clock.ms)
        if not load(shard):
            return rounds
    raise AssertionError("timers and loads never end")


def make_groups(shard: Shard, queue: Queue, *names: str) -> None:
    for name in names:
        queue.group(name, "#")


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
    assert all(part.log.tail.first_offset > part.log.head_offset for part in queue.parts)
    settle(shard, clock)
    assert queue.ready_count() == 30
    for part in queue.parts:
        part.use_rules().on_timer(clock.ms)
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
    while manager.take_step(NOW_MS):
        pass
    assert last.ready_count() == 2
    assert all(manager.queues.find(f"q{number}").ready_count() == 1 for number in range(count))


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("dead_letter", ["", "dead"])
@pytest.mark.parametrize("priority_max", [0, 2])
def test_what_the_last_group_held_expires_without_it(
    crashes: bool, dead_letter: str, priority_max: int
) -> None:
    store = MemoryStore()
    shard, clock = open_shard(store)
    queue = make_queue(shard.manager, dead_letter=dead_letter, bytes_max=100, priority_max=priority_max)
    make_queue(shard.manager, "dead")
    fill(shard, clock, 1)
    fill(shard, clock, 2, ttl_ms=1_000)
    fill(shard, clock, 3, ttl_ms=5_000)
    _, sink = consume(shard.manager, queue, "a")
    shard.manager.dispatch(clock.ms)
    settle(shard, clock)
    shard.manager.dispatch(clock.ms)
    assert len(sink.claims) == 6
    clock.ms += 1_000
    settle(shard, clock)
    shard.manager.ack(sink.claims[-1:], clock.ms)
    queue.groups.delete("a", clock.ms, force=True)
    assert waiting_bytes(queue) == 5
    for _ in range(2):
        drive(shard.commit_once(everything=True))
        drive(shard.sweep_once())
        if crashes:
            shard, clock = open_shard(store := store.crash(), clock)
            queue = shard.manager.queues.find("jobs")
        settle(shard, clock)
        assert (queue.ready_count(), waiting_bytes(queue)) == (3, 3)
        assert shard.manager.queues.find("dead").ready_count() == (2 if dead_letter else 0)
    clock.ms += 4_000
    settle(shard, clock)
    assert (queue.ready_count(), waiting_bytes(queue)) == (1, 1)
    assert shard.manager.queues.find("dead").ready_count() == (4 if dead_letter else 0)
    _, sink = consume(shard.manager, queue, "a")
    shard.manager.dispatch(clock.ms)
    settle(shard, clock)
    shard.manager.dispatch(clock.ms)
    assert len(sink.claims) == 1
    shard.manager.ack(sink.claims, clock.ms)
    for _ in range(3):
        clock.ms += 61_000
        drive(shard.commit_once(everything=True))
        drive(shard.sweep_once())
    keys = [key for key, _ in all_rows(store) if key.startswith(payload.prefix())]
    assert len(keys) == (4 if dead_letter else 0)


def test_what_the_last_group_finished_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    shard, clock = open_shard(store)
    queue = make_queue(shard.manager, done_retention_ms=0)
    fill(shard, clock, 3)
    _, sink = consume(shard.manager, queue, "a")
    shard.manager.dispatch(clock.ms)
    settle(shard, clock)
    shard.manager.dispatch(clock.ms)
    shard.manager.ack(sink.claims, clock.ms)
    drive(shard.commit_once(everything=True))

    async def fail(*_: object) -> None:
        raise StorageError("gone")

    monkeypatch.setattr(Removals, "perform", fail)  # the end comes before the log is trimmed
    with pytest.raises(StorageError):
        drive(shard.sweep_once())
    assert queue.log.head_offset == 3
    queue.groups.delete("a", clock.ms, force=True)
    drive(shard.commit_once(everything=True))
    shard, clock = open_shard(store.crash(), clock)
    assert shard.manager.queues.find("jobs").ready_count() == 0


def test_what_the_last_group_finished_out_of_order_does_not_expire() -> None:
    shard, clock = open_shard()
    queue = make_queue(shard.manager, message_ttl_ms=TTL_MS, dead_letter="dead")
    dead = make_queue(shard.manager, "dead")
    fill(shard, clock, 4)
    _, sink = consume(shard.manager, queue, "a")
    shard.manager.dispatch(clock.ms)
    settle(shard, clock)
    shard.manager.dispatch(clock.ms)
    shard.manager.ack(sink.claims[1:3], clock.ms)
    queue.groups.delete("a", clock.ms, force=True)
    clock.ms += TTL_MS
    settle(shard, clock)
    assert (queue.ready_count(), dead.ready_count()) == (0, 2)
