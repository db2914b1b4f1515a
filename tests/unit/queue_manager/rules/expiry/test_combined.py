"""Expiry and limits beside message groups, filters, priorities, staged epochs, schedules, deduplication."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.errors import LimitReached
from queue_manager.manager import QueueManager
from queue_manager.moving.redrive import FailedRedrive
from queue_manager.options import PublishOptions
from queue_manager.outcomes import ACCEPTED, REFUSED_DEPTH
from queue_manager.policy import DROP_HEAD
from queue_manager.queue.queue import Queue
from queue_manager.stage_tags import EpochPart, StageTag
from tests.unit.queue_manager.managers import (
    NOW_MS,
    Sink,
    consume,
    make_manager,
    make_queue,
    publish,
    waiting_bytes,
)
from tests.unit.queue_manager.selecting import fields_of, select

DURABLE = pytest.mark.parametrize("durable", [True, False])


@pytest.fixture
def manager() -> QueueManager:
    return make_manager()


def send(
    manager: QueueManager, *names: str, size: int = 1, now_ms: int = NOW_MS, **options: Any
) -> list[int]:
    """Publish one message for each last level of the topic; gives the outcomes."""
    outcomes = []
    for name in names:
        plan = manager.plan(f"$queue/jobs/{name}", 0, b"", True, PublishOptions(**options))
        plan.aim(manager.publisher.route(plan.topic, now_ms))
        outcomes.append(manager.publish(plan, [name.encode().ljust(size)], now_ms))
    return outcomes


def bodies(sink: Sink) -> str:
    """What a consumer got, in order."""
    return " ".join((claim.message.body or b"").decode().strip() for claim in sink.claims)


# message groups: what waits for the consumer of its key was taken from the log already


def keyed(manager: QueueManager, **fields: Any) -> tuple[Queue, Queue]:
    """A queue whose keys are the letters of the last level, closed by one with `!`, and its dead letters."""
    manager.queues.maker.find_group_keys_by(
        lambda template: (template.topic[-2], template.topic.endswith("!"))
    )
    return make_queue(manager, message_groups="sticky", dead_letter="dead", **fields), make_queue(
        manager, "dead"
    )


def placed_count(queue: Queue) -> int:
    return sum(cursor.dispatcher.held_count(cursor) for cursor in queue.groups.find("").cursors)


@DURABLE
@pytest.mark.parametrize("own", [True, False])
def test_what_waits_for_its_consumer_expires(manager: QueueManager, durable: bool, own: bool) -> None:
    queue, dead = keyed(manager, durable=durable, message_ttl_ms=0 if own else 1_000)
    busy, sink = consume(manager, queue, credit_max=1)
    ttl = {"ttl_ms": 1_000} if own else {}
    send(manager, "a1", **ttl)
    manager.dispatch(NOW_MS)
    _, other = consume(manager, queue)
    send(manager, "a2", "a3", "b4", **ttl)
    manager.dispatch(NOW_MS)
    assert (bodies(sink), bodies(other), placed_count(queue)) == ("a1", "b4", 2)
    manager.fire_timers(NOW_MS + 1_000)
    assert (placed_count(queue), queue.ready_count(), dead.ready_count()) == (0, 0, 2)
    manager.ack(list(busy.in_flight.values()), NOW_MS + 1_000)
    send(manager, "a5", now_ms=NOW_MS + 1_000)
    manager.dispatch(NOW_MS + 1_000)
    assert bodies(sink) == "a1 a5"


@DURABLE
def test_a_claim_in_time_for_its_key_goes_without_the_timer(manager: QueueManager, durable: bool) -> None:
    queue, dead = keyed(manager, durable=durable, message_ttl_ms=1_000)
    busy, sink = consume(manager, queue, credit_max=1)
    send(manager, "a1")
    manager.dispatch(NOW_MS)
    consume(manager, queue)
    send(manager, "a2")
    send(manager, "a3", now_ms=NOW_MS + 500)
    manager.dispatch(NOW_MS + 500)
    manager.ack(list(busy.in_flight.values()), NOW_MS + 1_200)
    manager.dispatch(NOW_MS + 1_200)
    assert (bodies(sink), dead.ready_count()) == ("a1 a3", 1)


@DURABLE
def test_who_asks_for_one_gets_nothing_that_has_expired(manager: QueueManager, durable: bool) -> None:
    queue, dead = keyed(manager, durable=durable, message_ttl_ms=1_000)
    consume(manager, queue, credit_max=0)
    send(manager, "a1", "b2")
    send(manager, "a3", "b4", now_ms=NOW_MS + 500)
    sink = Sink()
    puller = manager.consumption.puller(queue, sink, "get", lease_ms=30_000)
    assert puller.group.pull(puller, 1, NOW_MS + 1_200) == 1
    assert (bodies(sink), dead.ready_count()) == ("a3", 2)


@DURABLE
@pytest.mark.parametrize("by_bytes", [False, True])
def test_the_oldest_goes_also_where_it_waits_for_its_consumer(
    manager: QueueManager, durable: bool, by_bytes: bool
) -> None:
    bound = {"bytes_max": 30} if by_bytes else {"depth_max": 3}
    queue, dead = keyed(manager, durable=durable, overflow=DROP_HEAD, **bound)
    busy, sink = consume(manager, queue, credit_max=1)
    send(manager, "a1", size=10)
    manager.dispatch(NOW_MS)
    consume(manager, queue)
    send(manager, "a2", "a3", "a4", size=10)
    manager.dispatch(NOW_MS)
    assert placed_count(queue) == 3
    send(manager, "a5", "a6", size=10)
    assert (queue.ready_count(), dead.ready_count()) == (3, 2)
    if by_bytes:
        assert waiting_bytes(queue) == 30
    for _ in range(4):
        manager.ack(list(busy.in_flight.values()), NOW_MS)
        manager.dispatch(NOW_MS)
    assert bodies(sink) == "a1 a4 a5 a6"
    assert queue.ready_count() == 0
    if by_bytes:
        assert waiting_bytes(queue) == 0


@DURABLE
def test_what_waits_for_its_consumer_counts_for_refusals(manager: QueueManager, durable: bool) -> None:
    queue, _ = keyed(manager, durable=durable, depth_max=2, bytes_max=100)
    busy, _ = consume(manager, queue, credit_max=1)
    send(manager, "a1")
    manager.dispatch(NOW_MS)
    consume(manager, queue)
    assert send(manager, "a2", "a3") == [ACCEPTED, ACCEPTED]
    manager.dispatch(NOW_MS)
    assert placed_count(queue) == 2
    assert send(manager, "b4") == [REFUSED_DEPTH]
    assert waiting_bytes(queue) == 4
    manager.ack(list(busy.in_flight.values()), NOW_MS)
    manager.dispatch(NOW_MS)
    assert send(manager, "b4") == [ACCEPTED]


@DURABLE
@pytest.mark.parametrize("how", ["expires", "is purged"])
def test_a_key_whose_closing_message_goes_is_free(manager: QueueManager, durable: bool, how: str) -> None:
    queue, _ = keyed(manager, durable=durable)
    owner, sink = consume(manager, queue, credit_max=2)
    send(manager, "a1", "z2")
    manager.dispatch(NOW_MS)
    _, other = consume(manager, queue)
    send(manager, "z3", "a!", ttl_ms=1_000)
    manager.dispatch(NOW_MS)
    manager.ack(list(owner.in_flight.values())[:1], NOW_MS)
    manager.dispatch(NOW_MS)
    assert (bodies(sink), placed_count(queue)) == ("a1 z2 z3", 1)
    if how == "expires":
        manager.fire_timers(NOW_MS + 1_000)
    else:
        queue.purge(NOW_MS)
    send(manager, "a5", now_ms=NOW_MS + 1_000)
    manager.dispatch(NOW_MS + 1_000)
    assert bodies(other) == "a5"


@DURABLE
def test_what_came_back_goes_before_what_waits_behind_something_expired(
    manager: QueueManager, durable: bool
) -> None:
    queue, _ = keyed(manager, durable=durable)
    sink = Sink()
    puller = manager.consumption.puller(queue, sink, "get", lease_ms=30_000)
    send(manager, "a1")
    assert puller.group.pull(puller, 1, NOW_MS) == 1
    other, _ = consume(manager, queue)
    send(manager, "a2", ttl_ms=500)
    send(manager, "b3", "a4")
    manager.dispatch(NOW_MS)
    assert placed_count(queue) == 2
    manager.consumption.unsubscribe(other, NOW_MS)
    for _ in range(2):
        assert puller.group.pull(puller, 1, NOW_MS + 1_200) == 1
    assert bodies(sink) == "a1 b3 a4"


# filters


@DURABLE
@pytest.mark.parametrize("own", [True, False])
def test_filters_find_nothing_that_has_expired(manager: QueueManager, durable: bool, own: bool) -> None:
    manager.context.fields.read_by(fields_of)
    queue = make_queue(manager, durable=durable, message_ttl_ms=0 if own else 1_000, dead_letter="dead")
    dead = make_queue(manager, "dead")
    consumer, sink = select(manager, queue, "region = 'eu'", credit_max=1)
    ttl = {"ttl_ms": 1_000} if own else {}
    send(manager, "eu", "us", "eu", "eu", **ttl)
    manager.dispatch(NOW_MS)  # it has found the next ones, too
    send(manager, "eu", now_ms=NOW_MS + 500, **ttl)
    manager.ack(list(consumer.in_flight.values()), NOW_MS + 1_200)
    manager.dispatch(NOW_MS + 1_200)
    assert sink.offsets == [0, 4]
    manager.fire_timers(NOW_MS + 1_200)
    assert (queue.ready_count(), dead.ready_count()) == (0, 3)


@DURABLE
def test_a_group_with_a_selector_gives_up_what_it_wants(manager: QueueManager, durable: bool) -> None:
    manager.context.fields.read_by(fields_of)
    queue = make_queue(manager, durable=durable, message_ttl_ms=1_000, dead_letter="dead")
    dead = make_queue(manager, "dead")
    _, sink = select(manager, queue, group="g", group_selector="region = 'eu'", credit_max=0)
    send(manager, "eu", "us", "eu")
    manager.fire_timers(NOW_MS + 1_000)
    assert dead.ready_count() == 3, "what it does not want is kept for as long"
    assert queue.groups.find("g").ready_count() == 0
    assert sink.offsets == []


# priorities


@DURABLE
@pytest.mark.parametrize("groups", [[], [""], ["a", "b"]])
def test_bytes_count_over_all_priorities(manager: QueueManager, durable: bool, groups: list[str]) -> None:
    queue = make_queue(manager, durable=durable, priority_max=2, bytes_max=30, depth_max=3)
    for group in groups:
        queue.group(group)
    assert send(manager, "x", size=10, priority=2) == [ACCEPTED]
    assert send(manager, "x", size=15, priority=0) == [ACCEPTED]
    assert send(manager, "x", size=10, priority=1) == [REFUSED_DEPTH]
    assert send(manager, "x", size=1, priority=1) == [ACCEPTED]
    assert waiting_bytes(queue) == 26
    assert send(manager, "x", size=1, priority=2) == [REFUSED_DEPTH], "that would be four messages"


@DURABLE
@pytest.mark.parametrize("groups", [[], [""], ["a", "b"]])
@pytest.mark.parametrize("keyed_too", [False, True])
def test_bytes_that_are_too_many_go_from_the_least_urgent(
    manager: QueueManager, durable: bool, groups: list[str], keyed_too: bool
) -> None:
    manager.queues.maker.find_group_keys_by(lambda template: ("k", False))
    queue = make_queue(
        manager, durable=durable, priority_max=2, bytes_max=30, overflow=DROP_HEAD,
        message_groups="sticky" if keyed_too else "",
    )  # fmt: skip
    for group in groups:
        queue.group(group)
    for name, priority in (("p2", 2), ("p0", 0), ("q0", 0), ("p1", 1), ("q2", 2)):
        send(manager, name, size=10, priority=priority)
    assert (queue.ready_count(), waiting_bytes(queue)) == (3, 30)
    _, sink = consume(manager, queue, groups[0] if groups else "")
    manager.dispatch(NOW_MS)
    assert bodies(sink) == "p2 q2 p1"


# staged epochs


def finish(manager: QueueManager, now_ms: int = NOW_MS) -> dict[bytes, bytes]:
    """Close the open commit as if it were durable; gives what it put."""
    commit = manager.seal(now_ms)
    if commit is None:
        return {}
    manager.committed(commit)
    for waiter, tokens in commit.waiters.items():
        waiter.committed(tokens)
    return dict(commit.puts)


class Stager:
    """Stages and commits epochs; what is staged can be read by the sweep."""

    def __init__(self, manager: QueueManager) -> None:
        self.manager = manager
        self.rows: dict[bytes, bytes] = {}
        self.epoch = -1

    def commit(self, queue: Queue, count: int, now_ms: int = NOW_MS, **options: Any) -> None:
        """Stage rows of ten bytes and commit them."""
        self.epoch += 1
        send(self.manager, *["row"] * count, size=10, stage=StageTag("job", self.epoch, 0, "x"), **options)
        self.rows |= finish(self.manager)
        queue.rules.stage.commit("job", self.epoch, [EpochPart(0, "x", count)], now_ms)

    def sweep(self, now_ms: int) -> None:
        """Let the rows enter the queue."""
        for _ in range(8):
            self.rows |= finish(self.manager, now_ms)
            self.manager.fire_timers(now_ms)
            self.rows |= finish(self.manager, now_ms)
            while self.manager.context.loads:
                load: Any = self.manager.context.loads.pop()
                found = sorted(item for item in self.rows.items() if load.start <= item[0] < load.end)
                load.then(found[: load.limit], now_ms)


def test_staged_rows_live_from_when_they_enter_the_queue(manager: QueueManager) -> None:
    queue = make_queue(manager, dead_letter="dead", message_ttl_ms=2_000)
    dead = make_queue(manager, "dead")
    stager = Stager(manager)
    stager.commit(queue, 2, NOW_MS + 5_000, ttl_ms=1_000)
    stager.sweep(NOW_MS + 5_000)
    assert queue.ready_count() == 2
    manager.fire_timers(NOW_MS + 5_999)
    assert queue.ready_count() == 2
    manager.fire_timers(NOW_MS + 6_000)
    assert (queue.ready_count(), dead.ready_count()) == (0, 2)


@pytest.mark.parametrize("bound", [{"depth_max": 3}, {"bytes_max": 35}])
@pytest.mark.parametrize("priority_max", [0, 2])
def test_a_commit_beyond_the_limits_is_refused(
    manager: QueueManager, bound: dict[str, int], priority_max: int
) -> None:
    queue = make_queue(manager, priority_max=priority_max, **bound)
    queue.group("")
    stager = Stager(manager)
    stager.commit(queue, 2)
    assert send(manager, "x", "x", size=10) == [ACCEPTED, REFUSED_DEPTH], "rows on their way have their room"
    with pytest.raises(LimitReached, match="has no room for the 1 rows of the epoch"):
        stager.commit(queue, 1)
    stager.sweep(NOW_MS)
    assert queue.ready_count() == 3
    assert send(manager, "x", size=10) == [REFUSED_DEPTH]


def test_staged_rows_push_out_the_oldest(manager: QueueManager) -> None:
    queue = make_queue(manager, depth_max=3, overflow=DROP_HEAD, dead_letter="dead")
    dead = make_queue(manager, "dead")
    publish(manager, 2)
    stager = Stager(manager)
    stager.commit(queue, 3)
    stager.sweep(NOW_MS)
    assert (queue.ready_count(), queue.log.head_offset, dead.ready_count()) == (3, 2, 2)


# schedules


@DURABLE
def test_scheduled_messages_live_from_when_they_are_due(manager: QueueManager, durable: bool) -> None:
    queue = make_queue(manager, durable=durable, dead_letter="dead", message_ttl_ms=3_000)
    dead = make_queue(manager, "dead")
    send(manager, "x", delay_ms=5_000, ttl_ms=1_000)
    send(manager, "x", delay_ms=5_000)
    manager.fire_timers(NOW_MS + 4_999)
    assert (queue.ready_count(), dead.ready_count()) == (0, 0)
    manager.fire_timers(NOW_MS + 5_000)
    manager.fire_timers(NOW_MS + 5_999)
    assert (queue.ready_count(), dead.ready_count()) == (2, 0)
    manager.fire_timers(NOW_MS + 6_000)
    assert (queue.ready_count(), dead.ready_count()) == (1, 1)
    manager.fire_timers(NOW_MS + 8_000)
    assert (queue.ready_count(), dead.ready_count()) == (0, 2)


@DURABLE
@pytest.mark.parametrize("overflow", ["", DROP_HEAD])
def test_scheduled_messages_meet_the_limit_when_they_are_due(
    manager: QueueManager, durable: bool, overflow: str
) -> None:
    queue = make_queue(manager, durable=durable, depth_max=2, overflow=overflow)
    assert send(manager, "x", "x", "x", delay_ms=1_000) == [ACCEPTED] * 3
    publish(manager, 1)
    manager.fire_timers(NOW_MS + 1_000)
    assert queue.ready_count() == (2 if overflow else 4)


# deduplication


@DURABLE
def test_what_was_refused_may_be_sent_again(manager: QueueManager, durable: bool) -> None:
    queue = make_queue(manager, durable=durable, bytes_max=10)
    assert send(manager, "x", size=10) == [ACCEPTED]
    assert send(manager, "y", size=5, deduplication_id="y") == [REFUSED_DEPTH]
    queue.purge(NOW_MS)
    assert send(manager, "y", size=5, deduplication_id="y") == [ACCEPTED]
    assert send(manager, "z", size=5) == [ACCEPTED]
    assert send(manager, "y", size=5, deduplication_id="y") == [ACCEPTED], "a repetition needs no room"
    assert queue.ready_count() == 2


@DURABLE
@pytest.mark.parametrize("overflow", ["", DROP_HEAD])
def test_what_went_is_still_remembered(manager: QueueManager, durable: bool, overflow: str) -> None:
    queue = make_queue(manager, durable=durable, depth_max=1, overflow=overflow)
    send(manager, "x", deduplication_id="x", ttl_ms=1_000)
    if overflow:
        send(manager, "y")
    else:
        manager.fire_timers(NOW_MS + 1_000)
    before = queue.ready_count()
    assert send(manager, "x", deduplication_id="x", ttl_ms=1_000, now_ms=NOW_MS + 2_000) == [ACCEPTED]
    assert queue.ready_count() == before == (1 if overflow else 0)


# redriving


def test_a_message_redriven_too_late_expires(manager: QueueManager) -> None:
    queue = make_queue(manager, message_ttl_ms=1_000)
    consumer, sink = consume(manager, queue)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    group = queue.groups.find("")
    manager.reject(sink.claims, NOW_MS)
    assert group.failed_count() == 1
    assert FailedRedrive(group.cursors[0], 10, None).take_open(NOW_MS + 1_200, 10) == 1
    manager.dispatch(NOW_MS + 1_200)
    manager.fire_timers(NOW_MS + 1_200)
    assert sink.offsets == [0]
    assert (queue.ready_count(), consumer.in_flight) == (0, {})


def test_what_came_back_and_was_claimed_again_is_forgotten(manager: QueueManager) -> None:
    queue = make_queue(manager, message_ttl_ms=1 << 30, depth_max=5, overflow=DROP_HEAD)
    publish(manager, 6)
    _, sink = consume(manager, queue)
    for turn in range(400):
        manager.dispatch(NOW_MS)
        manager.requeue(sink.claims[-5:], NOW_MS)
        if not turn:
            publish(manager, 1)  # one too many: the oldest is looked for
    rules = queue.parts[0].use_rules()
    publish(manager, 1)
    assert len(rules.waiting._heap) < 1_100
    assert len(rules.oldest.of(queue.groups.find("").cursors[0])) < 1_100
    assert queue.ready_count() == 5


@DURABLE
def test_what_nobody_wants_of_one_priority_does_not_hold_up_the_next(
    manager: QueueManager, durable: bool
) -> None:
    queue, _ = keyed(manager, durable=durable, priority_max=2)
    consumer, sink = consume(manager, queue, "g", "a1/#", credit_max=0)
    send(manager, "a0", priority=2)
    send(manager, "a1", priority=0)
    manager.dispatch(NOW_MS)
    consumer.set_credit(10)
    consumer.group.want_dispatch()
    manager.dispatch(NOW_MS)
    assert bodies(sink) == "a1"


def test_a_redriven_message_counts_once_its_payload_was_read(manager: QueueManager) -> None:
    queue = make_queue(manager, bytes_max=100)
    _, sink = consume(manager, queue, credit_max=1)
    publish(manager, 1, size=10)
    manager.dispatch(NOW_MS)
    manager.reject(sink.claims, NOW_MS)
    message = sink.claims[0].message
    message.body = None  # as after a restart
    assert FailedRedrive(queue.groups.find("").cursors[0], 10, None).take_open(NOW_MS, 10) == 1
    load: Any = manager.context.loads.pop()
    assert load.message_ids == [message.message_id]
    load.then({message.message_id: b"x" * 10}, 1, NOW_MS)
    assert waiting_bytes(queue) == 10
