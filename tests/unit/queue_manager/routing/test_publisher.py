"""routing.publisher: a publish is judged for every target, then applied; nothing refuses in between."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import pytest

from config import limits
from queue_manager.audience import HEARD, NOTHING_AHEAD, STORED, UNHEARD, SessionsAhead
from queue_manager.manager import QueueManager
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.outcomes import (
    ACCEPTED,
    REFUSED_DEPTH,
    REFUSED_IDENTITY,
    REFUSED_IN_PART,
    REFUSED_ORDER,
    REFUSED_PAUSED,
    REFUSED_SESSION,
    REFUSED_SIZE,
    UNROUTED,
)
from queue_manager.policy import DROP_UNMATCHED, REJECT, Pause
from queue_manager.queue.queue import Queue
from queue_manager.routing.plan import PublishPlan
from storage.envelope import vary
from storage.records import payload, payload_refs
from tests.unit.queue_manager.managers import NOW_MS, consume, make_manager, make_policy, make_queue
from tests.unit.queue_manager.selecting import select


class Subscribers:
    """An audience with so much room; `heard` is what it was given."""

    def __init__(self, result: int = HEARD, room: int = 1_000) -> None:
        self.result = result
        self.room = room
        self.heard: list[bytes] = []

    def is_there(self) -> bool:
        return self.result != UNHEARD

    def has_room(self, count: int, body_bytes: int, ahead: SessionsAhead = NOTHING_AHEAD) -> bool:
        return len(self.heard) + ahead.get(self, (0, 0))[0] + count <= self.room

    def count_ahead(self, count: int, body_bytes: int, ahead: dict[Hashable, tuple[int, int]]) -> None:
        ahead[self] = ahead.get(self, (0, 0))[0] + count, 0

    def hear(self, bodies: list[bytes]) -> int:
        self.heard += bodies
        return self.result


@pytest.fixture
def manager() -> QueueManager:
    return make_manager()


def plan_to(manager: QueueManager, *queues: Queue, options: PublishOptions = PLAIN) -> PublishPlan:
    plan = manager.plan("key", 0, b"", True, options)
    plan.aim_at(queues, sum(queue.durable for queue in queues))
    return plan


def payload_keys(manager: QueueManager) -> set[bytes]:
    """The payload records of the open commit."""
    prefixes = payload.prefix(), payload_refs.prefix()
    return {key for key in manager.context.commit.puts if key.startswith(prefixes)}


PAUSED = "paused"
FULL = "full"


@pytest.mark.parametrize("obstacle", [FULL, PAUSED])
@pytest.mark.parametrize("options", [{}, {"deduplication_id": "d"}, {"delay_ms": 1_000}])
def test_payload_that_only_a_queue_in_memory_took_is_not_stored(
    manager: QueueManager, obstacle: str, options: dict[str, object]
) -> None:
    durable = make_queue(manager, "durable", depth_max=1, overflow=REJECT)
    memory = make_queue(manager, "memory", durable=False)
    manager.publish(plan_to(manager, durable), [b"first"], NOW_MS)
    manager.seal(NOW_MS)
    if obstacle == PAUSED or options.get("delay_ms"):
        durable.set_pause(Pause(publish=True))
    plan = plan_to(manager, durable, memory, options=PublishOptions(**options))  # type: ignore[arg-type]
    assert manager.publish(plan, [b"second"], NOW_MS) == REFUSED_IN_PART
    assert payload_keys(manager) == set()


# subscribers beside queues


def test_refused_by_a_session_is_taken_by_no_queue(manager: QueueManager) -> None:
    queue, subscribers = make_queue(manager), Subscribers(room=1)
    plan = plan_to(manager, queue)
    plan.accompany(subscribers)
    assert manager.publish(plan, [b"1"], NOW_MS) == ACCEPTED
    assert manager.publish(plan, [b"2"], NOW_MS) == REFUSED_SESSION
    assert (queue.depth(), subscribers.heard) == (1, [b"1"])


def refusing(manager: QueueManager, outcome: int) -> PublishPlan:
    """A plan whose publish of b"xx" has this outcome, if there are no subscribers."""
    options = PLAIN
    if outcome == REFUSED_SIZE:
        queue = make_queue(manager, message_bytes_max=1)
    elif outcome == REFUSED_DEPTH:
        queue = make_queue(manager, depth_max=1, overflow=REJECT)
        manager.publish(plan_to(manager, queue), [b"x"], NOW_MS)
    elif outcome == REFUSED_PAUSED:
        queue = make_queue(manager)
        queue.set_pause(Pause(publish=True))
    else:
        queue = make_queue(manager)
        options = PublishOptions(producer_id="p", producer_sequence=1)
        manager.publish(plan_to(manager, queue, options=options), [b"x"], NOW_MS)
        if outcome == REFUSED_ORDER:
            queue.set_pause(Pause(publish=True))
            options = PublishOptions(producer_id="p", producer_sequence=2)
            assert manager.publish(plan_to(manager, queue, options=options), [b"x"], NOW_MS)
            queue.set_pause(Pause())
            options = PublishOptions(producer_id="p", producer_sequence=3)
    return plan_to(manager, queue, options=options)


@pytest.mark.parametrize("outcome", [REFUSED_SIZE, REFUSED_IDENTITY, REFUSED_ORDER])
def test_refused_for_what_it_is_is_heard_by_nobody(manager: QueueManager, outcome: int) -> None:
    plan, subscribers = refusing(manager, outcome), Subscribers()
    plan.accompany(subscribers)
    assert manager.publish(plan, [b"xx"], NOW_MS) == outcome
    assert subscribers.heard == []


@pytest.mark.parametrize("outcome", [REFUSED_DEPTH, REFUSED_PAUSED])
def test_refused_by_full_queues_alone_is_heard_and_refused_in_part(
    manager: QueueManager, outcome: int
) -> None:
    plan, subscribers = refusing(manager, outcome), Subscribers()
    assert manager.publish(plan, [b"xx"], NOW_MS) == outcome
    plan.accompany(subscribers)
    assert manager.publish(plan, [b"xx"], NOW_MS) == REFUSED_IN_PART
    assert subscribers.heard == [b"xx"]
    plan.accompany(Subscribers(UNHEARD))
    assert manager.publish(plan, [b"xx"], NOW_MS) == outcome


def test_identified_publish_is_heard_once_however_often_it_comes(manager: QueueManager) -> None:
    first, second = make_queue(manager, "a"), make_queue(manager, "b", depth_max=1, overflow=REJECT)
    manager.publish(plan_to(manager, second), [b"full"], NOW_MS)
    plan, subscribers = (
        plan_to(manager, first, second, options=PublishOptions(deduplication_id="d")),
        Subscribers(),
    )
    plan.accompany(subscribers)
    assert manager.publish(plan, [b"x"], NOW_MS) == REFUSED_IN_PART
    assert manager.publish(plan, [b"x"], NOW_MS) == REFUSED_IN_PART
    second.purge(NOW_MS)
    assert [manager.publish(plan, [b"x"], NOW_MS) for _ in range(2)] == [ACCEPTED, ACCEPTED]
    assert (first.depth(), second.depth(), subscribers.heard) == (1, 1, [b"x"])


def test_identified_publish_that_every_queue_refused_is_heard_when_one_takes_it(
    manager: QueueManager,
) -> None:
    queue = make_queue(manager)
    queue.set_pause(Pause(publish=True))
    plan, subscribers = plan_to(manager, queue, options=PublishOptions(deduplication_id="d")), Subscribers()
    plan.accompany(subscribers)
    assert manager.publish(plan, [b"x"], NOW_MS) == REFUSED_PAUSED
    assert subscribers.heard == []
    queue.set_pause(Pause())
    assert manager.publish(plan, [b"x"], NOW_MS) == ACCEPTED
    assert subscribers.heard == [b"x"]


def test_producer_whose_publish_a_session_refused_has_to_send_it_again_first(manager: QueueManager) -> None:
    queue, subscribers = make_queue(manager), Subscribers(room=0)

    def publish(sequence: int) -> int:
        options = PublishOptions(producer_id="p", producer_sequence=sequence)
        plan = plan_to(manager, queue, options=options)
        plan.accompany(subscribers)
        return manager.publish(plan, [b"%d" % sequence], NOW_MS)

    assert [publish(1), publish(2)] == [REFUSED_SESSION, REFUSED_ORDER]
    subscribers.room = 10
    assert [publish(2), publish(1), publish(2)] == [REFUSED_ORDER, ACCEPTED, ACCEPTED]
    assert subscribers.heard == [b"1", b"2"]


@pytest.mark.parametrize(
    ("result", "outcome", "is_stored"),
    [(UNHEARD, UNROUTED, False), (HEARD, ACCEPTED, False), (STORED, ACCEPTED, True)],
)
def test_without_queues_the_audience_decides(
    manager: QueueManager, result: int, outcome: int, is_stored: bool
) -> None:
    plan = plan_to(manager)
    plan.accompany(Subscribers(result))
    assert (manager.publish(plan, [b"x"], NOW_MS), plan.durable) == (outcome, is_stored)


# queues that drop what no consumer group wants


def wanting(manager: QueueManager, pattern: str, **fields: object) -> Queue:
    """A queue with one group, which drops what that does not want."""
    queue = make_queue(manager, f"only {pattern}", unmatched=DROP_UNMATCHED, **fields)
    consume(manager, queue, "g", pattern)
    return queue


def test_publish_that_no_group_wants_is_unrouted_where_such_messages_are_dropped(
    manager: QueueManager,
) -> None:
    queue = wanting(manager, "eu/#")
    assert manager.publish(plan_to(manager, queue), [b"1", b"2"], NOW_MS) == UNROUTED
    assert (queue.log.next_offset, queue.dropped_count) == (0, 2)
    both = plan_to(manager, queue, make_queue(manager, "all"))
    assert manager.publish(both, [b"x"], NOW_MS) == ACCEPTED
    both.accompany(Subscribers())
    assert manager.publish(plan_to(manager, queue), [b"x"], NOW_MS) == UNROUTED
    heard = plan_to(manager, queue)
    heard.accompany(Subscribers())
    assert manager.publish(heard, [b"x"], NOW_MS) == ACCEPTED
    assert (queue.log.next_offset, queue.dropped_count) == (0, 5)


def test_queue_that_drops_a_publish_beside_a_full_one_makes_it_no_refusal_in_part(
    manager: QueueManager,
) -> None:
    full = make_queue(manager, "full", depth_max=1, overflow=REJECT)
    manager.publish(plan_to(manager, full), [b"x"], NOW_MS)
    dropping = wanting(manager, "eu/#")
    plan = plan_to(manager, dropping, full)
    assert manager.publish(plan, [b"x"], NOW_MS) == REFUSED_DEPTH
    assert manager.publish(plan, [b"x", b"y"], NOW_MS) == REFUSED_DEPTH
    assert dropping.dropped_count == 0, "what is refused comes again"


def test_identity_of_a_publish_that_was_dropped_is_not_remembered(manager: QueueManager) -> None:
    queue = wanting(manager, "eu/#")
    options = PublishOptions(producer_id="p", producer_sequence=1, deduplication_id="d")
    assert manager.publish(plan_to(manager, queue, options=options), [b"1"], NOW_MS) == UNROUTED
    consume(manager, queue, "all")
    assert manager.publish(plan_to(manager, queue, options=options), [b"2"], NOW_MS) == ACCEPTED
    assert queue.log.next_offset == 1


@pytest.mark.parametrize("durable", [True, False])
def test_producer_goes_on_behind_a_refused_publish_that_no_group_wants_by_now(
    manager: QueueManager, durable: bool
) -> None:
    limited = {"depth_max": 1, "overflow": REJECT, "unmatched": DROP_UNMATCHED}
    queue = make_queue(manager, durable=durable, **limited)

    def publish(sequence: int) -> int:
        options = PublishOptions(producer_id="p", producer_sequence=sequence)
        return manager.publish(plan_to(manager, queue, options=options), [b"x"], NOW_MS)

    assert (publish(1), publish(2), publish(3)) == (ACCEPTED, REFUSED_DEPTH, REFUSED_ORDER)
    consume(manager, queue, "g", "eu/#")
    assert (publish(3), publish(2), publish(3)) == (REFUSED_ORDER, UNROUTED, UNROUTED)


def test_of_messages_with_properties_of_their_own_each_is_asked_whether_a_group_wants_it(
    manager: QueueManager,
) -> None:
    manager.context.fields.read_by(lambda template: {"region": template.properties.decode()})
    queue = make_queue(manager, unmatched=DROP_UNMATCHED)
    select(manager, queue, group="g", group_selector="region <> 'us'")
    plan = plan_to(manager, queue)
    wanted, unwanted = vary(plan.template, [b"eu", b"us"], [True, True])
    assert manager.publish(plan, [b"1"], NOW_MS, [wanted]) == ACCEPTED
    assert manager.publish(plan, [b"2"], NOW_MS, [unwanted]) == UNROUTED
    assert manager.publish(plan, [b"1", b"2"], NOW_MS, [wanted, unwanted]) == UNROUTED, "one by one"
    assert queue.log.next_offset == 1


# together


def judge(manager: QueueManager, *wanted: tuple[PublishPlan, list[bytes]]) -> list[int]:
    each = [(plan, bodies, None) for plan, bodies in wanted]
    return [judged.outcome for judged in manager.publisher.judge_all(each, NOW_MS)]


def test_room_is_judged_for_all_publishes_together(manager: QueueManager) -> None:
    queue = make_queue(manager, depth_max=3, overflow=REJECT)
    plan, again = plan_to(manager, queue), plan_to(manager, queue)
    assert judge(manager, (plan, [b"1", b"2"]), (again, [b"3"])) == [ACCEPTED, ACCEPTED]
    assert judge(manager, (plan, [b"1", b"2"]), (again, [b"3"]), (plan, [b"4"])) == [0, 0, REFUSED_DEPTH]
    assert queue.depth() == 0


def test_memory_is_judged_for_all_publishes_together_and_each_counts_once(manager: QueueManager) -> None:
    plan = plan_to(manager, make_queue(manager, durable=False))
    each = 1 << 20
    fitting = limits.EPHEMERAL_BYTES_PER_QUEUE_MAX // each
    outcomes = judge(manager, *[(plan, [bytes(each)])] * (fitting + 1))
    assert outcomes == [ACCEPTED] * fitting + [REFUSED_DEPTH]


def test_identities_are_judged_as_if_what_comes_before_was_taken(manager: QueueManager) -> None:
    queue = make_queue(manager, depth_max=2, overflow=REJECT)

    def identified(sequence: int) -> PublishPlan:
        return plan_to(manager, queue, options=PublishOptions(producer_id="p", producer_sequence=sequence))

    one, two = identified(1), identified(2)
    assert judge(manager, (one, [b"1"]), (one, [b"1"]), (two, [b"2"])) == [ACCEPTED] * 3
    assert judge(manager, (one, [b"1"]), (one, [b"another"])) == [ACCEPTED, REFUSED_IDENTITY]
    assert judge(manager, (two, [b"2"]), (two, [b"2"]), (identified(3), [b"3"])) == [ACCEPTED] * 3
    for judged in manager.publisher.judge_all([(one, [b"1"], None), (one, [b"1"], None)], NOW_MS):
        assert manager.publisher.apply(judged, NOW_MS) == ACCEPTED
    assert (queue.depth(), manager.publisher.repeated_count) == (1, 1)


def test_subscribers_are_asked_for_room_for_all_publishes_together(manager: QueueManager) -> None:
    plan = plan_to(manager, make_queue(manager))
    plan.accompany(Subscribers(room=2))
    assert judge(manager, (plan, [b"1"]), (plan, [b"2"]), (plan, [b"3"])) == [0, 0, REFUSED_SESSION]


def change_policy(manager: QueueManager, queue: Queue) -> None:
    definition = queue.definition()
    definition.policy = make_policy(depth_max=1, overflow=REJECT)
    manager.queues.redefine(queue, definition)


def pause(manager: QueueManager, queue: Queue) -> None:
    queue.set_pause(Pause(publish=True))


@pytest.mark.parametrize("change", [change_policy, pause])
def test_change_of_a_queue_holds_for_the_next_publish_of_a_plan(
    manager: QueueManager, change: Callable[[QueueManager, Queue], None]
) -> None:
    queue = make_queue(manager)
    plan = plan_to(manager, queue)
    assert manager.publish(plan, [b"x"], NOW_MS) == ACCEPTED
    change(manager, queue)
    assert manager.publish(plan, [b"x"], NOW_MS) in (REFUSED_DEPTH, REFUSED_PAUSED)
