"""Taking away what deleted and purged queues leave, also where others hold the same payloads."""

from __future__ import annotations

import pytest

from broker.engine.client.messages import MessageClient
from broker.engine.removing import Removals
from config import limits
from queue_manager.errors import QueueBusy
from queue_manager.log.removals import QueueRemoval
from queue_manager.shard.context import Removal
from queue_manager.spec_records import QueueDefinition
from storage import metadata_log
from storage.records import payload, payload_refs
from tests.memory_store import MemoryStore
from tests.model.drain import drain
from tests.model.harness import DEFAULT_POLICY, FakeClock, Harness, drive, open_shard, run
from tests.model.leaks import all_rows, check_ownership
from tests.unit.broker.test_shard_recovery import policy, queue, two_queues
from tests.unit.queue_manager import managers


def sweep(h: Harness) -> None:
    for _ in range(3):
        h.sweep()
        h.commit(everything=True)


def test_two_queues_with_the_same_messages_deleted_at_once() -> None:
    h = two_queues()
    h.delete(queue(h, "one"))
    h.delete(queue(h, "two"))
    drain(h)


def test_two_queues_purged_at_once_before_they_had_groups() -> None:
    h = two_queues()
    h.purge(queue(h, "one"))
    h.purge(queue(h, "two"))
    drain(h)


@pytest.mark.parametrize("groups", [[], ["a"], ["a", "b"]])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_queue_purged_right_before_a_crash(groups: list[str], restarts: bool) -> None:
    h = two_queues()
    for group in groups:
        h.subscribe(queue(h, "one"), group, credit_max=0)
    if restarts:
        h.commit(everything=True)
        h.crash()
        sweep(h)
    h.purge(queue(h, "one"))
    h.commit(everything=True)
    h.crash()
    assert not h.may_leak
    drain(h)


@pytest.mark.parametrize("sweeps", [0, 1, 2])
def test_a_queue_purged_then_deleted(sweeps: int) -> None:
    h = two_queues()
    h.purge(queue(h, "one"))
    for _ in range(sweeps):
        h.sweep()
    h.delete(queue(h, "one"))
    sweep(h)
    h.crash()
    h.subscribe(queue(h, "two"))
    h.quiesce()
    assert len(h.held_items()) == 20
    drain(h)


@pytest.mark.parametrize("commits", [0, 1, 2])
def test_a_queue_deleted_right_after_the_purge_of_what_was_done(commits: int) -> None:
    h = two_queues()
    h.subscribe(queue(h, "one"), "a")
    h.quiesce()
    h.settle("ack", h.held_items()[:7])
    h.commit(everything=True)
    h.sweep()
    for _ in range(commits):
        h.commit(everything=False)
    h.delete(queue(h, "one"))
    sweep(h)
    h.crash()
    h.subscribe(queue(h, "two"))
    h.quiesce()
    assert len(h.held_items()) == 20
    drain(h)


def test_a_message_failed_in_two_groups_is_one_reference() -> None:
    h = two_queues()
    h.subscribe(queue(h, "one"), "a")
    h.subscribe(queue(h, "one"), "b")
    h.quiesce()
    h.settle("reject", h.held_items())
    h.commit(everything=True)
    sweep(h)
    h.delete(queue(h, "one"))
    sweep(h)
    h.crash()
    h.subscribe(queue(h, "two"))
    h.quiesce()
    assert len(h.held_items()) == 20
    drain(h)


def test_a_message_failed_in_one_group_and_waiting_in_another_is_one_reference() -> None:
    h = two_queues()
    h.subscribe(queue(h, "one"), "a")
    h.subscribe(queue(h, "one"), "b", credit_max=1)
    h.quiesce()
    h.settle("reject", [pair for pair in h.held_items() if pair[0].name == "a"])
    h.commit(everything=True)
    h.delete(queue(h, "one"))
    sweep(h)
    h.crash()
    h.subscribe(queue(h, "two"))
    h.quiesce()
    assert len(h.held_items()) == 20
    drain(h)


