"""Queues that an operator has paused."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.moving.move import to_queue
from queue_manager.moving.redrive import Drain
from queue_manager.options import PublishOptions
from queue_manager.outcomes import ACCEPTED, REFUSED_IN_PART, REFUSED_PAUSED
from queue_manager.policy import NOT_PAUSED, PAUSED, Pause
from tests.unit.queue_manager.managers import (
    NOW_MS,
    consume,
    make_manager,
    make_queue,
    publish,
    publish_durably,
)

KINDS: dict[str, dict[str, Any]] = {
    "classic": {},
    "in memory": {"durable": False},
    "stream": {"stream": True},
    "with priorities": {"priority_max": 2},
    "with message groups": {"message_groups": "sticky"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_paused_consumers_are_given_nothing_until_they_go_on(kind: str) -> None:
    manager = make_manager()
    queue = make_queue(manager, **KINDS[kind])
    _, sink = consume(manager, queue, group="g")
    queue.set_pause(Pause(deliver=True))
    assert publish_durably(manager, 3) == ACCEPTED
    _, late = consume(manager, queue, group="late")
    manager.dispatch(NOW_MS)
    assert not sink.calls
    assert not late.calls
    queue.set_pause(NOT_PAUSED)
    manager.dispatch(NOW_MS)
    assert len(sink.offsets) == 3
    assert len(late.offsets) == (3 if kind == "stream" else len(late.offsets))


def test_pull_from_a_queue_with_paused_consumers_finds_nothing() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    publish(manager, 1)
    _, sink = consume(manager, queue, credit_max=0)
    puller = manager.consumption.puller(queue, sink, "p", lease_ms=1_000)
    queue.set_pause(Pause(deliver=True))
    assert manager.consumption.pull(puller, True, NOW_MS) == 0
    queue.set_pause(NOT_PAUSED)
    assert manager.consumption.pull(puller, True, NOW_MS) == 1


def test_claims_of_paused_consumers_stay_and_what_they_return_waits() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    publish(manager, 2)
    _, sink = consume(manager, queue)
    manager.dispatch(NOW_MS)
    queue.set_pause(Pause(deliver=True))
    manager.ack(sink.claims[:1], NOW_MS)
    manager.requeue(sink.claims[1:], NOW_MS)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [0, 1]
    queue.set_pause(NOT_PAUSED)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [0, 1, 1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("overflow", ["", "drop-head"])
def test_publishes_to_a_paused_queue_are_refused_whatever_it_does_when_full(kind: str, overflow: str) -> None:
    manager = make_manager()
    queue = make_queue(manager, depth_max=5, overflow=overflow, **KINDS[kind])
    queue.set_pause(Pause(publish=True))
    assert publish(manager, 1) == REFUSED_PAUSED
    assert publish(manager, 2) == REFUSED_PAUSED
    assert queue.why_not(1, NOW_MS) == "queue 'jobs' is paused for publishers"
    queue.set_pause(NOT_PAUSED)
    assert publish(manager, 1) == ACCEPTED


@pytest.mark.parametrize(
    "options", [PublishOptions(delay_ms=1_000), PublishOptions(deduplication_id="a")], ids=["later", "once"]
)
def test_publishes_for_later_and_with_identity_are_refused_too(options: PublishOptions) -> None:
    manager = make_manager()
    queue = make_queue(manager)
    plan = manager.plan("$queue/jobs/eu", 0, b"", True, options)
    plan.aim(manager.publisher.route("$queue/jobs/eu", NOW_MS))
    queue.set_pause(PAUSED)
    assert manager.publish(plan, [b"x"], NOW_MS) == REFUSED_PAUSED
    queue.set_pause(NOT_PAUSED)
    assert manager.publish(plan, [b"x"], NOW_MS) == ACCEPTED


def test_other_queues_of_a_publish_take_it() -> None:
    manager = make_manager()
    paused, other = make_queue(manager), make_queue(manager, "other")
    plan = manager.plan("$queue/jobs/eu", 0, b"", True)
    plan.aim_at([paused, other], 2)
    paused.set_pause(Pause(publish=True))
    assert manager.publish(plan, [b"x"], NOW_MS) == REFUSED_IN_PART
    assert plan.full == (paused,)
    assert other.ready_count() == 1


@pytest.mark.parametrize("first", [Pause(publish=True), Pause(deliver=True)])
def test_pauses_are_joined_and_ended_one_by_one(first: Pause) -> None:
    second = PAUSED.without(first)
    assert first.joined(second) == PAUSED
    assert PAUSED.without(second) == first
    assert first.without(PAUSED) == NOT_PAUSED


@pytest.mark.parametrize("durable", [True, False])
def test_messages_of_a_queue_that_is_paused_for_consumers_can_be_moved(durable: bool) -> None:
    manager = make_manager()
    paused, other = make_queue(manager, durable=durable), make_queue(manager, "other")
    publish(manager, 3)
    paused.set_pause(Pause(deliver=True))
    moving = Drain(manager, paused, to_queue(other), 2)
    assert moving.step(10, NOW_MS) == 2
    moving.end(NOW_MS)
    assert (paused.ready_count(), other.ready_count()) == (1, 2)
    _, sink = consume(manager, paused)
    manager.dispatch(NOW_MS)
    assert sink.offsets == []
