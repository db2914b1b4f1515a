"""Who gets what: shares, order, leases. Random lives of groups are in tests/model."""

import pytest

from config import limits
from queue_manager.claims.claim import Claim, CreditPool
from tests.unit.queue_manager.managers import NOW_MS, consume, make_manager, make_queue, publish


@pytest.mark.parametrize(("count", "consumers"), [(10, 3), (7, 5), (1_000, 7), (3, 4), (12, 4)])
def test_waiting_messages_are_shared_evenly(count: int, consumers: int) -> None:
    manager = make_manager()
    queue = make_queue(manager)
    publish(manager, count)
    sinks = [consume(manager, queue)[1] for _ in range(consumers)]
    manager.dispatch(NOW_MS)
    shares = [len(sink.offsets) for sink in sinks]
    assert sum(shares) == count
    assert max(shares) - min(shares) <= 1
    assert sorted(offset for sink in sinks for offset in sink.offsets) == list(range(count))


def test_single_messages_go_round() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    sinks = [consume(manager, queue)[1] for _ in range(3)]
    for _ in range(9):
        publish(manager, 1)
        manager.dispatch(NOW_MS)
    assert [sink.offsets for sink in sinks] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_who_has_no_credit_does_not_keep_others_from_theirs() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    _, small = consume(manager, queue, credit_max=2)
    paused, none = consume(manager, queue)
    paused.pause()
    _, large = consume(manager, queue, credit_max=50)
    publish(manager, 40)
    manager.dispatch(NOW_MS)
    assert (len(small.offsets), len(none.offsets), len(large.offsets)) == (2, 0, 38)
    paused.resume()
    publish(manager, 30)
    manager.consumption.wake(paused)
    manager.dispatch(NOW_MS)
    assert len(none.offsets) + len(large.offsets) == 68


def test_a_returned_message_goes_before_newer_ones_and_says_so() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    consumer, sink = consume(manager, queue, credit_max=4)
    publish(manager, 10)
    manager.dispatch(NOW_MS)
    manager.requeue([sink.claims[2], sink.claims[0]], NOW_MS)
    manager.ack([sink.claims[1]], NOW_MS)
    manager.dispatch(NOW_MS)
    assert sink.calls == [[0, 1, 2, 3], [0, 2], [4]]
    assert [claim.attempts for claim in sink.claims[4:]] == [2, 2, 1]
    assert len(consumer.in_flight) == 4


def test_a_settle_by_who_held_it_before_comes_too_late() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    _, sink = consume(manager, queue)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    first = sink.claims[0]
    manager.requeue([first], NOW_MS)
    manager.dispatch(NOW_MS)
    assert manager.ack([first], NOW_MS) == 1
    assert manager.reject([first], NOW_MS) == 1
    assert not manager.consumption.extend(first, 1_000, NOW_MS)
    assert queue.groups.find("").in_flight_count() == 1
    assert manager.ack([sink.claims[1]], NOW_MS) == 0
    assert manager.consumption.late_count == 2


def expired(lease_ms: int, extended: dict[int, int], after_ms: int) -> list[int]:
    """The offsets that return `after_ms` later, with some leases extended by index."""
    manager = make_manager()
    queue = make_queue(manager)
    consumer, sink = consume(manager, queue, lease_ms=lease_ms)
    publish(manager, 4)
    manager.dispatch(NOW_MS)
    claims = list(sink.claims)
    for index, extension_ms in extended.items():
        assert manager.consumption.extend(claims[index], extension_ms, NOW_MS)
    queue.groups.find("").end_leases(NOW_MS + after_ms)
    assert sink.revoked_count == 4 - len(consumer.in_flight)
    return sorted(set(range(4)) - set(consumer.in_flight))


