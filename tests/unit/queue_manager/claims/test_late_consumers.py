"""Consumers that let leases end: what they had goes to others first."""

from __future__ import annotations

from typing import Any

import pytest

from config import limits
from queue_manager.claims.claim import Consumer
from queue_manager.filters.consumer_filter import consumer_filter
from queue_manager.manager import QueueManager
from queue_manager.queue.queue import Queue
from tests.unit.queue_manager.managers import NOW_MS, Sink, make_manager, make_queue, publish_durably

KINDS: dict[str, dict[str, Any]] = {
    "classic": {},
    "ephemeral": {"durable": False},
    "stream": {"stream": True},
    "priorities": {"priority_max": 3},
    "message groups": {"message_groups": "sticky"},
}
LEASE_MS = 1_000


def join(
    manager: QueueManager, queue: Queue, credit_max: int, text: str = "", **fields: Any
) -> tuple[Consumer, Sink]:
    """A consumer of group g with a lease of a second."""
    sink = Sink()
    options: dict[str, Any] = {
        "consumer_id": "c",
        "credit_max": credit_max,
        "no_ack": False,
        "exclusive": False,
        "lease_ms": LEASE_MS,
        "wanted": consumer_filter(text, {}),
        **fields,
    }
    if queue.policy.stream:
        options |= {"start": None, "auto_commit": True}
        return manager.consumption.subscribe_stream(queue, "g", "#", sink, **options), sink  # type: ignore[arg-type]
    return manager.consumption.subscribe(queue, "g", "#", sink, **options), sink


