"""What the queue manager refuses and counts."""

from typing import Any

import pytest

from config import limits
from queue_manager.errors import (
    AccessRefused,
    GroupNotFound,
    InvalidAddress,
    LimitReached,
    PreconditionFailed,
    QueueNotFound,
    ResourceLocked,
)
from queue_manager.log.removals import QueueRemoval
from queue_manager.manager import QueueManager
from queue_manager.options import PublishOptions
from queue_manager.outcomes import ACCEPTED, REFUSED_DEPTH, REFUSED_IN_PART, REFUSED_SIZE, UNROUTED
from queue_manager.policy import REJECT_DLX
from queue_manager.routing.plan import PublishPlan
from queue_manager.rules.dead_letters import keep_properties, no_copies, no_origin
from queue_manager.spec_records import QueueDefinition
from storage.envelope import PROPERTIES_AMQP, decode_envelope, read_head, vary
from storage.records import metadata
from tests.unit.queue_manager.managers import (
    NOW_MS,
    Sink,
    consume,
    make_manager,
    make_policy,
    make_queue,
    publish,
)


def test_a_publish_to_a_full_queue_is_refused_as_a_whole() -> None:
    manager = make_manager()
    queue = make_queue(manager, depth_max=10)
    assert publish(manager, 8) == ACCEPTED
    assert publish(manager, 3) == REFUSED_DEPTH
    assert publish(manager, 2) == ACCEPTED
    _, sink = consume(manager, queue, credit_max=4)
    manager.dispatch(NOW_MS)
    assert publish(manager, 4) == ACCEPTED
    manager.requeue(sink.claims, NOW_MS)
    assert publish(manager, 1) == REFUSED_DEPTH
    assert queue.log.tail.next_offset == 14


def test_a_message_too_large_for_one_of_its_queues_is_refused_by_all() -> None:
    manager = make_manager()
    small = make_queue(manager, "small", message_bytes_max=10)
    large = make_queue(manager, "large")
    plan = manager.plan("shop/eu", 0, b"", True)
    plan.aim_at((small, large), 2)
    assert manager.publish(plan, [b"x" * 11], NOW_MS) == REFUSED_SIZE
    assert manager.publish(plan, [b"x" * 10, b"x" * 10], NOW_MS) == ACCEPTED
    assert large.log.tail.next_offset == 2


def make_both(full: str, free: str) -> tuple[QueueManager, PublishPlan]:
    """Two queues of these kinds and a plan for both; the first has room for one message."""
    manager = make_manager()
    queues = (
        make_queue(manager, "full", durable=full == "durable", depth_max=1),
        make_queue(manager, "free", durable=free == "durable"),
    )
    plan = manager.plan("shop/eu", 0, b"", True)
    plan.aim_at(queues, sum(queue.durable for queue in queues))
    return manager, plan


@pytest.mark.parametrize("full", ["durable", "ephemeral"])
@pytest.mark.parametrize("free", ["durable", "ephemeral"])
def test_a_full_queue_keeps_a_message_from_no_other(full: str, free: str) -> None:
    manager, plan = make_both(full, free)
    assert manager.publish(plan, [b"1"], NOW_MS) == ACCEPTED
    assert manager.publish(plan, [b"2"], NOW_MS) == REFUSED_IN_PART
    assert [queue.name for queue in plan.full] == ["full"]
    assert [queue.log.next_offset for queue in plan.queues] == [1, 2]
    _, sink = consume(manager, manager.queues.find("free"))
    manager.dispatch(NOW_MS)
    assert [claim.message.body for claim in sink.claims] == [b"1", b"2"]


def test_of_several_messages_none_is_taken_where_one_queue_has_no_room_for_all() -> None:
    manager, plan = make_both("durable", "durable")
    assert manager.publish(plan, [b"1", b"2"], NOW_MS) == REFUSED_DEPTH
    assert [queue.log.next_offset for queue in plan.queues] == [0, 0]


def test_where_all_queues_are_full_none_takes_a_message() -> None:
    manager, plan = make_both("durable", "durable")
    plan.aim_at((manager.queues.find("full"), make_queue(manager, "full as well", depth_max=1)), 2)
    assert manager.publish(plan, [b"1"], NOW_MS) == ACCEPTED
    assert manager.publish(plan, [b"2"], NOW_MS) == REFUSED_DEPTH
    assert len(plan.full) == 2


