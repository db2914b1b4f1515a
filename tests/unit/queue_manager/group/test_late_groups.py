"""Groups made after others have claimed messages: they begin at the oldest message that is kept."""

from __future__ import annotations

import pytest

from broker.engine.client.messages import MessageClient
from queue_manager.claims.claim import UNLIMITED, Verdict
from queue_manager.filters.consumer_filter import consumer_filter
from queue_manager.group.group import Group
from queue_manager.manager import QueueManager
from queue_manager.options import PublishOptions
from queue_manager.queue.queue import Queue
from storage.records import payload
from tests.memory_store import MemoryStore
from tests.model.harness import FakeClock, load, open_shard, run
from tests.unit.queue_manager.managers import (
    NOW_MS,
    Sink,
    consume,
    make_manager,
    make_queue,
    publish,
)

KEPT = pytest.mark.parametrize("durable", [True, False], ids=["durable", "in memory"])


def offsets_of(manager: QueueManager, queue: Queue, group: str = "late", pattern: str = "#") -> list[int]:
    """What a group that comes now is given."""
    _, sink = consume(manager, queue, group, pattern)
    manager.dispatch(NOW_MS)
    assert [claim.attempts for claim in sink.claims] == [1] * len(sink.claims)
    return sink.offsets


@KEPT
def test_group_is_given_what_another_holds(durable: bool) -> None:
    manager = make_manager()
    queue = make_queue(manager, durable=durable)
    publish(manager, 4)
    _, first = consume(manager, queue, "first", credit_max=3)
    manager.dispatch(NOW_MS)
    manager.ack(first.claims[1:2], NOW_MS)
    manager.requeue(first.claims[:1], NOW_MS)
    kept = [0, 1, 2, 3] if durable else [0, 2, 3]  # what is done is kept for a while on the store
    assert offsets_of(manager, queue) == kept


