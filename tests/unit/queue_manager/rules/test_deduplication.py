"""Publishes with identities, seen by the queue manager: refused producers, full tables."""

from __future__ import annotations

import struct

import pytest

from config import limits
from queue_manager.manager import QueueManager
from queue_manager.options import PublishOptions
from queue_manager.outcomes import (
    ACCEPTED,
    REFUSED_DEPTH,
    REFUSED_IDENTITY,
    REFUSED_IN_PART,
    REFUSED_ORDER,
    REFUSED_WINDOW,
)
from queue_manager.spec_records import QueueDefinition
from storage.records import NONE_TAKEN, identified, producer
from tests.unit.queue_manager.managers import NOW_MS, make_manager, make_policy, make_queue


def publish(manager: QueueManager, body: bytes, now_ms: int = NOW_MS, **options: object) -> int:
    plan = manager.plan("$queue/jobs", 0, b"", True, PublishOptions(**options))  # type: ignore[arg-type]
    plan.aim(manager.publisher.route("$queue/jobs", now_ms))
    return manager.publish(plan, [body], now_ms)


def test_what_follows_a_refused_publish_waits_for_it() -> None:
    manager = make_manager()
    queue = make_queue(manager, "jobs", depth_max=1)
    assert publish(manager, b"1", producer_id="p", producer_sequence=1) == ACCEPTED
    assert publish(manager, b"2", producer_id="p", producer_sequence=2) == REFUSED_DEPTH
    queue.purge(NOW_MS)
    assert publish(manager, b"3", producer_id="p", producer_sequence=3) == REFUSED_ORDER
    assert publish(manager, b"2", producer_id="p", producer_sequence=2) == ACCEPTED
    queue.purge(NOW_MS)
    assert publish(manager, b"3", producer_id="p", producer_sequence=3) == ACCEPTED


def test_a_refused_publish_is_written_down() -> None:
    manager = make_manager()
    queue = make_queue(manager, "jobs", depth_max=1)
    key = producer.key("jobs", "p")
    publish(manager, b"1")
    assert publish(manager, b"7", producer_id="p", producer_sequence=7) == REFUSED_DEPTH
    assert producer.decode(manager.context.commit.puts[key]) == (NONE_TAKEN, NOW_MS, bytes(8), 7)
    assert publish(manager, b"5", NOW_MS + 1, producer_id="p", producer_sequence=5) == REFUSED_DEPTH
    assert publish(manager, b"6", NOW_MS + 1, producer_id="p", producer_sequence=6) == REFUSED_ORDER
    assert producer.decode(manager.context.commit.puts[key]) == (NONE_TAKEN, NOW_MS + 1, bytes(8), 5)
    queue.purge(NOW_MS)
    assert publish(manager, b"5", producer_id="p", producer_sequence=5) == ACCEPTED
    assert producer.decode(manager.context.commit.puts[key]).refused is None


@pytest.mark.parametrize(
    "identity",
    [{"deduplication_id": "i"}, {"producer_id": "p", "producer_sequence": 7}],
    ids=["id", "sequence"],
)
def test_a_publish_sent_again_goes_to_the_queues_that_were_full(identity: dict[str, object]) -> None:
    manager = make_manager()
    for name in ("a", "b"):
        policy = make_policy(depth_max=1 if name == "a" else 0, deduplication_window_ms=60_000)
        definition = QueueDefinition(
            name, durable=True, policy=policy, topics=("$queue/jobs", f"$queue/{name}")
        )
        manager.queues.declare(definition, NOW_MS)
    assert publish(manager, b"first") == ACCEPTED
    assert publish(manager, b"x", **identity) == REFUSED_IN_PART
    assert publish(manager, b"x", **identity) == REFUSED_IN_PART
    assert [manager.queues.find(name).log.next_offset for name in "ab"] == [1, 2]
    manager.queues.find("a").purge(NOW_MS)
    assert publish(manager, b"x", **identity) == ACCEPTED
    assert [manager.queues.find(name).log.next_offset for name in "ab"] == [2, 2]


def test_nothing_is_queued_that_cannot_be_written_down() -> None:
    manager = make_manager()
    queue = make_queue(manager, "jobs")
    manager.seal(NOW_MS)
    with pytest.raises(struct.error):
        publish(manager, b"1", producer_id="p", producer_sequence=1 << 64)
    assert queue.depth() == 0
    assert not manager.context.commit


def test_the_producer_used_least_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_PER_QUEUE_MAX", 2)
    manager = make_manager()
    queue = make_queue(manager, "jobs")
    day_ms = limits.PRODUCER_IDLE_MS_MIN
    publish(manager, b"", NOW_MS, producer_id="p", producer_sequence=1)
    publish(manager, b"", NOW_MS + 1, producer_id="q", producer_sequence=1)
    publish(manager, b"x", NOW_MS + 2, producer_id="p", producer_sequence=2)
    assert publish(manager, b"", NOW_MS + day_ms, producer_id="r", producer_sequence=1) == REFUSED_WINDOW
    assert publish(manager, b"", NOW_MS + 1 + day_ms, producer_id="r", producer_sequence=1) == ACCEPTED
    assert list(queue.rules.identities.producers) == ["p", "r"]
    assert producer.key("jobs", "q") in manager.context.commit.deletes


def test_a_full_window_refuses_until_it_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEDUPLICATION_IDS_MAX", 1)
    manager = make_manager()
    queue = make_queue(manager, "jobs", deduplication_window_ms=500)
    assert publish(manager, b"", deduplication_id="a") == ACCEPTED
    assert publish(manager, b"", deduplication_id="b") == REFUSED_WINDOW
    assert manager.context.timers.next_ms() == NOW_MS + 500
    manager.seal(NOW_MS)
    manager.fire_timers(NOW_MS + 500)
    assert identified.key("jobs", "a") in manager.context.commit.deletes
    assert publish(manager, b"", NOW_MS + 500, deduplication_id="b") == ACCEPTED
    assert queue.depth() == 2


def test_an_identity_belongs_to_its_body() -> None:
    manager = make_manager()
    make_queue(manager, "jobs")
    publish(manager, b"1", producer_id="p", producer_sequence=1)
    assert publish(manager, b"2", producer_id="p", producer_sequence=1) == REFUSED_IDENTITY
    publish(manager, b"1", deduplication_id="a")
    assert publish(manager, b"2", deduplication_id="a") == REFUSED_IDENTITY
    assert manager.publisher.repeated_count == 0
    assert publish(manager, b"1", deduplication_id="a") == ACCEPTED
    assert manager.publisher.repeated_count == 1


def test_a_delayed_message_is_taken_once_too() -> None:
    manager = make_manager()
    queue = make_queue(manager, "jobs")
    for _ in range(2):
        assert publish(manager, b"1", deduplication_id="a", delay_ms=1_000) == ACCEPTED
    assert queue.rules.scheduled_count() == 1


def test_a_queue_that_is_declared_durable_remembers() -> None:
    manager = make_manager(auto_create=True)
    publish(manager, b"1", deduplication_id="a")
    policy = manager.queues.default_policy
    queue = manager.queues.declare(QueueDefinition("jobs", durable=True, policy=policy), NOW_MS)
    assert identified.key("jobs", "a") in manager.context.commit.puts
    assert publish(manager, b"1", deduplication_id="a") == ACCEPTED
    assert queue.depth() == 1