@pytest.mark.parametrize(
    ("extended", "after_ms", "offsets"),
    [
        ({}, 9_999, []),
        ({}, 10_000, [0, 1, 2, 3]),
        ({1: 20_000}, 10_000, [0, 2, 3]),
        ({1: 20_000}, 20_000, [0, 1, 2, 3]),
        ({2: 500}, 500, [2]),
        ({2: 500, 0: 20_000}, 9_000, [2]),
        ({3: 500, 1: 700}, 600, [3]),
    ],
)
def test_a_lease_ends_when_it_says(extended: dict[int, int], after_ms: int, offsets: list[int]) -> None:
    assert expired(10_000, extended, after_ms) == offsets


def test_leases_are_looked_through_no_further_than_needed() -> None:
    class Watched(dict[int, Claim]):
        looked_at = 0

        def values(self):  # type: ignore[no-untyped-def]
            for claim in super().values():
                Watched.looked_at += 1
                yield claim

    manager = make_manager()
    queue = make_queue(manager)
    consumer, sink = consume(manager, queue)
    publish(manager, 1_000)
    manager.dispatch(NOW_MS)
    manager.consumption.extend(sink.claims[0], 100, NOW_MS)
    consumer.in_flight = Watched(consumer.in_flight)
    for after_ms in (50, 200, 300, 400):
        queue.groups.find("").end_leases(NOW_MS + after_ms)
    assert Watched.looked_at <= 2_100  # all of them while one has a lease of its own


def test_attempts_used_up_fail_a_message() -> None:
    manager = make_manager()
    queue = make_queue(manager, attempts_max=2)
    _, sink = consume(manager, queue)
    publish(manager, 2)
    for _ in range(3):
        manager.dispatch(NOW_MS)
        manager.requeue([claim for claim in sink.claims if claim.message.offset == 0], NOW_MS)
    assert sink.offsets == [0, 1, 0]
    assert queue.groups.find("").failed_count() == 1


def test_a_pool_is_shared_by_groups_and_let_go_of_by_consumers_that_leave() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    pool = CreditPool(5)
    one, one_sink = consume(manager, queue, "a", pool=pool)
    two, two_sink = consume(manager, queue, "b", pool=pool)
    publish(manager, 10)
    manager.dispatch(NOW_MS)
    assert len(one_sink.offsets) + len(two_sink.offsets) == pool.in_flight == 5
    manager.consumption.unsubscribe(one, NOW_MS, keep_claims=True)
    assert pool.consumers == [two]
    manager.ack(one_sink.claims + two_sink.claims, NOW_MS)
    manager.dispatch(NOW_MS)
    assert pool.in_flight == 5 == len(two.in_flight)
    manager.consumption.unsubscribe(two, NOW_MS)
    assert not pool.consumers
    assert pool.in_flight == 0


def test_a_consumer_that_holds_much_gets_no_more_until_it_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLAIMED_BYTES_PER_CONSUMER_MAX", 1_000)
    manager = make_manager()
    queue = make_queue(manager)
    consumer, sink = consume(manager, queue)
    publish(manager, 1, size=5_000)
    manager.dispatch(NOW_MS)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [0]
    manager.ack(sink.claims, NOW_MS)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [0, 1]
    assert consumer.bytes_in_flight == 1


def test_a_consumer_that_left_gets_nothing() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    consumer, _ = consume(manager, queue)
    manager.consumption.unsubscribe(consumer, NOW_MS)
    assert consumer.credit() == 0


def test_a_group_in_memory_starts_at_what_is_kept() -> None:
    manager = make_manager()
    queue = make_queue(manager, durable=False)
    _, first = consume(manager, queue, no_ack=True)
    publish(manager, 5)
    manager.dispatch(NOW_MS)
    _, late = consume(manager, queue, "late")
    publish(manager, 2)
    manager.dispatch(NOW_MS)
    assert first.offsets == list(range(7))
    assert late.offsets == [5, 6]
    assert not manager.context.loads


def test_an_empty_routing_key_is_no_level_for_a_pattern() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    _, one = consume(manager, queue, "a", "+")
    _, all_of_it = consume(manager, queue, "b", "#")
    publish(manager, 1, "$queue/jobs")
    publish(manager, 1, "$queue/jobs/eu")
    manager.dispatch(NOW_MS)
    assert one.offsets == [1]
    assert all_of_it.offsets == [0, 1]
