"""Message groups. The last level of a topic is the key here: `_` is none, and `x!` closes x."""

import pytest

from config import limits
from queue_manager.claims.claim import CreditPool
from queue_manager.dispatch.by_key.by_key import ByKey
from queue_manager.errors import PreconditionFailed
from queue_manager.moving.redrive import FailedRedrive
from queue_manager.spec_records import QueueDefinition
from tests.unit.queue_manager.managers import (
    NOW_MS,
    Sink,
    consume,
    make_manager,
    make_policy,
    make_queue,
    publish,
)
from tests.unit.queue_manager.selecting import fields_of, select


def key_of(template):
    key = template.topic.rsplit("/", 1)[-1]
    return ("" if key == "_" else key.rstrip("!"), key.endswith("!"))


def make(mode="sticky", **fields):
    manager = make_manager()
    manager.queues.maker.find_group_keys_by(key_of)
    return manager, make_queue(manager, message_groups=mode, **fields)


def send(manager, keys):
    for key in keys.split():
        publish(manager, 1, f"$queue/jobs/{key}")
    manager.dispatch(NOW_MS)


def ack(manager, consumer, count=1):
    manager.ack(list(consumer.in_flight.values())[:count], NOW_MS)
    manager.dispatch(NOW_MS)


def placed(queue):
    return sum(cursor.dispatcher.held_count(cursor) for cursor in queue.groups.find("").cursors)


def binds_keys(group):
    return all(isinstance(cursor.dispatcher, ByKey) for cursor in group.cursors)


def table_of(group):
    """Give the bindings of a group."""
    assert binds_keys(group)
    return group.cursors[0].dispatcher._table


def test_a_key_goes_to_one_consumer_and_new_keys_to_who_has_fewest() -> None:
    manager, queue = make()
    _, first = consume(manager, queue)
    _, second = consume(manager, queue)
    send(manager, "a b a b a c d")
    assert sorted([first.offsets, second.offsets]) == [[0, 2, 4, 5], [1, 3, 6]]


def test_messages_without_a_key_take_turns() -> None:
    manager, queue = make()
    sinks = [consume(manager, queue)[1] for _ in range(3)]
    publish(manager, 9, "$queue/jobs/_")
    manager.dispatch(NOW_MS)
    assert [len(sink.offsets) for sink in sinks] == [3, 3, 3]


def test_what_waits_for_an_owner_is_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PLACED_MESSAGES_PER_GROUP_MAX", 3)
    manager, queue = make()
    owner, sink = consume(manager, queue, credit_max=1)
    send(manager, "a")
    _, other = consume(manager, queue)
    send(manager, "a a a a b")
    group = queue.groups.find("")
    assert (placed(queue), len(table_of(group).bindings)) == (3, 1)
    assert queue.ready_count() == 5
    assert other.offsets == [], "nothing is taken beyond the limit"
    ack(manager, owner)
    ack(manager, owner)
    assert sink.offsets == [0, 1, 2]
    assert other.offsets == [5]
    assert len(table_of(group).bindings) == 2


def test_payload_that_waits_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PLACED_BYTES_PER_GROUP_MAX", 10)
    monkeypatch.setattr(limits, "PLACED_STEP_MESSAGES_MAX", 1)
    manager, queue = make()
    consume(manager, queue, credit_max=1)
    send(manager, "a")
    consume(manager, queue)
    publish(manager, 5, "$queue/jobs/a", size=6)
    manager.dispatch(NOW_MS)
    assert (placed(queue), table_of(queue.groups.find("")).placed_bytes) == (2, 12)


def test_keys_that_have_nothing_are_forgotten_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MESSAGE_GROUPS_BOUND_MAX", 3)
    manager, queue = make()
    consumer, _ = consume(manager, queue)
    send(manager, "a b c")
    table = table_of(queue.groups.find(""))
    send(manager, "d e")
    assert list(table.bindings) == ["a", "b", "c", "d", "e"], "each has something unsettled"
    ack(manager, consumer, 5)
    send(manager, "f g")
    assert len(table.bindings) <= 3