def test_a_message_that_a_full_queue_did_not_take_is_dead_lettered_for_that_queue_only() -> None:
    manager, plan = make_both("durable", "durable")
    dead = make_queue(manager, "dead")
    policy = make_policy(depth_max=1, overflow=REJECT_DLX, dead_letter="dead")
    manager.queues.redefine(manager.queues.find("full"), QueueDefinition("full", durable=True, policy=policy))
    manager.queues.dead_letters.install(keep_properties, no_origin, no_copies, lambda queue, reason: None)  # type: ignore[misc]
    for body in (b"1", b"2"):
        manager.publish(plan, [body], NOW_MS)
    assert [queue.log.next_offset for queue in plan.queues] == [1, 2]
    assert dead.log.next_offset == 1


def test_messages_for_later_go_to_the_queues_in_memory_that_have_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "EPHEMERAL_BYTES_PER_QUEUE_MAX", 10_000)
    manager = make_manager()
    plan = manager.plan("shop/eu", 0, b"", True, PublishOptions(delay_ms=1_000))
    queues = (make_queue(manager, "memory", durable=False), make_queue(manager, "durable"))
    plan.aim_at(queues, sum(queue.durable for queue in queues))
    outcomes = [manager.publish(plan, [bytes(3_000)], NOW_MS) for _ in range(5)]
    assert outcomes[0] == ACCEPTED
    assert outcomes[-1] == REFUSED_IN_PART
    assert [queue.name for queue in plan.full] == ["memory"]
    assert queues[0].rules.scheduled_count() < queues[1].rules.scheduled_count() == 5


def test_a_queue_in_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EPHEMERAL_BYTES_PER_QUEUE_MAX", 10_000)
    manager = make_manager()
    outcomes = [publish(manager, 5, "$queue/temp") for _ in range(10)]
    assert outcomes[0] == ACCEPTED
    assert outcomes[-1] == REFUSED_DEPTH


def test_unknown_queues_are_made_only_where_that_is_allowed() -> None:
    manager = make_manager()
    assert publish(manager, 1, "$queue/new/eu") == ACCEPTED
    assert not manager.queues.find("new").durable
    strict = make_manager(auto_create=False)
    with pytest.raises(QueueNotFound):
        strict.publisher.route("$queue/new/eu", NOW_MS)
    with pytest.raises(QueueNotFound):
        strict.queues.find_or_create("new", None, NOW_MS)
    assert len(strict.queues) == 0
    plan = strict.plan("nowhere", 0, b"", True)
    assert strict.publish(plan, [b""], NOW_MS) == UNROUTED


def test_a_queue_bound_elsewhere_is_not_made_a_second_time() -> None:
    manager = make_manager()
    definition = QueueDefinition("jobs", durable=True, policy=make_policy(), topics=("shop/#",))
    manager.queues.declare(definition, NOW_MS)
    with pytest.raises(QueueNotFound):
        manager.publisher.route("$queue/jobs/eu", NOW_MS)


def test_declaring_again() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    assert make_queue(manager) is queue
    with pytest.raises(PreconditionFailed):
        make_queue(manager, durable=False)


def test_an_exclusive_queue_is_its_owner_s() -> None:
    manager = make_manager()
    me = object()
    definition = QueueDefinition("mine", durable=False, policy=make_policy(), owner=me)
    queue = manager.queues.declare(definition, NOW_MS)
    assert manager.queues.find("mine", me) is queue
    for owner in (None, object()):
        with pytest.raises(ResourceLocked):
            manager.queues.find("mine", owner)
    with pytest.raises(ResourceLocked):
        manager.queues.declare(QueueDefinition("mine", durable=False, policy=make_policy()), NOW_MS)


def test_exclusive_consumers_are_alone_in_their_group() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    first, _ = consume(manager, queue, exclusive=True)
    with pytest.raises(AccessRefused):
        consume(manager, queue)
    consume(manager, queue, "other")
    manager.consumption.unsubscribe(first, NOW_MS)
    consume(manager, queue)
    with pytest.raises(AccessRefused):
        consume(manager, queue, exclusive=True)


