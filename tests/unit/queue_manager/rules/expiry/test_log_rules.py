"""Messages given up in time: expired, or too many."""

from __future__ import annotations

import pytest

from config import limits
from queue_manager.manager import QueueManager
from queue_manager.options import PublishOptions
from queue_manager.outcomes import ACCEPTED, REFUSED_DEPTH
from queue_manager.policy import DROP_HEAD, REJECT_DLX
from tests.unit.queue_manager.managers import (
    NOW_MS,
    consume,
    make_manager,
    make_queue,
    publish,
    waiting_bytes,
)

DURABLE = pytest.mark.parametrize("durable", [True, False])


@pytest.fixture
def manager() -> QueueManager:
    return make_manager()


@DURABLE
def test_queue_ttl_ends_in_order(manager: QueueManager, durable: bool) -> None:
    queue = make_queue(manager, durable=durable, message_ttl_ms=1_000, dead_letter="dead")
    dead = make_queue(manager, "dead")
    publish(manager, 3)
    manager.fire_timers(NOW_MS + 999)
    assert queue.ready_count() == 3
    manager.fire_timers(NOW_MS + 1_000)
    assert (queue.ready_count(), dead.ready_count()) == (0, 3)


@DURABLE
def test_each_group_gives_up_what_it_has_not_taken(manager: QueueManager, durable: bool) -> None:
    queue = make_queue(manager, durable=durable, message_ttl_ms=1_000, dead_letter="dead")
    dead = make_queue(manager, "dead")
    publish(manager, 3)
    first, sink = consume(manager, queue, "a", credit_max=2)
    queue.group("b")
    manager.dispatch(NOW_MS + 5)
    manager.fire_timers(NOW_MS + 1_000)
    assert dead.ready_count() == 1 + 3
    manager.requeue(sink.claims, NOW_MS + 1_001)
    manager.fire_timers(NOW_MS + 1_001)
    assert dead.ready_count() == 2 + 1 + 3
    assert sink.offsets == [0, 1]


def publish_with_ttl(manager: QueueManager, ttl_ms: int, now_ms: int = NOW_MS) -> None:
    plan = manager.plan("$queue/jobs/eu", 0, b"", True, PublishOptions(ttl_ms=ttl_ms))
    plan.aim(manager.publisher.route("$queue/jobs/eu", now_ms))
    assert manager.publish(plan, [b"x"], now_ms) == ACCEPTED


@DURABLE
@pytest.mark.parametrize("groups", [[], [""], ["a", "b"]])
def test_own_ttl_ends_beyond_the_head(manager: QueueManager, durable: bool, groups: list[str]) -> None:
    queue = make_queue(manager, durable=durable, dead_letter="dead")
    dead = make_queue(manager, "dead")
    for group in groups:
        queue.group(group)
    publish(manager, 1)
    publish_with_ttl(manager, 2_000)
    publish_with_ttl(manager, 1_000)
    publish_with_ttl(manager, 1_000)
    publish(manager, 1)
    manager.fire_timers(NOW_MS + 1_000)
    assert (queue.ready_count(), dead.ready_count()) == (3, 2 * max(1, len(groups)))
    _, sink = consume(manager, queue, "a")
    manager.dispatch(NOW_MS + 1_001)
    assert sink.offsets == [0, 1, 4]


@DURABLE
@pytest.mark.parametrize("is_queues", [True, False])
@pytest.mark.parametrize("turn_ms", [1, 7])
def test_ttl_of_0_is_given_to_a_ready_consumer_however_late_its_turn_and_to_no_later_one(
    manager: QueueManager, durable: bool, is_queues: bool, turn_ms: int
) -> None:
    queue = make_queue(manager, durable=durable, message_ttl_ms=1 if is_queues else 0, dead_letter="dead")
    dead = make_queue(manager, "dead")
    _, ready = consume(manager, queue, "", credit_max=1)
    publish_with_ttl(manager, 0)
    publish_with_ttl(manager, 0)
    manager.fire_timers(NOW_MS + turn_ms)
    assert (ready.offsets, dead.ready_count()) == ([0], 1)
    publish_with_ttl(manager, 0)
    manager.dispatch(NOW_MS + limits.IMMEDIATE_TURN_MS)
    _, late = consume(manager, queue, "")
    manager.dispatch(NOW_MS + 2 * limits.IMMEDIATE_TURN_MS)
    assert late.offsets == []


