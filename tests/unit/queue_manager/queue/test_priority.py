"""Queues with priorities: what is read back first, and what their logs are to others."""

from __future__ import annotations

import pytest

from broker.engine.shard import Shard
from queue_manager.errors import PreconditionFailed, QueueNotFound
from queue_manager.log.levels import level_name
from queue_manager.manager import QueueManager
from queue_manager.options import PublishOptions
from queue_manager.policy import QueuePolicy
from queue_manager.spec_records import QueueDefinition
from tests.memory_store import MemoryStore
from tests.model.harness import FakeClock, drive
from tests.unit.queue_manager.managers import NOW_MS, Sink, consume, make_manager, make_queue

POLICY = QueuePolicy(visibility_timeout_ms=30_000, message_bytes_max=100, priority_max=2)


def publish(manager: QueueManager, name: str, priority: int) -> None:
    plan = manager.plan(name, 0, b"", True, PublishOptions(priority=priority))
    queue = manager.queues.find(name)
    plan.aim_at((queue,), int(queue.durable))
    manager.publish(plan, [b"x"], NOW_MS)


def open_shard(store: MemoryStore) -> Shard:
    return drive(
        Shard.open(
            store,
            FakeClock(),  # type: ignore[arg-type]
            default_policy=POLICY,
            auto_create=False,
            cache_bytes_max=0,
        )
    )


def test_less_urgent_messages_wait_while_urgent_ones_are_read_back() -> None:
    store = MemoryStore()
    shard = open_shard(store)
    queue = shard.manager.queues.declare(QueueDefinition("jobs", durable=True, policy=POLICY), NOW_MS)
    queue.group("")
    publish(shard.manager, "jobs", 2)
    drive(shard.commit_once(everything=True))
    shard = open_shard(store.crash())
    publish(shard.manager, "jobs", 0)  # this one is in memory
    _, sink = consume(shard.manager, shard.manager.queues.find("jobs"))
    shard.manager.dispatch(NOW_MS)
    assert sink.offsets == []
    drive(shard.load_once())
    assert sink.offsets == [2 << 56, 0]


def test_the_log_of_a_priority_is_nobodys_queue() -> None:
    manager = make_manager()
    make_queue(manager, "jobs", priority_max=2)
    assert manager.queues.get(level_name("jobs", 1)) is None
    with pytest.raises(QueueNotFound):
        manager.queues.find(level_name("jobs", 1))


def test_the_highest_priority_cannot_change() -> None:
    manager = make_manager()
    queue = make_queue(manager, "jobs", priority_max=2)
    with pytest.raises(PreconditionFailed, match="priorities up to 2"):
        manager.queues.redefine(
            queue, QueueDefinition("jobs", durable=True, policy=manager.queues.default_policy)
        )


def test_the_single_active_consumer_is_one_for_all_priorities() -> None:
    manager = make_manager()
    queue = make_queue(manager, "jobs", priority_max=2, single_active=True)
    _, first = consume(manager, queue)
    _, second = consume(manager, queue)
    for priority in (0, 2, 1):
        publish(manager, "jobs", priority)
        manager.dispatch(NOW_MS)
    assert (len(first.offsets), second.offsets) == (3, [])


def test_a_sink_is_told_once_that_its_queue_is_gone() -> None:
    manager = make_manager()
    queue = make_queue(manager, "jobs", priority_max=2)
    _, sink = consume(manager, queue)
    publish(manager, "jobs", 1)
    manager.queues.delete(queue, NOW_MS)
    assert len(sink.cancelled_reasons) == 1
    assert list(manager.queues) == []
    assert isinstance(sink, Sink)