def test_a_cancelled_consumer_keeps_its_keys_until_it_has_settled() -> None:
    manager, queue = make()
    owner, _ = consume(manager, queue, credit_max=1)
    send(manager, "a a")
    _, other = consume(manager, queue)
    manager.consumption.unsubscribe(owner, NOW_MS, keep_claims=True)
    manager.dispatch(NOW_MS)
    assert other.offsets == []
    ack(manager, owner)
    assert other.offsets == [1]


def test_what_a_lost_consumer_had_comes_in_its_old_order() -> None:
    manager, queue = make()
    owner, _ = consume(manager, queue, credit_max=2)
    send(manager, "a a a a")
    _, other = consume(manager, queue)
    manager.consumption.unsubscribe(owner, NOW_MS)
    manager.dispatch(NOW_MS)
    assert other.calls == [[0, 1], [2, 3]], "redeliveries apart"


def test_a_nacked_message_comes_before_what_waits_behind_it() -> None:
    manager, queue = make()
    _, sink = consume(manager, queue, credit_max=2)
    send(manager, "a a")
    consume(manager, queue)
    send(manager, "a")
    assert placed(queue) == 1
    manager.requeue([sink.claims[0]], NOW_MS)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [0, 1, 0]


def test_a_closed_key_is_free_once_everything_before_is_settled() -> None:
    manager, queue = make()
    owner, sink = consume(manager, queue)
    send(manager, "a a! a")
    assert sink.offsets == [0, 1]
    ack(manager, owner)
    assert sink.offsets == [0, 1]
    ack(manager, owner)
    assert sink.offsets == [0, 1, 2]


def test_rebalancing_shares_keys_out_when_a_consumer_joins() -> None:
    manager, queue = make("rebalance")
    owner, sink = consume(manager, queue, credit_max=4)
    send(manager, "a b c d")
    _, other = consume(manager, queue)
    send(manager, "a b c d")
    assert other.offsets == [], "each key has something in flight"
    ack(manager, owner, 4)
    assert sorted(len(s.offsets) for s in (sink, other)) == [2, 6]


def test_rebalancing_forgets_who_had_idle_keys() -> None:
    manager, queue = make("rebalance")
    owner, sink = consume(manager, queue)
    send(manager, "a b")
    ack(manager, owner, 2)
    _, other = consume(manager, queue)
    send(manager, "a b")
    assert len(other.offsets) == 1


def test_keys_are_bound_to_consumers_of_the_highest_priority_with_credit() -> None:
    manager, queue = make()
    _, low = consume(manager, queue)
    _, high = consume(manager, queue, priority=5, credit_max=2)
    send(manager, "a b c a")
    assert (high.offsets, low.offsets) == ([0, 1], [2])


def test_a_single_active_consumer_has_everything() -> None:
    manager, queue = make(single_active=True)
    _, first = consume(manager, queue)
    _, second = consume(manager, queue)
    send(manager, "a b c")
    assert (first.offsets, second.offsets) == ([0, 1, 2], [])
    assert not binds_keys(queue.groups.find(""))


def test_switching_it_on_waits_for_what_is_in_flight() -> None:
    manager, queue = make("")
    consumers = [consume(manager, queue, credit_max=1) for _ in range(2)]
    send(manager, "a a a a")
    manager.queues.redefine(
        queue, QueueDefinition("jobs", durable=True, policy=make_policy(message_groups="sticky"))
    )
    ack(manager, consumers[0][0])
    assert sum(len(consumer.in_flight) for consumer, _ in consumers) == 1, "the other still holds one"
    ack(manager, consumers[1][0])
    assert sum(len(consumer.in_flight) for consumer, _ in consumers) == 1
    manager.queues.redefine(queue, QueueDefinition("jobs", durable=True, policy=make_policy()))
    manager.dispatch(NOW_MS)
    assert not binds_keys(queue.groups.find(""))
    assert queue.ready_count() == 0