def test_a_message_failed_just_before_its_queue_is_deleted() -> None:
    h = two_queues()
    h.subscribe(queue(h, "one"), credit_max=3)
    h.quiesce()
    h.settle("reject", h.held_items()[:1])
    h.delete(queue(h, "one"))
    drain(h)


def test_a_late_group_that_is_done_with_a_released_message_does_not_release_it_again() -> None:
    h = two_queues()
    h.subscribe(queue(h, "one"))
    h.quiesce()
    h.settle("ack", h.held_items()[1:])  # the first keeps the head of the log where it is
    h.commit(everything=True)
    sweep(h)
    h.subscribe(queue(h, "one"), "late")
    h.quiesce()
    h.settle("ack", [pair for pair in h.held_items() if pair[0].name == "late"])
    h.commit(everything=True)
    sweep(h)
    h.crash()
    h.subscribe(queue(h, "two"))
    h.quiesce()
    assert len(queue(h, "two").groups[""].held()) == 20
    drain(h)


def test_two_sweeps_without_a_commit_between_them_count_both_references() -> None:
    h = two_queues()
    h.subscribe(queue(h, "one"))
    h.quiesce()
    h.settle("ack", h.held_items())
    h.commit(everything=True)
    h.sweep()
    h.subscribe(queue(h, "two"))
    h.quiesce()
    h.settle("ack", h.held_items())
    h.commit(everything=True)
    h.sweep()
    h.sweep()
    drain(h)


def test_a_name_is_free_again_when_nothing_is_left_of_its_queue() -> None:
    h = Harness()
    h.declare("one", policy())
    h.publish("$queue/one", 5)
    h.commit(everything=True)
    real = h.manager.queues.find("one")
    h.delete(queue(h, "one"))
    definition = QueueDefinition("one", durable=True, policy=DEFAULT_POLICY)
    with pytest.raises(QueueBusy):
        h.manager.queues.declare(definition, h.clock.ms)
    h.sweep()
    h.declare("one", policy())
    assert h.manager.queues.find("one").log.log_id != real.log.log_id
    h.publish("$queue/one", 3)
    h.commit(everything=True)
    h.crash()
    assert h.manager.queues.find("one").ready_count() == 3
    drain(h)


def test_a_queue_deleted_while_another_is_being_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    h = two_queues()
    h.publish("$queue/two", 5)
    perform = Removals.perform

    async def perform_and_delete(removals: Removals, removal: Removal) -> None:
        await perform(removals, removal)
        if "two" in h.oracle.queues:
            h.publish("$queue/two", 5)
            h.delete(queue(h, "two"))

    monkeypatch.setattr(Removals, "perform", perform_and_delete)
    h.delete(queue(h, "one"))
    h.sweep()
    monkeypatch.undo()
    drain(h)


def test_deleted_queues_leave_no_listing_of_their_logs() -> None:
    h = Harness()
    for _ in range(3):
        h.declare("one", policy())
        h.publish("$queue/one", 2)
        h.commit(everything=True)
        h.delete(queue(h, "one"))
        sweep(h)
    listings = [key for key, _ in all_rows(h.store) if key[0] == 3 and key[6] == metadata_log.TAG_LISTING]
    assert listings == []
    drain(h)


def test_a_failed_message_of_a_deleted_group_goes_though_its_queue_is_deleted_at_once() -> None:
    store = MemoryStore()
    clock = FakeClock()
    shard = open_shard(store, clock)
    manager = shard.manager
    policy_of_both = managers.make_policy(done_retention_ms=0, bucket_size=0)
    one, two = (
        manager.queues.declare(
            QueueDefinition(name, durable=True, policy=policy_of_both, topics=("shop/#",)), clock.ms
        )
        for name in ("one", "two")
    )
    _, sink = managers.consume(manager, one, "a")
    managers.publish(manager, 1, "shop/x")
    manager.dispatch(clock.ms)
    manager.reject(sink.claims, clock.ms)
    drive(shard.commit_once(everything=True))
    one.groups.delete("a", clock.ms, force=True)
    manager.queues.delete(one, clock.ms)
    for _ in range(3):
        drive(shard.sweep_once())
        drive(shard.commit_once(everything=True))
    _, last = managers.consume(manager, two)
    manager.dispatch(clock.ms)
    manager.ack(last.claims, clock.ms)
    for _ in range(3):
        drive(shard.commit_once(everything=True))
        drive(shard.sweep_once())
    drive(shard.commit_once(everything=True))
    assert not [
        key for key, _ in all_rows(store) if key.startswith((payload.prefix(), payload_refs.prefix()))
    ]


