"""What does not match the pattern or the selector of a group is nothing for it, whether it has a consumer."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.manager import QueueManager
from queue_manager.policy import DROP_HEAD, Pause
from queue_manager.queue.queue import Queue
from tests.unit.queue_manager.group.test_keeper import Life, group, keys
from tests.unit.queue_manager.managers import NOW_MS, consume, make_manager, make_queue, waiting_bytes
from tests.unit.queue_manager.selecting import fields_of, select, send

DURABLE = pytest.mark.parametrize("durable", [True, False])


@pytest.fixture
def manager() -> QueueManager:
    return make_manager()


def leave_group(manager: QueueManager, queue: Queue, pattern: str = "eu/#") -> None:
    """Make group w, and leave it without a consumer."""
    consumer, _ = consume(manager, queue, "w", pattern)
    manager.dispatch(NOW_MS)
    manager.consumption.unsubscribe(consumer, NOW_MS)
    manager.dispatch(NOW_MS)


@DURABLE
@pytest.mark.parametrize("fields", [{}, {"priority_max": 3}, {"message_groups": "sticky"}])
def test_unwanted_message_does_not_count_for_a_group_without_a_consumer(
    manager: QueueManager, durable: bool, fields: dict[str, Any]
) -> None:
    queue = make_queue(manager, durable=durable, depth_max=1, **fields)
    leave_group(manager, queue)
    consume(manager, queue, no_ack=True)
    for _ in range(3):
        assert queue.has_room(1, 1)
        send(manager, "us/1")
        manager.dispatch(NOW_MS)
    assert queue.groups.find("w@eu/#").ready_count() == 0


@DURABLE
@pytest.mark.parametrize("priority", [0, 3])
def test_unwanted_message_behind_a_wanted_one_does_not_count(
    manager: QueueManager, durable: bool, priority: int
) -> None:
    queue = make_queue(manager, durable=durable, priority_max=priority)
    leave_group(manager, queue)
    _, sink = consume(manager, queue, no_ack=True)
    send(manager, "us/1", "eu/1", "us/2", "eu/2", "us/3")
    assert queue.groups.find("w@eu/#").ready_count() == 2, "before anything is handed out"
    manager.dispatch(NOW_MS)
    assert (queue.groups.find("w@eu/#").ready_count(), len(sink.offsets)) == (2, 5)
    assert group(manager, queue, "w", "eu/#") == "eu/1 eu/2"
    assert queue.depth() == 0


@DURABLE
def test_unwanted_messages_from_before_do_not_count_once_the_consumer_has_left(
    manager: QueueManager, durable: bool
) -> None:
    queue = make_queue(manager, durable=durable)
    consume(manager, queue, no_ack=True)
    consumer, sink = consume(manager, queue, "w", "eu/#", credit_max=1)
    send(manager, "eu/1", "eu/2", "us/1", "eu/3", "us/2")
    manager.dispatch(NOW_MS)
    manager.consumption.unsubscribe(consumer, NOW_MS)
    manager.dispatch(NOW_MS)
    assert queue.groups.find("w@eu/#").ready_count() == 3
    assert group(manager, queue, "w", "eu/#") == "eu/1 eu/2 eu/3"


@DURABLE
def test_group_that_is_made_without_a_consumer_counts_what_it_wants(
    manager: QueueManager, durable: bool
) -> None:
    queue = make_queue(manager, durable=durable)
    send(manager, "us/1", "eu/1", "us/2", "eu/2")
    manager.create_group(queue, "w", "eu/#")
    manager.dispatch(NOW_MS)
    assert queue.groups.find("w@eu/#").ready_count() == 2
    assert group(manager, queue, "w", "us/#") == "us/1 us/2"


def test_message_that_a_selector_does_not_take_does_not_count(manager: QueueManager) -> None:
    manager.context.fields.read_by(fields_of)
    queue = make_queue(manager)
    consumer, _ = select(manager, queue, group="g", group_selector="region = 'eu'")
    manager.consumption.unsubscribe(consumer, NOW_MS)
    consume(manager, queue)
    send(manager, "us", "eu", "us")
    manager.dispatch(NOW_MS)
    assert queue.groups.find("g").ready_count() == 1


def test_unwanted_message_takes_no_room_beside_a_consumer_without_credit(manager: QueueManager) -> None:
    queue = make_queue(manager, depth_max=2)
    consume(manager, queue, no_ack=True)
    consume(manager, queue, "w", "eu/#", credit_max=1)
    send(manager, "eu/1", "eu/2")
    for _ in range(5):
        manager.dispatch(NOW_MS)
        assert queue.has_room(1, 1)
        send(manager, "us/1")


def test_unwanted_message_takes_no_room_while_consumers_are_given_nothing(manager: QueueManager) -> None:
    queue = make_queue(manager, depth_max=3)
    consume(manager, queue, "w", "eu/#")
    consume(manager, queue, "w", "us/#")
    queue.set_pause(Pause(deliver=True))
    send(manager, "eu/1", "us/1", "us/2", "us/3")
    assert queue.groups.find("w@eu/#").ready_count() == 1
    assert queue.depth() == 3


def test_bytes_of_unwanted_messages_do_not_count(manager: QueueManager) -> None:
    queue = make_queue(manager, bytes_max=1_000)
    leave_group(manager, queue)
    consume(manager, queue, no_ack=True)
    send(manager, "us/1", "eu/1", "us/2", "us/3")
    manager.dispatch(NOW_MS)
    assert waiting_bytes(queue) == len("eu/1")


@DURABLE
def test_oldest_that_goes_is_one_of_those_that_count(manager: QueueManager, durable: bool) -> None:
    queue = make_queue(manager, durable=durable, depth_max=2, overflow=DROP_HEAD)
    leave_group(manager, queue)
    consume(manager, queue, no_ack=True)
    for number in range(4):
        send(manager, f"eu/{number}", "us/x", "us/y")
        manager.dispatch(NOW_MS)
    assert queue.groups.find("w@eu/#").ready_count() == 2
    assert group(manager, queue, "w", "eu/#") == "eu/2 eu/3"


@DURABLE
def test_message_that_waits_beside_unwanted_ones_expires(manager: QueueManager, durable: bool) -> None:
    queue = make_queue(manager, durable=durable, message_ttl_ms=1_000, dead_letter="dead")
    dead = make_queue(manager, "dead")
    leave_group(manager, queue)
    consume(manager, queue, no_ack=True)
    send(manager, "eu/1", "us/1", "eu/2", "us/2")
    manager.dispatch(NOW_MS)
    manager.fire_timers(NOW_MS + 1_000)
    assert (queue.depth(), dead.ready_count()) == (0, 2)


def test_queue_in_memory_lets_go_of_what_was_passed_beside_a_message_that_waits(
    manager: QueueManager,
) -> None:
    queue = make_queue(manager, durable=False)
    leave_group(manager, queue)
    consume(manager, queue, no_ack=True)
    send(manager, "eu/1")
    manager.dispatch(NOW_MS)
    before = queue.memory_bytes()
    for _ in range(100):
        send(manager, "us/1")
        manager.dispatch(NOW_MS)
    assert queue.memory_bytes() - before < 10_000


def test_unwanted_messages_do_not_count_after_a_crash_and_go_once() -> None:
    life = Life()
    consumer, _ = consume(life.manager, life.queue, "w", "eu/#")
    life.manager.consumption.unsubscribe(consumer, NOW_MS)
    _, sink = consume(life.manager, life.queue)
    send(life.manager, *["eu/1", "us/1"] * 10)
    life.rest()
    life.manager.ack(sink.claims, NOW_MS)
    life.commit()
    life.crash()
    assert life.queue.groups.find("w@eu/#").ready_count() == 10
    life.sweep()
    assert life.payload_count() == 10
    sink = life.work("eu/#")["eu/#"]
    assert keys(sink) == " ".join(["eu/1"] * 10)
    life.manager.ack(sink.claims, life.clock.ms)
    life.sweep()
    life.sweep()
    assert life.payload_count() == 0
    log = life.queue.log
    assert log.head_offset == log.next_offset == 20


def test_group_is_served_in_order_again_once_nothing_lies_between() -> None:
    life = Life()
    consumer, _ = consume(life.manager, life.queue, "w", "eu/#")
    life.manager.consumption.unsubscribe(consumer, NOW_MS)
    send(life.manager, "eu/1", "us/1", "eu/2", "us/2")
    life.commit()
    found = life.queue.groups.find("w@eu/#")
    assert found.serving.by_selector
    life.work("eu/#")
    life.commit()
    assert not found.serving.by_selector