def test_purging_drops_what_waits_for_an_owner() -> None:
    manager, queue = make()
    consumer, sink = consume(manager, queue, credit_max=1)
    send(manager, "a a a")
    assert queue.purge(NOW_MS) == 2
    assert queue.ready_count() == 0
    ack(manager, consumer)
    send(manager, "a")
    assert sink.offsets == [0, 3]


def test_a_purged_end_of_a_key_does_not_hold_up_what_comes_later() -> None:
    manager, queue = make()
    owner, sink = consume(manager, queue, credit_max=1)
    send(manager, "a")
    _, other = consume(manager, queue)
    send(manager, "a!")
    owner.pause()
    ack(manager, owner)
    assert queue.purge(NOW_MS) == 1
    send(manager, "a a")
    assert (sink.offsets, other.offsets) == ([0], [2, 3])


def test_switching_it_off_gives_what_waited_for_an_owner_to_others() -> None:
    manager, queue = make()
    consume(manager, queue, credit_max=1)
    send(manager, "a")
    _, other = consume(manager, queue)
    send(manager, "a a")
    assert placed(queue) == 2
    manager.queues.redefine(queue, QueueDefinition("jobs", durable=True, policy=make_policy()))
    manager.dispatch(NOW_MS)
    assert other.offsets == [1, 2]


def test_a_queue_in_memory_without_acknowledgements() -> None:
    manager = make_manager()
    manager.queues.maker.find_group_keys_by(key_of)
    queue = make_queue(manager, durable=False, message_groups="sticky")
    _, first = consume(manager, queue, no_ack=True)
    _, second = consume(manager, queue, no_ack=True)
    send(manager, "a b a! a b")
    assert sorted(first.offsets + second.offsets) == [0, 1, 2, 3, 4]
    assert queue.depth() == 0


def test_patterns_choose_before_keys_are_bound() -> None:
    manager, queue = make()
    _, sink = consume(manager, queue, "g", "b")
    send(manager, "a b a b")
    assert sink.offsets == [1, 3]
    assert list(table_of(queue.groups.find("g@b")).bindings) == ["b"]


@pytest.mark.parametrize("priority_max", [0, 2])
def test_keys_are_bound_once_what_filters_took_out_of_order_is_dealt_with(priority_max: int) -> None:
    manager, queue = make("", durable=False, priority_max=priority_max)
    manager.context.fields.read_by(fields_of)
    chooser, chosen = select(manager, queue, "region = 'b'")
    send(manager, "a a b")
    assert chosen.offsets == [2]
    policy = make_policy(message_groups="sticky", priority_max=priority_max)
    manager.queues.redefine(queue, QueueDefinition("jobs", durable=False, policy=policy))
    group = queue.groups.find("")
    assert not binds_keys(group)
    manager.ack(chosen.claims, NOW_MS)
    manager.consumption.unsubscribe(chooser, NOW_MS)
    owner, sink = consume(manager, queue, credit_max=2)
    manager.dispatch(NOW_MS)
    send(manager, "a a")
    assert sink.offsets == [0, 1]
    assert binds_keys(group)
    _, other = consume(manager, queue)
    ack(manager, owner)
    assert (sink.offsets, other.offsets) == ([0, 1], [])
    ack(manager, owner)
    assert sorted([sink.offsets, other.offsets]) in ([[0, 1], [3, 4]], [[], [0, 1, 3, 4]])
    with pytest.raises(PreconditionFailed):
        select(manager, queue, "region = 'b'")