@pytest.mark.parametrize("is_touched", [False, True])
def test_a_deleted_queue_is_searched_only_if_there_was_something_in_it(is_touched: bool) -> None:
    store = MemoryStore()
    clock = FakeClock()
    shard = open_shard(store, clock)
    manager = shard.manager
    policy_of_it = managers.make_policy(done_retention_ms=0)
    manager.queues.declare(
        QueueDefinition("other", durable=True, policy=policy_of_it, topics=("other/#",)), clock.ms
    )
    managers.publish(manager, 1, "other/x")  # what a shard has once, it has
    drive(shard.commit_once(everything=True))
    before = {key for key, _ in all_rows(store)}
    it = manager.queues.declare(
        QueueDefinition("it", durable=True, policy=policy_of_it, topics=("shop/#",)), clock.ms
    )
    for group in ("", "a"):
        managers.consume(manager, it, group)
    manager.dispatch(clock.ms)
    drive(shard.commit_once(everything=True))
    if is_touched:
        managers.publish(manager, 1, "shop/x")
    manager.queues.delete(it, clock.ms)
    [removal] = [each for each in manager.context.removals if isinstance(each, QueueRemoval)]
    assert removal.is_untouched == (not is_touched)
    for _ in range(3):
        drive(shard.sweep_once())
        drive(shard.commit_once(everything=True))
    assert {key for key, _ in all_rows(store)} == before
    assert not manager.queues.removing


async def test_a_start_does_not_wait_until_a_deleted_queue_is_removed() -> None:
    """However much there was in it; its name is free again only then."""
    store = MemoryStore()
    clock = FakeClock()
    shard = open_shard(store, clock)
    manager = shard.manager
    definition = QueueDefinition("large", durable=True, policy=managers.make_policy(), topics=("shop/#",))
    queue = manager.queues.declare(definition, clock.ms)
    managers.publish(manager, 1_000, "shop/x")
    drive(shard.commit_once(everything=True))
    manager.queues.delete(queue, clock.ms)
    drive(shard.commit_once(everything=True))
    store = store.crash()

    shard = open_shard(store, clock)
    payloads = [key for key, _ in all_rows(store) if key.startswith(payload.prefix())]
    assert len(payloads) == 1_000
    with pytest.raises(QueueBusy):
        shard.manager.queues.declare(definition, clock.ms)
    for _ in range(3):
        drive(shard.sweep_once())
        drive(shard.commit_once(everything=True))
    assert not [key for key, _ in all_rows(store) if key.startswith(payload.prefix())]
    assert shard.manager.queues.declare(definition, clock.ms).name == "large"


