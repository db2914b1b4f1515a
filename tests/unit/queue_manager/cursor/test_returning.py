"""Very many claims that come back, and very many messages for one group: in steps, and nothing overtakes."""

from typing import Any

import pytest

from config import limits
from queue_manager.claims.claim import RETURNING, STALE, CreditPool
from storage.records import active, attempts
from tests.unit.queue_manager.managers import NOW_MS, Sink, consume, make_manager, make_queue, publish


@pytest.fixture(autouse=True)
def short_steps(monkeypatch):
    monkeypatch.setattr(limits, "RETURNED_PER_STEP_MAX", 3)
    monkeypatch.setattr(limits, "DISPATCHED_PER_TURN_MAX", 8)


def begin(**policy):
    """A queue with ten messages, all held by one consumer."""
    manager = make_manager()
    queue = make_queue(manager, **policy)
    consumer, sink = consume(manager, queue, credit_max=10)
    publish(manager, 10)
    manager.dispatch(NOW_MS)
    while manager.take_step(NOW_MS):
        pass
    assert sink.offsets == list(range(10))
    return manager, queue, consumer, sink


def steps(manager) -> int:
    count = 0
    while manager.take_step(NOW_MS):
        count += 1
    return count


@pytest.mark.parametrize("leaves", [True, False], ids=["its consumer is gone", "nack multiple"])
@pytest.mark.parametrize("durable", [True, False])
def test_claims_of_one_consumer_come_back_in_steps_and_nothing_overtakes_them(leaves, durable):
    manager, queue, consumer, sink = begin(durable=durable)
    publish(manager, 4)
    other, taker = consume(manager, queue)
    if leaves:
        manager.consumption.unsubscribe(consumer, NOW_MS)
    else:
        manager.consumption.unsubscribe(consumer, NOW_MS, keep_claims=True)
        manager.requeue(sink.claims, NOW_MS)
    manager.dispatch(NOW_MS)
    assert taker.offsets == [], "what comes first is not back yet"
    assert queue.ready_count() == 14
    assert queue.groups.find("").in_flight_count() == 0
    assert {claim.state for claim in sink.claims} == {RETURNING, STALE}
    assert steps(manager) >= 3
    assert taker.offsets == list(range(14))
    assert manager.ack(taker.claims, NOW_MS) == 0
    assert manager.ack(sink.claims, NOW_MS) == 10, "they are not its any more"


def test_what_is_on_its_way_back_cannot_be_settled_and_is_not_counted_twice():
    manager, queue, consumer, sink = begin()
    manager.requeue(sink.claims, NOW_MS)
    assert (queue.ready_count(), consumer.in_flight, consumer.bytes_in_flight) == (10, {}, 0)
    assert manager.ack(sink.claims, NOW_MS) == 10
    assert manager.requeue(sink.claims, NOW_MS) == 10
    steps(manager)
    assert queue.ready_count() == 0
    assert [claim.attempts for claim in sink.claims[10:]] == [2] * 10


@pytest.mark.parametrize("many", [1, 100])
def test_what_many_claims_write_does_not_wait_for_the_commit_to_be_closed(monkeypatch, many):
    monkeypatch.setattr(limits, "UNWRITTEN_BUCKETS_MAX", many)
    manager, queue, consumer, sink = begin(bucket_size=0)  # a bucket for each message
    written = [key for key in manager.context.commit.puts if key.startswith(active.prefix())]
    assert bool(written) == (many == 1)
    manager.context.state_writes.make_due()
    sealed = manager.seal(NOW_MS)
    assert sum(key.startswith(active.prefix()) for key in sealed.puts) == 10


