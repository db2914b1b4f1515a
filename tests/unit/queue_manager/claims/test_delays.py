"""Messages of a group that wait for their next attempt."""

from __future__ import annotations

import pytest

from config import limits
from queue_manager.errors import PreconditionFailed
from tests.unit.queue_manager.managers import NOW_MS, consume, make_manager, make_queue, publish


@pytest.mark.parametrize("durable", [True, False])
def test_back_at_its_place_when_due(durable: bool) -> None:
    manager = make_manager()
    queue = make_queue(manager, durable=durable, retry_initial_ms=1_000)
    _, sink = consume(manager, queue, credit_max=2)
    publish(manager, 4)
    manager.dispatch(NOW_MS)
    first, second = sink.claims
    manager.requeue([second], NOW_MS)
    manager.requeue([first], NOW_MS, delay_ms=1_000)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [0, 1, 2, 3]
    group = queue.groups.find("")
    assert (group.delayed_count(), group.ready_count(), queue.waiting_count()) == (2, 0, 2)
    assert queue.depth() == 2
    assert manager.context.timers.next_ms() == NOW_MS + 1_000
    manager.ack(sink.claims[2:], NOW_MS)
    manager.fire_timers(NOW_MS + 999)
    assert sink.offsets == [0, 1, 2, 3]
    manager.fire_timers(NOW_MS + 1_000)
    assert sink.offsets == [0, 1, 2, 3, 0, 1]
    assert [claim.attempts for claim in sink.claims[4:]] == [2, 2]


@pytest.mark.parametrize("durable", [True, False])
def test_purge_takes_what_waits(durable: bool) -> None:
    manager = make_manager()
    queue = make_queue(manager, durable=durable)
    _, sink = consume(manager, queue)
    publish(manager, 2)
    manager.dispatch(NOW_MS)
    manager.requeue(sink.claims, NOW_MS, delay_ms=5_000)
    with pytest.raises(PreconditionFailed, match="not empty"):
        manager.queues.delete(queue, NOW_MS, if_empty=True)
    assert queue.purge(NOW_MS) == 2
    manager.fire_timers(NOW_MS + 5_000)
    assert len(sink.offsets) == 2
    assert queue.waiting_count() == 0
    assert manager.queues.delete(queue, NOW_MS, if_empty=True) == 0


def test_a_deleted_queue_leaves_no_timer() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    _, sink = consume(manager, queue)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    manager.requeue(sink.claims, NOW_MS, delay_ms=5_000)
    manager.queues.delete(queue, NOW_MS)
    assert manager.context.timers.next_ms() is None


def test_the_first_step_over_the_limit_stops_new_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DELAYED_MESSAGES_PER_GROUP_MAX", 2)
    manager = make_manager()
    queue = make_queue(manager)
    _, sink = consume(manager, queue, credit_max=2)
    publish(manager, 4)
    manager.dispatch(NOW_MS)
    manager.requeue(sink.claims, NOW_MS, delay_ms=5_000)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [0, 1]
    manager.fire_timers(NOW_MS + 5_000)
    assert sink.offsets == [0, 1, 0, 1]
    manager.ack(sink.claims, NOW_MS + 5_000)
    manager.dispatch(NOW_MS + 5_000)
    assert sink.offsets == [0, 1, 0, 1, 2, 3]


def test_payload_the_store_has_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DELAYED_BYTES_PER_GROUP_MAX", 10)
    manager = make_manager()
    queue = make_queue(manager)
    _, sink = consume(manager, queue)
    publish(manager, 3, size=8)
    manager.dispatch(NOW_MS)
    queue.log.became_durable(2)
    manager.requeue(sink.claims, NOW_MS, delay_ms=5_000)
    claims = queue.groups.find("").cursors[0].claims.buckets[0].claims
    kept = [claim.message.body is not None for claim in claims if claim]
    assert kept == [True, False, True]  # the last one is not in the store yet
    assert all(message.body for message in queue.log.tail.slice(0, 3))