@pytest.mark.parametrize("commits", [0, 1, 2])
@pytest.mark.parametrize("crashes", [False, True])
def test_a_group_then_its_queue_deleted_right_after_the_purge_of_what_another_group_had_done(
    commits: int, crashes: bool
) -> None:
    store = MemoryStore()
    clock = FakeClock()
    shard = open_shard(store, clock)
    manager = shard.manager
    policy_of_both = managers.make_policy(done_retention_ms=0, bucket_size=1)
    one, _ = (
        manager.queues.declare(
            QueueDefinition(name, durable=True, policy=policy_of_both, topics=("shop/#",)), clock.ms
        )
        for name in ("one", "two")
    )
    sinks = {group: managers.consume(manager, one, group)[1] for group in ("a", "b")}
    managers.publish(manager, 10, "shop/x")
    manager.dispatch(clock.ms)
    drive(shard.commit_once(everything=True))
    manager.reject([sinks["a"].claims[index] for index in (3, 5)], clock.ms)
    manager.ack(sinks["b"].claims[:7], clock.ms)
    drive(shard.commit_once(everything=True))
    drive(shard.sweep_once())
    drive(shard.sweep_once())
    for _ in range(commits):
        drive(shard.commit_once(everything=False))
    one.groups.delete("a", clock.ms, force=True)
    manager.queues.delete(one, clock.ms)
    if crashes:
        drive(shard.commit_once(everything=True))
        store = store.crash()
        shard = open_shard(store, clock)
    for _ in range(3):
        drive(shard.sweep_once())
        drive(shard.commit_once(everything=True))
    check_ownership(all_rows(store))
    assert len([key for key, _ in all_rows(store) if key.startswith(payload.prefix())]) == 10


@pytest.mark.parametrize("crashes", [False, True])
def test_a_group_reset_after_a_redrive_and_then_its_queue_deleted(crashes: bool) -> None:
    store = MemoryStore()
    clock = FakeClock()
    shard = open_shard(store, clock)
    manager = shard.manager
    policy_of_both = managers.make_policy(done_retention_ms=0, bucket_size=3)
    one, _ = (
        manager.queues.declare(
            QueueDefinition(name, durable=True, policy=policy_of_both, topics=("shop/#",)), clock.ms
        )
        for name in ("one", "two")
    )
    sink = managers.consume(manager, one, "a")[1]
    managers.publish(manager, 5, "shop/x")
    manager.dispatch(clock.ms)
    drive(shard.commit_once(everything=True))
    manager.reject(sink.claims[:1], clock.ms)
    drive(shard.sweep_once())
    assert run(MessageClient(shard).redrive("one", "a")) == 1
    one.groups.reset(one.groups.find("a"), [(1, 0)], clock.ms, force=True)
    manager.queues.delete(one, clock.ms)
    drive(shard.commit_once(everything=True))
    if crashes:
        store = store.crash()
        shard = open_shard(store, clock)
    for _ in range(3):
        drive(shard.sweep_once())
        drive(shard.commit_once(everything=True))
    check_ownership(all_rows(store))
    assert len([key for key, _ in all_rows(store) if key.startswith(payload.prefix())]) == 5


@pytest.mark.parametrize("crashes", [False, True])
def test_a_queue_purged_while_as_many_groups_as_may_be_are_removed(crashes: bool) -> None:
    store = MemoryStore()
    clock = FakeClock()
    shard = open_shard(store, clock)
    manager = shard.manager
    one, _ = (
        manager.queues.declare(
            QueueDefinition(name, durable=True, policy=DEFAULT_POLICY, topics=("shop/#",)), clock.ms
        )
        for name in ("one", "two")
    )
    managers.consume(manager, one, "stays", credit_max=1)
    for number in range(limits.GROUP_REMOVALS_PER_QUEUE_MAX):
        managers.consume(manager, one, f"g{number}", credit_max=1)
    managers.publish(manager, 5, "shop/x")
    manager.dispatch(clock.ms)
    drive(shard.commit_once(everything=True))
    drive(shard.sweep_once())
    for number in range(limits.GROUP_REMOVALS_PER_QUEUE_MAX):
        one.groups.delete(f"g{number}", clock.ms, force=True)
    one.purge(clock.ms)
    drive(shard.commit_once(everything=True))
    if crashes:
        store = store.crash()
        shard = open_shard(store, clock)
    for _ in range(3):
        drive(shard.sweep_once())
        drive(shard.commit_once(everything=True))
    check_ownership(all_rows(store))
    shard.manager.queues.delete(shard.manager.queues.get("two"), clock.ms)
    for _ in range(3):
        drive(shard.sweep_once())
        drive(shard.commit_once(everything=True))
    left = [key for key, _ in all_rows(store) if key.startswith(payload.prefix())]
    assert len(left) == 1  # the group that stays holds it