def test_deleting_conditionally() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    publish(manager, 3)
    consumer, sink = consume(manager, queue, credit_max=1)
    manager.dispatch(NOW_MS)
    with pytest.raises(PreconditionFailed):
        manager.queues.delete(queue, NOW_MS, if_unused=True)
    with pytest.raises(PreconditionFailed):
        manager.queues.delete(queue, NOW_MS, if_empty=True)
    assert manager.queues.delete(queue, NOW_MS) == 2
    assert len(sink.cancelled_reasons) == 1
    assert manager.ack(sink.claims, NOW_MS) == 1
    manager.consumption.unsubscribe(consumer, NOW_MS)
    assert len(manager.queues) == 0


def test_a_deleted_queue_gives_nothing_to_who_pulls() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    publish(manager, 3)
    sink = Sink()
    puller = manager.consumption.puller(queue, sink, "p", lease_ms=1_000)
    assert manager.consumption.pull(puller, False, NOW_MS)
    manager.queues.delete(queue, NOW_MS)
    assert manager.consumption.pull(puller, False, NOW_MS) == 0
    assert sink.offsets == [0]


def test_an_auto_delete_queue_goes_with_its_last_consumer() -> None:
    manager = make_manager()
    definition = QueueDefinition("temp", durable=False, policy=make_policy(), auto_delete=True)
    queue = manager.queues.declare(definition, NOW_MS)
    one, _ = consume(manager, queue)
    two, _ = consume(manager, queue)
    manager.consumption.unsubscribe(one, NOW_MS)
    assert "temp" in manager.queues
    manager.consumption.unsubscribe(two, NOW_MS)
    assert "temp" not in manager.queues


def test_an_unused_queue_in_memory_expires_even_if_it_never_had_a_consumer() -> None:
    manager = make_manager()
    publish(manager, 1, "$queue/temp")
    publish(manager, 1, "$queue/used")
    consumer, _ = consume(manager, manager.queues.find("used"))
    manager.expire(NOW_MS + 299_999)
    assert {queue.name for queue in manager.queues} == {"temp", "used"}
    manager.expire(NOW_MS + 300_000)
    assert {queue.name for queue in manager.queues} == {"used"}
    manager.consumption.unsubscribe(consumer, NOW_MS + 400_000)
    manager.expire(NOW_MS + 699_999)
    assert {queue.name for queue in manager.queues} == {"used"}
    manager.expire(NOW_MS + 700_000)
    assert len(manager.queues) == 0


def test_declaring_again_and_pulling_are_use() -> None:
    manager = make_manager()
    publish(manager, 1, "$queue/temp")
    queue = manager.queues.find("temp")
    manager.expire(NOW_MS + 200_000)
    puller = manager.consumption.puller(queue, Sink(), "p", lease_ms=1_000)
    assert manager.consumption.pull(puller, True, NOW_MS + 200_000)
    manager.expire(NOW_MS + 400_000)
    assert "temp" in manager.queues
    manager.queues.declare(queue.definition(), NOW_MS + 400_000)
    manager.expire(NOW_MS + 600_000)
    assert "temp" in manager.queues
    manager.expire(NOW_MS + 700_000)
    assert "temp" not in manager.queues


def test_finding_a_claim_by_its_offset() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    publish(manager, 2)
    _, sink = consume(manager, queue, "g", "eu")
    manager.dispatch(NOW_MS)
    assert manager.consumption.find_claim(queue, "g@eu", 1) is sink.claims[1]
    with pytest.raises(GroupNotFound):
        manager.consumption.find_claim(queue, "g", 1)
    manager.ack(sink.claims, NOW_MS)
    with pytest.raises(InvalidAddress):
        manager.consumption.find_claim(queue, "g@eu", 1)


def test_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUPS_PER_QUEUE_MAX", 2)
    monkeypatch.setattr(limits, "CONSUMERS_PER_GROUP_MAX", 2)
    manager = make_manager()
    queue = make_queue(manager)
    for _ in range(2):
        consume(manager, queue, "a")
    with pytest.raises(LimitReached):
        consume(manager, queue, "a")
    consume(manager, queue, "b")
    with pytest.raises(LimitReached):
        consume(manager, queue, "c")