def test_ttls_beyond_32_bits_do_not_wrap(manager: QueueManager) -> None:
    queue = make_queue(manager)
    publish_with_ttl(manager, (1 << 32) + 5)
    manager.fire_timers(NOW_MS + (1 << 32) + 4)
    assert queue.ready_count() == 1
    manager.fire_timers(NOW_MS + (1 << 32) + 5)
    assert queue.ready_count() == 0


@DURABLE
@pytest.mark.parametrize("groups", [[], [""], ["a", "b"]])
def test_drop_head_drops_the_oldest(manager: QueueManager, durable: bool, groups: list[str]) -> None:
    queue = make_queue(manager, durable=durable, dead_letter="dead", depth_max=3, overflow=DROP_HEAD)
    dead = make_queue(manager, "dead")
    for group in groups:
        queue.group(group)
    assert publish(manager, 5) == ACCEPTED
    assert (queue.ready_count(), dead.ready_count()) == (3, 2 * max(1, len(groups)))
    _, sink = consume(manager, queue, "a", credit_max=1)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [2]
    publish(manager, 1)
    manager.requeue(sink.claims, NOW_MS)
    publish(manager, 1)
    assert queue.groups.find("a").ready_count() == 3
    _, other = consume(manager, queue, "a")
    manager.dispatch(NOW_MS)
    assert other.offsets[-1] == 6


@DURABLE
@pytest.mark.parametrize("groups", [[], [""], ["a", "b"]])
def test_bytes_that_wait_are_bounded(manager: QueueManager, durable: bool, groups: list[str]) -> None:
    queue = make_queue(manager, durable=durable, bytes_max=100)
    for group in groups:
        queue.group(group)
    assert publish(manager, 4, size=25) == ACCEPTED
    assert publish(manager, 1) == REFUSED_DEPTH
    _, sink = consume(manager, queue, groups[0] if groups else "a", credit_max=1)
    manager.dispatch(NOW_MS)
    assert publish(manager, 1) == (REFUSED_DEPTH if len(groups) > 1 else ACCEPTED)
    manager.requeue(sink.claims, NOW_MS, delay_ms=100)
    assert publish(manager, 1) == REFUSED_DEPTH
    assert waiting_bytes(queue) == (100 if len(groups) > 1 else 101)


def test_drop_head_by_bytes(manager: QueueManager) -> None:
    queue = make_queue(manager, bytes_max=100, overflow=DROP_HEAD)
    publish(manager, 4, size=25)
    publish(manager, 1, size=30)
    assert (queue.ready_count(), waiting_bytes(queue)) == (3, 80)


def test_refused_publishes_are_dead_lettered(manager: QueueManager) -> None:
    make_queue(manager, dead_letter="dead", depth_max=1, overflow=REJECT_DLX)
    dead = make_queue(manager, "dead")
    assert [publish(manager, 1) for _ in range(3)] == [ACCEPTED, REFUSED_DEPTH, REFUSED_DEPTH]
    assert dead.ready_count() == 2