def test_a_closing_message_waits_for_its_owner_even_if_nothing_is_unsettled() -> None:
    manager, queue = make()
    owner, sink = consume(manager, queue, credit_max=1)
    send(manager, "a")
    _, other = consume(manager, queue)
    send(manager, "a! a")
    owner.pause()
    ack(manager, owner)
    assert (sink.offsets, other.offsets) == ([0], [])
    owner.resume()
    manager.consumption.wake(owner)
    manager.dispatch(NOW_MS)
    assert (sink.offsets, other.offsets) == ([0, 1], [])


class StuffedSink(Sink):
    """One delivery is all it takes."""

    def deliver(self, consumer, messages, claims):
        super().deliver(consumer, messages, claims)
        consumer.pause()
        return True


def test_messages_without_a_key_do_not_wait_for_who_cannot_take_them_any_more() -> None:
    manager, queue = make()
    sinks = [StuffedSink(), StuffedSink()]
    for sink in sinks:
        manager.consumption.subscribe(
            queue, "", "#", sink, consumer_id="c", credit_max=4, no_ack=False, exclusive=False, lease_ms=1_000
        )
    send(manager, "_ _")
    assert [sink.offsets for sink in sinks] == [[1], [0]]
    group = queue.groups.find("")
    manager.reject(sinks[1].claims, NOW_MS)
    manager.requeue(sinks[0].claims, NOW_MS)
    FailedRedrive(group.cursors[0], 1, None).take_open(NOW_MS, 1)
    group.consumers.members[0].resume()
    manager.dispatch(NOW_MS)
    assert (sinks[0].offsets, sinks[1].offsets) == ([1, 0], [0])
    assert placed(queue) == 0
    group.consumers.members[1].resume()
    manager.consumption.wake(group.consumers.members[1])
    manager.dispatch(NOW_MS)
    assert (sinks[0].offsets, sinks[1].offsets) == ([1, 0], [0, 1])


def test_a_key_is_not_bound_to_who_has_no_credit_left_in_a_shared_pool() -> None:
    manager, queue = make()
    pool = CreditPool(1)
    pooled = [consume(manager, queue, pool=pool)[1] for _ in range(2)]
    consume(manager, queue)
    _, free = consume(manager, queue, credit_max=1)
    send(manager, "a b c d")
    assert sum(len(sink.offsets) for sink in pooled) == 1
    assert placed(queue) == 0
    assert len(free.offsets) == 1


def test_basic_get_takes_what_came_back_before_what_waits_for_it() -> None:
    manager, queue = make()
    puller_sink = Sink()
    puller = manager.consumption.puller(queue, puller_sink, "p", lease_ms=30_000)
    publish(manager, 2, "$queue/jobs/a")
    for _ in range(2):
        manager.consumption.pull(puller, False, NOW_MS)
    consume(manager, queue)
    send(manager, "a b")
    assert placed(queue) == 1
    manager.requeue(puller_sink.claims[:1], NOW_MS)
    assert manager.consumption.pull(puller, False, NOW_MS)
    assert manager.consumption.pull(puller, False, NOW_MS)
    assert puller_sink.offsets == [0, 1, 0, 2]
    assert manager.consumption.pull(puller, False, NOW_MS) == 0


def test_basic_get_is_given_what_comes_after_the_end_of_a_key_too() -> None:
    manager, queue = make()
    sink = Sink()
    puller = manager.consumption.puller(queue, sink, "p", lease_ms=30_000)
    send(manager, "a! a! a")
    for _ in range(3):
        assert manager.consumption.pull(puller, False, NOW_MS)
    assert sink.offsets == [0, 1, 2]


def test_basic_get_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PLACED_MESSAGES_PER_GROUP_MAX", 2)
    manager, queue = make()
    puller = manager.consumption.puller(queue, Sink(), "p", lease_ms=30_000)
    send(manager, "a a a b")
    manager.consumption.pull(puller, False, NOW_MS)
    _, other = consume(manager, queue)
    manager.dispatch(NOW_MS)
    assert other.offsets == []
    manager.consumption.pull(puller, False, NOW_MS)
    manager.dispatch(NOW_MS)
    assert other.offsets == [3]


