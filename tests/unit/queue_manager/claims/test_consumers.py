"""Consumer priorities and the single active consumer."""

from __future__ import annotations

import pytest

from tests.unit.queue_manager.managers import NOW_MS, Sink, consume, make_manager, make_queue, publish


@pytest.mark.parametrize("durable", [True, False])
def test_the_highest_priority_with_credit_takes(durable: bool) -> None:
    manager = make_manager()
    queue = make_queue(manager, durable=durable)
    _, low = consume(manager, queue, credit_max=10)
    _, high = consume(manager, queue, credit_max=2, priority=5)
    _, also_high = consume(manager, queue, credit_max=1, priority=5)
    publish(manager, 5)
    manager.dispatch(NOW_MS)
    assert sorted(high.offsets + also_high.offsets) == [0, 1, 2]
    assert low.offsets == [3, 4]
    manager.ack(high.claims[:1], NOW_MS)
    publish(manager, 2)
    manager.dispatch(NOW_MS)
    assert high.offsets[-1] == 5
    assert low.offsets[-1] == 6


def test_priorities_below_zero_come_after_consumers_without_one() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    _, plain = consume(manager, queue, credit_max=1)
    _, reserve = consume(manager, queue, credit_max=10, priority=-1)
    publish(manager, 3)
    manager.dispatch(NOW_MS)
    assert (plain.offsets, reserve.offsets) == ([0], [1, 2])


def test_a_single_active_consumer_gets_everything_until_it_goes() -> None:
    manager = make_manager()
    queue = make_queue(manager, single_active=True)
    first, one = consume(manager, queue, credit_max=2)
    _, two = consume(manager, queue, credit_max=10)
    publish(manager, 4)
    manager.dispatch(NOW_MS)
    assert (one.offsets, two.offsets) == ([0, 1], [])
    manager.consumption.unsubscribe(first, NOW_MS)
    manager.dispatch(NOW_MS)
    assert two.offsets == [0, 1, 2, 3]


def test_the_next_one_is_served_at_once_when_the_active_consumer_is_cancelled() -> None:
    manager = make_manager()
    queue = make_queue(manager, single_active=True)
    first, _ = consume(manager, queue, credit_max=2)
    _, two = consume(manager, queue)
    publish(manager, 3)
    manager.dispatch(NOW_MS)
    manager.consumption.unsubscribe(first, NOW_MS, keep_claims=True)
    manager.dispatch(NOW_MS)
    assert (len(first.in_flight), two.offsets) == (2, [2])


def test_with_message_groups_the_next_one_waits_for_what_the_cancelled_one_holds() -> None:
    manager = make_manager()
    queue = make_queue(manager, single_active=True, message_groups="sticky")
    first, _ = consume(manager, queue, credit_max=2)
    _, two = consume(manager, queue)
    publish(manager, 3)
    manager.dispatch(NOW_MS)
    manager.consumption.unsubscribe(first, NOW_MS, keep_claims=True)
    manager.dispatch(NOW_MS)
    for claim in list(first.in_flight.values()):
        assert two.offsets == []
        manager.ack([claim], NOW_MS)
        manager.dispatch(NOW_MS)
    assert two.offsets == [2]


def test_the_next_active_consumer_is_that_of_the_highest_priority() -> None:
    manager = make_manager()
    queue = make_queue(manager, single_active=True)
    first, _ = consume(manager, queue, priority=1)
    manager.dispatch(NOW_MS)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    _, low = consume(manager, queue)
    _, high = consume(manager, queue, priority=9)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    assert (low.offsets, high.offsets) == ([], [])
    manager.consumption.unsubscribe(first, NOW_MS)
    manager.dispatch(NOW_MS)
    assert (low.offsets, high.offsets) == ([], [0, 1])


def test_groups_have_an_active_consumer_each() -> None:
    manager = make_manager()
    queue = make_queue(manager, single_active=True)
    _, one = consume(manager, queue, "a")
    _, two = consume(manager, queue, "b")
    publish(manager, 2)
    manager.dispatch(NOW_MS)
    assert one.offsets == two.offsets == [0, 1]


def test_leases_that_end_in_turn_never_leave_the_queue_without_an_active_consumer() -> None:
    manager = make_manager()
    queue = make_queue(manager, single_active=True)
    sinks: list[Sink] = [consume(manager, queue, credit_max=1, lease_ms=1_000)[1] for _ in range(3)]
    publish(manager, 1)
    now_ms = NOW_MS
    manager.dispatch(now_ms)
    turns = []
    for _ in range(7):
        holder = next(index for index, sink in enumerate(sinks) if sink.calls)
        turns.append(holder)
        sinks[holder].calls.clear()
        now_ms += 1_000
        manager.expire(now_ms)
    assert turns == [0, 1, 2, 0, 1, 2, 0]


def test_a_sole_active_consumer_stays_active_when_its_lease_ends() -> None:
    manager = make_manager()
    queue = make_queue(manager, single_active=True)
    _, sink = consume(manager, queue, credit_max=1, lease_ms=1_000)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    manager.expire(NOW_MS + 1_000)
    assert sink.offsets == [0, 0]


def test_pulling_beside_an_exclusive_consumer_gets_what_that_has_no_credit_for() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    pulled = Sink()
    puller = manager.consumption.puller(queue, pulled, "get", lease_ms=1_000)
    consume(manager, queue, exclusive=True, credit_max=1)
    publish(manager, 2)
    manager.dispatch(NOW_MS)
    assert manager.consumption.pull(puller, False, NOW_MS) == 1
    assert pulled.offsets == [1]


def test_on_takeover_everything_the_other_held_comes_back_first() -> None:
    manager = make_manager()
    queue = make_queue(manager, single_active=True)
    active, one = consume(manager, queue, credit_max=3, lease_ms=3_000)
    _, two = consume(manager, queue, credit_max=3, lease_ms=3_000)
    for after_ms, count in ((0, 1), (1_000, 1), (1_300, 3)):
        publish(manager, count)
        manager.dispatch(NOW_MS + after_ms)
    assert one.offsets == [0, 1, 2]
    manager.expire(NOW_MS + 3_100)
    assert two.calls == [[0, 1, 2]]
    assert (one.revoked_count, len(active.in_flight)) == (3, 0)
    assert manager.ack(one.claims, NOW_MS + 3_100) == 3


def test_a_sole_active_consumer_keeps_what_it_still_may() -> None:
    manager = make_manager()
    queue = make_queue(manager, single_active=True)
    active, sink = consume(manager, queue, lease_ms=3_000)
    for after_ms in (0, 1_000):
        publish(manager, 1)
        manager.dispatch(NOW_MS + after_ms)
    manager.expire(NOW_MS + 3_000)
    assert (sink.calls, sink.revoked_count, len(active.in_flight)) == ([[0], [1], [0]], 1, 2)