def deliver(manager: QueueManager, count: int) -> None:
    """Publish, and hand out."""
    publish_durably(manager, count)
    manager.dispatch(NOW_MS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_hung_consumer_had_goes_to_who_is_busy_now(kind: str) -> None:
    manager = make_manager()
    queue = make_queue(manager, **KINDS[kind])
    _, hung = join(manager, queue, 2)
    deliver(manager, 2)
    _, good = join(manager, queue, 1)
    deliver(manager, 5)
    first, second = hung.offsets
    given = good.offsets
    assert (len(hung.offsets), len(given)) == (2, 1)
    manager.expire(NOW_MS + LEASE_MS - 1)
    manager.ack(good.claims, NOW_MS)
    manager.dispatch(NOW_MS + LEASE_MS - 1)
    manager.expire(NOW_MS + LEASE_MS)
    assert hung.offsets == [first, second], "it is not its turn"
    now_ms = NOW_MS + LEASE_MS
    for _ in range(3):
        manager.ack(good.claims, now_ms)
        manager.dispatch(now_ms)
    assert good.offsets[2:4] == [first, second]
    assert hung.offsets == [first, second]


@pytest.mark.parametrize("kind", KINDS)
def test_alone_it_gets_its_messages_again_at_once(kind: str) -> None:
    manager = make_manager()
    queue = make_queue(manager, **KINDS[kind])
    _, hung = join(manager, queue, 2)
    deliver(manager, 2)
    for turn in (1, 2):
        manager.expire(NOW_MS + turn * LEASE_MS)
    assert hung.offsets == hung.offsets[:2] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_if_the_others_never_have_credit_it_is_its_turn_again(kind: str) -> None:
    manager = make_manager()
    queue = make_queue(manager, **KINDS[kind])
    _, hung = join(manager, queue, 1)
    other, _ = join(manager, queue, 1)
    other.pause()
    deliver(manager, 1)
    manager.expire(NOW_MS + LEASE_MS)
    assert len(hung.calls) == 1
    manager.expire(NOW_MS + 2 * LEASE_MS - 1)
    assert len(hung.calls) == 1
    manager.expire(NOW_MS + 2 * LEASE_MS)
    assert len(hung.calls) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_when_the_others_leave_it_is_its_turn_again(kind: str) -> None:
    manager = make_manager()
    queue = make_queue(manager, **KINDS[kind])
    _, hung = join(manager, queue, 1)
    other, _ = join(manager, queue, 1)
    other.pause()
    deliver(manager, 1)
    manager.expire(NOW_MS + LEASE_MS)
    assert len(hung.calls) == 1
    manager.consumption.unsubscribe(other, NOW_MS + LEASE_MS)
    manager.dispatch(NOW_MS + LEASE_MS)
    assert len(hung.calls) == 2


def test_a_long_lease_does_not_make_it_wait_long() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    _, hung = join(manager, queue, 1, lease_ms=1_800_000)
    other, _ = join(manager, queue, 1)
    other.pause()
    deliver(manager, 1)
    manager.expire(NOW_MS + 1_800_000)
    manager.fire_timers(NOW_MS + 1_800_000 + limits.LATE_CONSUMER_WAIT_MS_MAX - 1)
    assert len(hung.calls) == 1
    manager.fire_timers(NOW_MS + 1_800_000 + limits.LATE_CONSUMER_WAIT_MS_MAX)
    assert len(hung.calls) == 2


@pytest.mark.parametrize("goes", ["remove", "cancel"])
def test_when_the_others_go_it_gets_its_messages_at_once(goes: str) -> None:
    manager = make_manager()
    queue = make_queue(manager)
    _, hung = join(manager, queue, 1)
    other, _ = join(manager, queue, 1)
    other.pause()
    deliver(manager, 1)
    manager.expire(NOW_MS + LEASE_MS)
    assert hung.offsets == [0]
    manager.consumption.unsubscribe(other, NOW_MS + LEASE_MS, keep_claims=goes == "cancel")
    manager.dispatch(NOW_MS + LEASE_MS)
    assert hung.offsets == [0, 0]


@pytest.mark.parametrize("verdict", ["ack", "requeue", "reject", "extend"])
def test_settling_something_ends_it(verdict: str) -> None:
    manager = make_manager()
    queue = make_queue(manager)
    slow, sink = join(manager, queue, 3)
    other, busy = join(manager, queue, 1)
    other.pause()
    deliver(manager, 2)
    publish_durably(manager, 1)
    manager.dispatch(NOW_MS + 500)
    assert sink.offsets == [0, 1, 2]
    manager.expire(NOW_MS + LEASE_MS)
    assert sink.offsets == [0, 1, 2]
    if verdict == "extend":
        manager.consumption.extend(sink.claims[2], LEASE_MS, NOW_MS + LEASE_MS)
    else:
        getattr(manager, verdict)(sink.claims[2:], NOW_MS + LEASE_MS)
    manager.dispatch(NOW_MS + LEASE_MS)
    assert sink.offsets[3:5] == [0, 1]
    assert not slow.is_late()
    manager.expire(NOW_MS + LEASE_MS + 500)  # nothing comes of the time it would have waited
    assert busy.offsets == []


def test_all_late_means_nobody_is() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    sinks = [join(manager, queue, 1)[1] for _ in range(2)]
    deliver(manager, 2)
    manager.expire(NOW_MS + LEASE_MS)
    assert sorted(offset for sink in sinks for offset in sink.offsets) == [0, 0, 1, 1]


def test_a_group_is_served_plainly_again_when_nobody_is_late() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    join(manager, queue, 1)
    join(manager, queue, 5)
    deliver(manager, 1)
    manager.expire(NOW_MS + LEASE_MS)
    group = queue.groups.find("g")
    assert group.consumers.is_ranked
    manager.fire_timers(NOW_MS + 2 * LEASE_MS)
    assert not group.consumers.is_ranked


def test_others_of_lower_priority_come_first_too() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    _, high = join(manager, queue, 1, priority=5)
    _, low = join(manager, queue, 1)
    deliver(manager, 1)
    manager.expire(NOW_MS + LEASE_MS)
    assert (high.offsets, low.offsets) == ([0], [0])


def test_who_takes_other_messages_does_not_make_it_wait() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    _, hung = join(manager, queue, 1, "JMSMessageID LIKE '%0'")
    join(manager, queue, 1, "JMSMessageID LIKE '%9'")
    deliver(manager, 1)
    manager.expire(NOW_MS + LEASE_MS)
    assert hung.offsets == [0, 0]
    third, more = join(manager, queue, 1)
    third.pause()
    manager.expire(NOW_MS + 2 * LEASE_MS)
    assert hung.offsets == [0, 0]
    third.resume()
    manager.consumption.wake(third)
    manager.dispatch(NOW_MS + 2 * LEASE_MS)
    assert (hung.offsets, more.offsets) == ([0, 0], [0])


@pytest.mark.parametrize("how", ["ack", "requeue", "reject"])
@pytest.mark.parametrize("kind", KINDS)
def test_who_settles_too_late_takes_part_again(kind: str, how: str) -> None:
    manager = make_manager()
    queue = make_queue(manager, **KINDS[kind])
    _, slow = join(manager, queue, 1)
    deliver(manager, 1)
    other, _ = join(manager, queue, 1)
    other.pause()
    manager.expire(NOW_MS + LEASE_MS)
    deliver(manager, 3)
    assert len(slow.offsets) == 1
    assert getattr(manager, how)(slow.claims, NOW_MS + LEASE_MS) == 1
    manager.dispatch(NOW_MS + LEASE_MS)
    assert len(slow.offsets) == 2
