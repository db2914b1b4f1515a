"""Queues whose dead letters fan out to all of them: what one publish costs in a turn, and altogether."""

from __future__ import annotations

from typing import Any

import pytest

from broker.properties import death_headers, templates
from config import limits
from queue_manager.manager import QueueManager
from queue_manager.policy import DROP_HEAD
from queue_manager.queue.queue import Queue
from queue_manager.rules.dead_letters import keep_properties, no_copies, no_origin
from tests.unit.queue_manager.managers import NOW_MS, become_durable, consume, make_manager, make_queue

FAN = "amq.fanout"
STEPS_MAX = 10_000


def make_fan(count: int, stamp: Any = death_headers.stamp, **fields: Any) -> tuple[QueueManager, list[Queue]]:
    """Queues bound to one exchange, to which each of them dead-letters."""
    manager = make_manager()
    manager.queues.dead_letters.install(stamp, no_origin, no_copies, lambda queue, reason: None)  # type: ignore[misc]
    exchanges = manager.queues.exchanges
    queues = []
    for number in range(count):
        queue = make_queue(
            manager, f"q{number}", dead_letter="k", dead_letter_exchange=FAN, overflow=DROP_HEAD, **fields
        )
        exchanges.bind(exchanges.find(FAN), queue, "", {})
        queues.append(queue)
    return manager, queues


def publish(manager: QueueManager, queues: list[Queue], body: bytes = b"x", count: int = 1) -> None:
    plan = manager.plan("k", 0, b"", True, exchange=FAN)
    plan.aim_at(queues, len(queues))
    manager.publish(plan, [body] * count, NOW_MS)


def sent(manager: QueueManager) -> int:
    return sum(queue.log.tail.next_offset for queue in manager.queues)


def take_steps(manager: QueueManager) -> int:
    """Take steps until there are none; give the most messages that one of them appended."""
    most = 0
    for _ in range(STEPS_MAX):
        before = sent(manager)
        if not manager.take_step(NOW_MS):
            return most
        most = max(most, sent(manager) - before)
    raise AssertionError("there is no end of steps")


def per_turn(queues: list[Queue]) -> int:
    """The most messages one turn may append by itself."""
    return limits.DISCARDED_PER_TURN_MAX // limits.DEAD_LETTER_COST + len(queues)


@pytest.mark.parametrize("stamp", [death_headers.stamp, lambda death: keep_properties(death)])
def test_one_publish_costs_no_more_than_its_budget_though_dead_letters_multiply(stamp: Any) -> None:
    manager, queues = make_fan(12, stamp, depth_max=1)
    publish(manager, queues)
    publish(manager, queues)
    assert sent(manager) <= 24 + 12 * per_turn(queues), "each queue gives up what it was published, at least"
    manager.dispatch(NOW_MS)
    before = sent(manager)
    manager.take_step(NOW_MS)
    assert sent(manager) - before <= per_turn(queues)


def test_dead_letters_of_one_message_come_to_an_end_soon() -> None:
    manager, queues = make_fan(12, depth_max=1)
    publish(manager, queues)
    publish(manager, queues, b"last")
    assert take_steps(manager) <= per_turn(queues)
    assert [queue.depth() for queue in queues] == [1] * 12
    assert sent(manager) <= 24 + 24 * 11, "a copy of each, and each of these may be one too many"
    assert manager.queues.dead_letters.dropped_count
    copies: list[Any] = [
        templates.headers_of(queue.log.tail.slice(queue.log.tail.next_offset - 1, 1)[0].template)
        for queue in queues
    ]
    assert {deaths[0].get("copies") for found in copies if (deaths := found.get("x-death"))} - {None} == {11}


def test_expired_messages_multiply_no_further_either_and_in_steps() -> None:
    manager, queues = make_fan(12, depth_max=1_000_000, message_ttl_ms=10)
    publish(manager, queues, count=50)
    become_durable(manager)
    before = sent(manager)
    manager.fire_timers(NOW_MS + 10)
    assert 0 < sent(manager) - before <= 2 * per_turn(queues)
    for life in range(1, 20):
        now_ms = NOW_MS + 10 * life
        manager.fire_timers(now_ms)
        for _ in range(STEPS_MAX):
            if not manager.take_step(now_ms):
                break
    assert [queue.depth() for queue in queues] == [0] * 12
    assert sent(manager) == 600 * 12


def test_a_publisher_pays_for_its_own_queue_whatever_others_spent() -> None:
    manager, queues = make_fan(12, depth_max=1)
    jobs = make_queue(manager, "jobs", depth_max=2, overflow=DROP_HEAD, dead_letter="dead")
    dead = make_queue(manager, "dead")
    for _ in range(20):
        publish(manager, queues)
    assert manager.context.discards.is_spent
    for _ in range(5):
        publish(manager, [jobs], count=1_000)
    assert (jobs.depth(), dead.depth()) == (2, 4_998)


def test_a_row_of_queues_with_limits_pushes_on_within_the_call() -> None:
    manager = make_manager()
    row = [
        make_queue(manager, f"r{i}", depth_max=1, overflow=DROP_HEAD, dead_letter=f"r{i + 1}")
        for i in range(20)
    ]
    end = make_queue(manager, "r20")
    for _ in range(21):
        publish(manager, [row[0]])
        manager.dispatch(NOW_MS)
    assert ([queue.depth() for queue in row], end.depth()) == ([1] * 20, 1)
    assert not manager.context.has_steps()


def test_a_fan_without_a_second_one_has_no_bound() -> None:
    manager, queues = make_fan(150)
    jobs = make_queue(
        manager, "jobs", depth_max=1, overflow=DROP_HEAD, dead_letter="k", dead_letter_exchange=FAN
    )
    publish(manager, [jobs])
    publish(manager, [jobs])
    take_steps(manager)
    assert [queue.depth() for queue in queues] == [1] * 150


def test_a_queue_deleted_while_it_waits_gives_up_nothing() -> None:
    manager, queues = make_fan(12, depth_max=1)
    publish(manager, queues)
    publish(manager, queues)
    publish(manager, queues)
    assert manager.context.has_steps()
    for queue in queues:
        manager.queues.delete(queue, NOW_MS)
    take_steps(manager)
    assert not manager.context.has_steps()


def test_the_end_of_a_shard_leaves_what_is_too_much_to_the_next_start() -> None:
    manager, queues = make_fan(12, depth_max=1)
    for _ in range(3):
        publish(manager, queues)
    assert manager.context.has_steps()
    manager.context.discards.end()
    before = sent(manager)
    take_steps(manager)
    assert sent(manager) == before


def test_what_a_consumer_rejects_is_dead_lettered_within_the_budget_too() -> None:
    manager, queues = make_fan(50)
    jobs = make_queue(manager, "jobs", dead_letter="k", dead_letter_exchange=FAN)
    _, sink = consume(manager, jobs)
    publish(manager, [jobs], count=200)
    manager.dispatch(NOW_MS)
    before = sent(manager)
    manager.reject(sink.claims, NOW_MS)
    assert sent(manager) - before <= per_turn(queues) + limits.RETURNED_PER_LOOK * 50
    assert not sink.claims[-1].is_in_flight, "all of them have left their consumer"
    take_steps(manager)
    assert [queue.depth() for queue in queues] == [200] * 50
    assert sent(manager) - before == 200 * 50