def test_of_very_many_each_commit_has_a_part(monkeypatch):
    monkeypatch.setattr(limits, "RETURNED_PER_COMMIT_MAX", 4)
    manager, queue, consumer, sink = begin()
    other, taker = consume(manager, queue)
    manager.requeue(sink.claims, NOW_MS)  # three are back at once, three with each step
    manager.consumption.unsubscribe(consumer, NOW_MS)
    assert steps(manager) == 2
    (cursor,) = queue.groups.find("").cursors
    written = []
    for _ in range(2):
        cursor.stored.write_soon()
        sealed = manager.seal(NOW_MS)
        written.append(sum(key.startswith(attempts.prefix()) for key in sealed.puts))
        manager.committed(sealed)
        steps(manager)
        manager.dispatch(NOW_MS)
    assert (written, cursor.returning.count) == ([9, 1], 0)
    assert taker.offsets == list(range(10))


def test_shared_credit_is_free_at_once():
    manager = make_manager()
    queue = make_queue(manager)
    pool = CreditPool(10)
    _, sink = consume(manager, queue, pool=pool)
    publish(manager, 10)
    manager.dispatch(NOW_MS)
    steps(manager)
    assert pool.in_flight == 10
    manager.requeue(sink.claims[2:9], NOW_MS)
    assert pool.in_flight == 3
    steps(manager)
    assert pool.in_flight == 10


def test_pull_waits_until_all_are_back_and_is_told():
    manager, queue, consumer, sink = begin()
    taker = Sink()
    puller = manager.consumption.puller(queue, taker, "p", lease_ms=30_000)
    manager.consumption.unsubscribe(consumer, NOW_MS)
    told: list[Any] = []
    assert manager.consumption.pull(puller, False, NOW_MS) is None
    puller.group.when_loaded(told.append)
    steps(manager)
    assert told == [NOW_MS]
    assert manager.consumption.pull(puller, False, NOW_MS) == 1
    assert taker.offsets == [0]


def test_purge_takes_what_is_on_its_way_back():
    manager, queue, _, sink = begin()
    manager.requeue(sink.claims, NOW_MS)
    assert queue.purge(NOW_MS) == 10
    steps(manager)
    assert (queue.ready_count(), len(sink.offsets)) == (0, 10)


def test_deleted_queue_forgets_what_is_on_its_way_back():
    manager, queue, _, sink = begin()
    manager.requeue(sink.claims, NOW_MS)
    manager.queues.delete(queue, NOW_MS)
    steps(manager)
    assert len(sink.offsets) == 10
    assert {claim.state for claim in sink.claims} == {STALE}


def test_rejected_claims_fail_in_steps():
    manager, queue, consumer, sink = begin()
    assert manager.reject(sink.claims, NOW_MS) == 0
    steps(manager)
    assert (queue.ready_count(), queue.groups.find("").failed_count()) == (0, 10)


def test_one_group_does_not_keep_another_from_its_turn():
    manager = make_manager()
    queue = make_queue(manager)
    sinks = [consume(manager, queue, group)[1] for group in ("a", "b")]
    publish(manager, 40)
    manager.dispatch(NOW_MS)
    assert [len(sink.offsets) for sink in sinks] == [8, 0]
    manager.take_step(NOW_MS)
    assert [len(sink.offsets) for sink in sinks] == [8, 8]
    steps(manager)
    assert [sink.offsets for sink in sinks] == [list(range(40))] * 2


def test_thousand_consumers_without_credit_are_not_asked_for_every_message(monkeypatch):
    monkeypatch.setattr(limits, "DISPATCHED_PER_TURN_MAX", 100_000)
    manager = make_manager()
    queue = make_queue(manager)
    consumers = [consume(manager, queue, credit_max=1) for _ in range(1_000)]
    publish(manager, 2_000)
    manager.dispatch(NOW_MS)
    _, sink = consumers[500]
    asked = []
    kind = type(consumers[0][0])
    credit = kind.credit

    def noted(consumer):
        asked.append(consumer)
        return credit(consumer)

    monkeypatch.setattr(kind, "credit", noted)
    manager.ack(sink.claims, NOW_MS)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [500, 1_000]
    assert len(asked) < 10