@DURABLE
@pytest.mark.parametrize("groups", [[], [""]])
def test_priorities_drop_the_least_urgent(manager: QueueManager, durable: bool, groups: list[str]) -> None:
    queue = make_queue(
        manager, durable=durable, priority_max=2, depth_max=3, overflow=DROP_HEAD, dead_letter="dead"
    )
    dead = make_queue(manager, "dead")
    for group in groups:
        queue.group(group)
    for priority in (2, 0, 1, 0, 2):
        plan = manager.plan("$queue/jobs", 0, b"", True, PublishOptions(priority=priority))
        plan.aim(manager.publisher.route("$queue/jobs", NOW_MS))
        assert manager.publish(plan, [b"%d" % priority], NOW_MS) == ACCEPTED
    assert (queue.ready_count(), dead.ready_count()) == (3, 2)
    _, sink = consume(manager, queue)
    manager.dispatch(NOW_MS)
    assert [claim.message.body for claim in sink.claims] == [b"2", b"2", b"1"]


def test_priorities_expire(manager: QueueManager) -> None:
    queue = make_queue(manager, priority_max=2, message_ttl_ms=1_000, dead_letter="dead")
    dead = make_queue(manager, "dead")
    for priority in (0, 1, 2):
        options = PublishOptions(priority=priority, ttl_ms=None if priority else 500)
        plan = manager.plan("$queue/jobs", 0, b"", True, options)
        plan.aim(manager.publisher.route("$queue/jobs", NOW_MS))
        manager.publish(plan, [b"x"], NOW_MS)
    manager.fire_timers(NOW_MS + 500)
    assert (queue.ready_count(), dead.ready_count()) == (2, 1)
    manager.fire_timers(NOW_MS + 1_000)
    assert (queue.ready_count(), dead.ready_count()) == (0, 3)


def test_dead_letters_nobody_takes_are_offered_again(manager: QueueManager) -> None:
    queue = make_queue(manager, message_ttl_ms=1_000, dead_letter="dead")
    publish(manager, 1)
    publish_with_ttl(manager, 500)
    manager.fire_timers(NOW_MS + 1_000)
    assert queue.ready_count() == 2
    dead = make_queue(manager, "dead")
    manager.fire_timers(NOW_MS + 1_000 + limits.EXPIRY_RETRY_MS)
    assert (queue.ready_count(), dead.ready_count()) == (0, 2)


@DURABLE
def test_what_no_dead_letter_queue_takes_fails_in_its_group(manager: QueueManager, durable: bool) -> None:
    queue = make_queue(manager, durable=durable, message_ttl_ms=1_000, dead_letter="dead")
    group = queue.group("")
    publish(manager, 2)
    manager.fire_timers(NOW_MS + 1_000)
    assert (queue.ready_count(), group.failed_count()) == (0, 2 if durable else 0)


def test_durable_queues_expire_unused(manager: QueueManager) -> None:
    queue = make_queue(manager, unused_max_ms=1_000)
    consumer, _ = consume(manager, queue)
    manager.fire_timers(NOW_MS + 1_000)
    manager.consumption.unsubscribe(consumer, NOW_MS + 1_500)
    manager.fire_timers(NOW_MS + 2_499)
    assert not queue.deleted
    manager.fire_timers(NOW_MS + 2_500)
    assert queue.deleted


def test_queues_in_memory_share_a_bound(manager: QueueManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EPHEMERAL_BYTES_MAX", 10_000)
    queue = make_queue(manager, durable=False)
    make_queue(manager, "other", durable=False)
    assert publish(manager, 5, size=1_000) == ACCEPTED
    assert publish(manager, 4, "$queue/other", size=1_000) == REFUSED_DEPTH
    queue.purge(NOW_MS)
    plan = manager.plan("$queue/other", 0, b"", True)
    plan.aim(manager.publisher.route("$queue/other", NOW_MS))
    assert manager.publish(plan, [b"x" * 1_000] * 4, NOW_MS + 1_000) == ACCEPTED


def test_what_the_last_group_held_may_be_too_much(manager: QueueManager) -> None:
    queue = make_queue(manager, depth_max=2, overflow=DROP_HEAD)
    consume(manager, queue, "a", credit_max=1)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    publish(manager, 2)
    manager.fire_timers(NOW_MS)
    queue.groups.delete("a", NOW_MS, force=True)
    manager.fire_timers(NOW_MS)
    assert queue.ready_count() == 2