@pytest.mark.parametrize("way", ["returned", "delayed", "returning"])
def test_group_is_given_what_came_back_to_another(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "returning":
        monkeypatch.setattr("config.limits.RETURNED_PER_STEP_MAX", 1)
    manager = make_manager()
    queue = make_queue(manager, durable=False)
    publish(manager, 3)
    consumer, first = consume(manager, queue, "first")
    manager.dispatch(NOW_MS)
    manager.consumption.unsubscribe(consumer, NOW_MS, keep_claims=True)
    consumer.group.requeue(first.claims, Verdict(NOW_MS, delay_ms=5_000 if way == "delayed" else 0))  # type: ignore[attr-defined]
    assert offsets_of(manager, queue) == [0, 1, 2]
    assert queue.groups.find("first").waiting_count() == 3


def test_basic_get_finds_what_waits_in_another_group() -> None:
    manager = make_manager()
    queue = make_queue(manager, durable=False)
    publish(manager, 1)
    consumer, _ = consume(manager, queue, "first")
    manager.dispatch(NOW_MS)
    manager.consumption.unsubscribe(consumer, NOW_MS)
    sink = Sink()
    puller = manager.consumption.puller(queue, sink, "get", lease_ms=1_000)
    assert manager.consumption.pull(puller, False, NOW_MS) == 1
    assert sink.offsets == [0]


def test_group_is_given_of_that_only_what_its_pattern_wants() -> None:
    manager = make_manager()
    queue = make_queue(manager, durable=False)
    for topic in ("eu", "us", "eu"):
        publish(manager, 1, f"$queue/jobs/{topic}")
    consume(manager, queue, "first")
    manager.dispatch(NOW_MS)
    assert offsets_of(manager, queue, "late", "eu") == [0, 2]
    assert offsets_of(manager, queue, "later", "us") == [1]


def test_group_is_given_what_others_took_out_of_order() -> None:
    manager = make_manager()
    manager.context.fields.read_by(lambda template: {"n": int(template.topic.split("/")[-1])})
    queue = make_queue(manager, durable=False)
    for number in (0, 1, 0, 1):
        publish(manager, 1, f"$queue/jobs/{number}")
    sink = Sink()
    manager.consumption.subscribe(
        queue,
        "first",
        "#",
        sink,
        consumer_id="c",
        credit_max=UNLIMITED,
        no_ack=False,
        exclusive=False,
        lease_ms=30_000,
        wanted=consumer_filter("n = 1", {}),
    )
    manager.dispatch(NOW_MS)
    assert sink.offsets == [1, 3]
    assert offsets_of(manager, queue) == [0, 1, 2, 3]
    manager.ack(sink.claims, NOW_MS)
    assert offsets_of(manager, queue, "later") == [0, 1, 2, 3]


def test_priorities_are_kept_for_it() -> None:
    manager = make_manager()
    queue = make_queue(manager, durable=False, priority_max=1)
    for priority in (0, 1, 0):
        plan = manager.plan("$queue/jobs/eu", 0, b"", True, PublishOptions(priority=priority))
        plan.aim(manager.publisher.route("$queue/jobs/eu", NOW_MS))
        manager.publish(plan, [b"%d" % priority], NOW_MS)
    _, first = consume(manager, queue, "first", credit_max=2)
    manager.dispatch(NOW_MS)
    assert offsets_of(manager, queue)[0] == first.offsets[0]
    assert queue.groups.find("late").in_flight_count() == 3


@pytest.mark.parametrize(("start", "expected"), [(0, [0, 1, 2, 3]), (1, [1, 2, 3]), (3, [3]), (4, [])])
def test_group_made_at_an_offset_is_given_what_lies_behind_it(start: int, expected: list[int]) -> None:
    manager = make_manager()
    queue = make_queue(manager, durable=False)
    publish(manager, 4)
    consume(manager, queue, "first", credit_max=3)
    manager.dispatch(NOW_MS)
    manager.create_group(queue, "late", places=[(start, 0)])
    assert offsets_of(manager, queue) == expected


def test_reset_brings_back_what_was_claimed_and_not_settled() -> None:
    manager = make_manager()
    queue = make_queue(manager, durable=False)
    publish(manager, 4)
    _, first = consume(manager, queue, "first", credit_max=3)
    manager.dispatch(NOW_MS)
    manager.ack(first.claims[1:2], NOW_MS)
    manager.reset_group(queue, "first", [(0, 0)], NOW_MS, force=True)
    manager.dispatch(NOW_MS)
    assert first.offsets == [0, 1, 2, 0, 2, 3]


@pytest.mark.parametrize("crashes", [False, True], ids=["", "after a crash"])
@pytest.mark.parametrize("holds", [False, True], ids=["waiting", "in flight"])
def test_group_is_given_what_was_redriven_for_another(holds: bool, crashes: bool) -> None:
    store, clock = MemoryStore(), FakeClock(NOW_MS)
    shard = open_shard(store, clock)
    manager = shard.manager
    queue = make_queue(manager, done_retention_ms=0)
    publish(manager, 2)
    early, first = consume(manager, queue, "first", credit_max=1)
    manager.dispatch(NOW_MS)
    manager.reject(first.claims, NOW_MS)
    manager.consumption.unsubscribe(early, NOW_MS)
    run(shard.commit_once(everything=True))
    run(shard.sweep_once())
    assert queue.log.head_offset == 1
    assert run(MessageClient(shard).redrive("jobs", "first", limit=None, offsets=None)) == 1
    if holds:
        consume(manager, queue, "first", credit_max=1)
        manager.dispatch(NOW_MS)
    manager.consumption.group(queue, "late", "#")
    run(shard.commit_once())
    if crashes:
        run(shard.commit_once(everything=True))
        store = store.crash()
        shard = open_shard(store, clock)
        manager = shard.manager
        queue = manager.queues.find("jobs")
    _, sink = consume(manager, queue, "late")
    for _ in range(5):
        manager.dispatch(NOW_MS)
        load(shard)
    assert sink.offsets == [0, 1]
    assert [claim.message.body for claim in sink.claims] == [b"x", b"x"]
    _drain_group(manager, queue.groups.find("first"), shard)
    manager.ack(sink.claims, NOW_MS)
    for _ in range(3):
        run(shard.commit_once(everything=True))
        run(shard.sweep_once())
    assert not [key for key in store._rows if key.startswith(payload.prefix())], "payloads are left"


def _drain_group(manager: QueueManager, group: Group, shard: object) -> None:
    """Have everything done there."""
    for consumer in list(group.consumers):
        manager.ack(list(consumer.in_flight.values()), NOW_MS)
        manager.consumption.unsubscribe(consumer, NOW_MS)
    queue = manager.queues.find("jobs")
    _, sink = consume(manager, queue, "first")
    for _ in range(5):
        manager.dispatch(NOW_MS)
        load(shard)  # type: ignore[arg-type]
    manager.ack(sink.claims, NOW_MS)