def test_what_has_no_payload_any_more_is_left_out() -> None:
    manager, queue = make()
    owner, sink = consume(manager, queue, credit_max=1)
    send(manager, "a")
    consume(manager, queue)
    send(manager, "a a a")
    [cursor] = queue.groups.find("").cursors
    second = next(
        claim for claim in cursor.claims.buckets[0].claims if claim is not None and not claim.attempts
    )
    cursor.read_back.payloads_loaded([second.message], {}, 1, NOW_MS)
    for _ in range(3):
        ack(manager, owner)
    assert sink.offsets == [0, 2, 3]
    assert placed(queue) == 0


def test_who_left_with_claims_counts_when_it_is_switched_on_again() -> None:
    manager, queue = make()
    owner, _ = consume(manager, queue, credit_max=1)
    send(manager, "a")
    manager.queues.redefine(queue, QueueDefinition("jobs", durable=True, policy=make_policy()))
    manager.queues.redefine(
        queue, QueueDefinition("jobs", durable=True, policy=make_policy(message_groups="sticky"))
    )
    claim = next(iter(owner.in_flight.values()))
    # its keys go, and with them its seat
    group = queue.groups.find("")
    table_of(group).free(table_of(group).bindings["a"])
    manager.consumption.unsubscribe(owner, NOW_MS, keep_claims=True)
    manager.queues.redefine(queue, QueueDefinition("jobs", durable=True, policy=make_policy()))
    manager.queues.redefine(
        queue, QueueDefinition("jobs", durable=True, policy=make_policy(message_groups="sticky"))
    )
    assert table_of(group).bindings["a"].in_flight == 1
    assert manager.ack([claim], NOW_MS) == 0
    assert table_of(group).bindings["a"].in_flight == 0


def test_a_key_goes_to_another_when_a_shared_pool_is_used_up_before_its_turn() -> None:
    manager, queue = make()
    pool = CreditPool(1)
    gone, _ = consume(manager, queue, credit_max=1)
    send(manager, "b")
    first, sink = consume(manager, queue, pool=pool)
    send(manager, "a")
    other, got = consume(manager, queue, credit_max=1)
    send(manager, "a c")
    consume(manager, queue, pool=pool)
    manager.consumption.unsubscribe(gone, NOW_MS)
    manager.dispatch(NOW_MS)
    assert (sink.offsets, got.offsets) == ([1], [3])
    ack(manager, first)  # the free place of the pool goes to the next of a, not to b
    assert sink.offsets == [1, 2]
    ack(manager, other)
    assert got.offsets == [3, 0]


def test_a_key_is_not_left_with_who_had_older_messages_placed_than_credit_left() -> None:
    manager, queue = make()
    owner, got = consume(manager, queue, credit_max=2)
    send(manager, "c _")
    puller, _ = consume(manager, queue, credit_max=1)
    send(manager, "a c")  # a for the other; the next of c waits for its owner
    manager.consumption.unsubscribe(puller, NOW_MS)
    assert got.offsets == [0, 1]
    ack(manager, owner, 2)  # now there is credit for two, and three to be had
    assert got.offsets == [0, 1, 2, 3]
    send(manager, "c d")
    _, free = consume(manager, queue, credit_max=1)
    manager.dispatch(NOW_MS)
    assert free.offsets == [5]


def test_keys_of_a_consumer_that_hands_back_everything_at_once_are_free(monkeypatch) -> None:
    monkeypatch.setattr(limits, "RETURNED_PER_STEP_MAX", 2)
    manager, queue = make()
    first, _ = consume(manager, queue, credit_max=4)
    send(manager, "a b c d")
    bindings = [*table_of(queue.groups.find("")).bindings.values()]
    assert [binding.in_flight for binding in bindings] == [1] * 4
    manager.requeue(list(first.in_flight.values()), NOW_MS)
    assert [binding.in_flight for binding in bindings] == [0] * 4