def test_a_queue_made_by_use_can_be_declared_durable_only_when_its_name_is_free() -> None:
    """The messages it holds survive the attempt."""
    manager = make_manager()
    queue = make_queue(manager)
    manager.queues.delete(queue, NOW_MS)
    publish(manager, 3)  # in memory, while the records of the durable one are still being removed
    with pytest.raises(Exception, match="being deleted"):
        make_queue(manager)
    assert manager.queues.find("jobs").ready_count() == 3
    [removal] = [done for done in manager.context.removals if isinstance(done, QueueRemoval)]
    manager.queues.removing.end(removal)
    assert not manager.queues.removing
    assert make_queue(manager).durable
    assert manager.queues.find("jobs").ready_count() == 3


@pytest.mark.parametrize("sizes", [[1], [40, 40, 40], [100] * 7, [1, 100, 1, 100]])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_messages_with_properties_of_their_own_end_log_entries_where_those_are_full(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], before: int
) -> None:
    monkeypatch.setattr(limits, "LOG_ENTRY_MESSAGES_MAX", 4)
    monkeypatch.setattr(limits, "LOG_ENTRY_BYTES_MAX", 300)
    manager = make_manager()
    queue = make_queue(manager)
    if before:
        publish(manager, before)
    plan = manager.plan("$queue/jobs/eu", PROPERTIES_AMQP, b"", True)
    plan.aim(manager.publisher.route(plan.topic, NOW_MS))
    raws = [bytes([at]) * size for at, size in enumerate(sizes)]
    templates = vary(plan.template, raws, [True] * len(raws))
    assert manager.publish(plan, [b"%d" % at for at in range(len(raws))], NOW_MS, templates) == ACCEPTED
    offsets: list[Any] = []
    properties: list[Any] = []
    commit = manager.seal(NOW_MS)
    assert commit is not None
    log = manager.context.metadata_log
    first_key = log.entry_key(queue.log.log_id, queue.log.head_sequence)
    for value in [value for key, value in sorted(commit.puts.items()) if key.startswith(first_key[:-1])]:
        messages = metadata.decode(value)
        assert read_head(messages[0][1])[1] == len(offsets)
        assert len(messages) <= 4
        assert sum(12 + len(envelope) for _, envelope in messages[:-1]) < 300
        offsets += [read_head(envelope)[1] for _, envelope in messages]
        properties += [decode_envelope(envelope)[2].properties for _, envelope in messages]
    assert offsets == list(range(before + len(sizes)))
    assert properties[before:] == raws
    assert [message.template.properties for message in queue.log.tail.slice(before, 99)] == raws


def test_a_plan_for_a_name_is_stale_once_the_queue_of_that_name_is_another() -> None:
    manager = make_manager()
    plan = manager.plan("jobs", 0, b"", True)
    plan.aim(manager.queues.route_to("jobs"))
    assert manager.publish(plan, [b"1"], NOW_MS) == UNROUTED
    assert not plan.is_current
    queue = make_queue(manager, durable=False)
    plan.aim(manager.queues.route_to("jobs"))
    assert manager.publish(plan, [b"1"], NOW_MS) == ACCEPTED
    assert plan.is_current
    manager.queues.delete(queue, NOW_MS)
    make_queue(manager, durable=False)
    assert not plan.is_current


def test_a_deleted_queue_leaves_no_timer_of_a_reset_or_of_a_late_consumer() -> None:
    manager = make_manager()
    queue = make_queue(manager, done_retention_ms=60_000)
    consume(manager, queue, credit_max=2, lease_ms=1_000)
    consume(manager, queue, credit_max=2, lease_ms=1_000)
    publish(manager, 9)
    manager.dispatch(NOW_MS)
    manager.expire(NOW_MS + 1_001)
    before = len(manager.context.timers)
    assert before
    manager.reset_group(queue, "", [(7, 0)], NOW_MS + 1_002, force=True)
    assert len(manager.context.timers) > 0
    manager.queues.delete(queue, NOW_MS + 1_003)
    assert len(manager.context.timers) == 0
