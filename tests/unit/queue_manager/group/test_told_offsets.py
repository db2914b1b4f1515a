"""A group with a consumer that is told offsets is handed out only what is durable."""

import pytest

from queue_manager.claims.claim import UNLIMITED
from queue_manager.filters.consumer_filter import consumer_filter
from queue_manager.manager import QueueManager
from queue_manager.queue.queue import Queue
from tests.unit.queue_manager.managers import (
    NOW_MS,
    Sink,
    become_durable,
    consume,
    make_manager,
    make_queue,
    publish,
)
from tests.unit.queue_manager.selecting import fields_of

SELECTING = {"wanted": consumer_filter("region = 'eu'", {})}
KINDS = {
    "in order": ({}, {}),
    "by filters": ({}, SELECTING),
    "by message groups": ({"message_groups": "sticky"}, {}),
    "by priority": ({"priority_max": 3}, {}),
}


def told(manager: QueueManager, queue: Queue, **options):
    """A consumer that is told offsets, and its sink."""
    sink = Sink()
    wanted = {"credit_max": UNLIMITED, "no_ack": False, "exclusive": False, "lease_ms": 30_000, **options}
    consumer = manager.consumption.subscribe(
        queue, "", "#", sink, consumer_id="told", is_told_offsets=True, **wanted
    )
    return consumer, sink


def durable(manager: QueueManager) -> None:
    become_durable(manager)
    manager.dispatch(NOW_MS)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_handed_out_before_it_is_durable(kind):
    policy, options = KINDS[kind]
    manager = make_manager()
    manager.context.fields.read_by(fields_of)
    manager.queues.maker.find_group_keys_by(lambda template: (template.topic, False))
    queue = make_queue(manager, **policy)
    _, sink = told(manager, queue, **options)
    publish(manager, 3)
    manager.dispatch(NOW_MS)
    assert sink.offsets == []
    durable(manager)
    assert sink.offsets == [0, 1, 2]
    publish(manager, 2)
    queue.groups.find("").want_dispatch()
    manager.dispatch(NOW_MS)
    assert sink.offsets == [0, 1, 2]
    durable(manager)
    assert sink.offsets == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_what_others_gave_back_before_it_was_durable_waits_for_that(kind):
    policy, options = KINDS[kind]
    manager = make_manager()
    manager.context.fields.read_by(fields_of)
    manager.queues.maker.find_group_keys_by(lambda template: (template.topic, False))
    queue = make_queue(manager, **policy)
    _, first = consume(manager, queue)
    publish(manager, 2)
    manager.dispatch(NOW_MS)
    assert first.offsets == [0, 1], "they are told no offsets"
    first_consumer = first.claims[0].consumer
    _, sink = told(manager, queue, **options)
    manager.consumption.unsubscribe(first_consumer, NOW_MS)
    manager.dispatch(NOW_MS)
    assert sink.offsets == []
    durable(manager)
    assert sink.offsets == [0, 1]


def test_messages_of_an_ephemeral_queue_are_handed_out_at_once():
    manager = make_manager()
    queue = make_queue(manager, durable=False)
    _, sink = told(manager, queue)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [0]


def test_others_are_given_what_waits_once_nobody_is_told_offsets():
    manager = make_manager()
    queue = make_queue(manager)
    consumer, _ = told(manager, queue, credit_max=0)
    _, sink = consume(manager, queue)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    assert sink.offsets == []
    manager.consumption.unsubscribe(consumer, NOW_MS)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [0]


def test_others_are_given_what_waits_once_who_was_told_offsets_has_settled_all():
    manager = make_manager()
    queue = make_queue(manager)
    consumer, told_sink = told(manager, queue, credit_max=1)
    publish(manager, 1)
    durable(manager)
    manager.consumption.unsubscribe(consumer, NOW_MS, keep_claims=True)
    _, sink = consume(manager, queue)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    assert (told_sink.offsets, sink.offsets) == ([0], [])
    manager.ack(told_sink.claims, NOW_MS)
    manager.consumption.end_leases(NOW_MS)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [1]


def test_who_pulls_waits_for_what_others_were_given_before_it_was_durable():
    manager = make_manager()
    queue = make_queue(manager)
    consumer, first = consume(manager, queue)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    manager.consumption.unsubscribe(consumer, NOW_MS)
    sink = Sink()
    puller = manager.consumption.puller(queue, sink, "p", lease_ms=30_000, is_told_offsets=True)
    assert manager.consumption.pull(puller, False, NOW_MS) is None
    again: list[int] = []
    puller.group.when_loaded(again.append)
    manager.dispatch(NOW_MS)
    assert again == []
    durable(manager)
    assert again == [NOW_MS]
    assert manager.consumption.pull(puller, False, NOW_MS) == 1
    publish(manager, 1)
    assert manager.consumption.pull(puller, False, NOW_MS) is None, "it is not there yet"
    assert first.offsets == sink.offsets == [0]
    durable(manager)
    assert manager.consumption.pull(puller, False, NOW_MS) == 1
    assert manager.consumption.pull(puller, False, NOW_MS) == 0


def test_queue_that_takes_dead_letters_hands_out_what_is_durable():
    manager = make_manager()
    queue = make_queue(manager, dead_letter="dead")
    dead = make_queue(manager, "dead")
    _, given = consume(manager, queue)
    _, sink = consume(manager, dead)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    manager.consumption.reject(given.claims, NOW_MS)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [], "it tells the offset of a message that a crash may take"
    durable(manager)
    assert sink.offsets == [0]


def test_puller_that_is_forgotten_while_it_waits_for_durability_is_called_nevertheless():
    manager = make_manager()
    queue = make_queue(manager)
    consumer, _ = consume(manager, queue)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    manager.consumption.unsubscribe(consumer, NOW_MS)
    queue.parts[0].tell_offsets()
    puller = manager.consumption.puller(queue, Sink(), "p", lease_ms=30_000)
    assert manager.consumption.pull(puller, False, NOW_MS) is None
    again: list[int] = []
    puller.group.when_loaded(again.append)
    manager.expire(NOW_MS)  # it takes nothing by itself, and holds nothing
    manager.dispatch(NOW_MS)
    assert again == []
    durable(manager)
    assert again == [NOW_MS]
    assert manager.consumption.pull(puller, False, NOW_MS) == 1
