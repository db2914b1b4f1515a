"""Who takes references to shared payloads back, while others do, commits go on and the store fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.engine.client.queues import QueueClient
from broker.engine.client.scheduled import cancel_scheduled, list_scheduled
from broker.engine.commit_loop import CommitLoop
from broker.engine.shard import Shard
from queue_manager.options import PublishOptions
from queue_manager.outcomes import ACCEPTED
from queue_manager.policy import QueuePolicy
from queue_manager.queue.queue import Queue
from queue_manager.spec_records import QueueDefinition
from storage.errors import StoreUnavailable
from storage.records import payload, payload_refs
from tests.memory_store import MemoryStore
from tests.model.harness import FakeClock
from tests.model.leaks import all_rows, check_ownership
from tests.unit.queue_manager import managers
from tests.waiting import turns

POLICY = managers.make_policy(done_retention_ms=0)


class WatchedStore(MemoryStore):
    """A store where something happens while a reference count is read."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def get(self, key: bytes) -> bytes | None:
        """As the store, then what happens meanwhile, once for each time it was set."""
        value = await super().get(key)
        if key.startswith(payload_refs.prefix()) and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return value


class Sharing:
    """Two durable queues, with the same messages in both; `policy` is that of the second one."""

    def __init__(self, shard: Shard, store: WatchedStore, clock: FakeClock, policy: QueuePolicy) -> None:
        self.shard = shard
        self.store = store
        self.clock = clock
        self.queues = [self._declare("one", POLICY), self._declare("two", policy)]

    def _declare(self, name: str, policy: QueuePolicy) -> Queue:
        definition = QueueDefinition(name, durable=True, policy=policy, topics=("shop/#",))
        return self.shard.manager.queues.declare(definition, self.clock.ms)

    async def restart(self) -> None:
        """Begin anew with what is on the store."""
        self.shard = await open_shard(self.store, self.clock)

    async def publish(self, count: int, *, delay_ms: int | None = None, ttl_ms: int | None = None) -> None:
        """Publish to both and have it on the store."""
        manager = self.shard.manager
        options = PublishOptions(delay_ms=delay_ms or 0, ttl_ms=ttl_ms)
        plan = manager.plan("shop/x", 0, b"", True, options=options)
        plan.aim(manager.publisher.route("shop/x", self.clock.ms))
        assert self.shard.manager.publish(plan, [b"x"] * count, self.clock.ms) == ACCEPTED
        await self.shard.commit_once(everything=True)

    def delete(self, name: str) -> None:
        """Delete a queue; what is in it is taken away by sweeps."""
        self.shard.manager.queues.delete(self.shard.manager.queues.find(name), self.clock.ms)

    async def settle(self) -> None:
        """Sweep and commit until nothing is left to do."""
        for _ in range(4):
            await self.shard.sweep_once()
            await self.shard.commit_once(everything=True)

    def payloads(self) -> int:
        """How many payloads are on the store."""
        return sum(key.startswith(payload.prefix()) for key, _ in all_rows(self.store))

    def counts(self) -> list[int]:
        """The reference counts on the store."""
        return [
            payload_refs.decode(value)
            for key, value in all_rows(self.store)
            if key.startswith(payload_refs.prefix())
        ]


async def open_shard(store: WatchedStore, clock: FakeClock) -> Shard:
    return await Shard.open(
        store,
        clock,  # type: ignore[arg-type]
        default_policy=POLICY,
        auto_create=False,
        cache_bytes_max=0,
    )


async def open_sharing(policy: QueuePolicy = POLICY) -> Sharing:
    store = WatchedStore()
    clock = FakeClock()
    return Sharing(await open_shard(store, clock), store, clock, policy)


async def scheduled_key(it: Sharing, name: str) -> tuple[int, int]:
    [row] = await list_scheduled(it.shard, name)
    return row.due_ms, row.message_id


async def test_a_scheduled_message_cancelled_while_the_other_queue_is_removed_leaves_nothing() -> None:
    it = await open_sharing()
    await it.publish(1, delay_ms=60_000)
    assert it.counts() == [2]
    key = await scheduled_key(it, "one")
    it.delete("two")
    cancelling: list[asyncio.Task[bool]] = []

    async def cancel() -> None:
        cancelling.append(asyncio.create_task(cancel_scheduled(it.shard, "one", *key)))
        await turns(20)

    it.store.meanwhile = cancel
    await it.settle()
    assert await cancelling[0]
    await it.settle()
    assert (it.payloads(), it.counts()) == (0, [])


async def test_a_scheduled_message_cancelled_twice_at_once_is_one_reference() -> None:
    it = await open_sharing()
    await it.publish(1, delay_ms=60_000)
    key = await scheduled_key(it, "one")
    done = await asyncio.gather(
        cancel_scheduled(it.shard, "one", *key), cancel_scheduled(it.shard, "one", *key)
    )
    assert sorted(done) == [False, True]
    await it.settle()
    assert (it.payloads(), it.counts()) == (1, [1])


async def test_a_commit_that_is_sealed_while_counts_are_read_loses_no_reference_taken_back() -> None:
    it = await open_sharing()
    await it.publish(3)
    it.delete("two")

    async def commit() -> None:
        await it.publish(1)

    it.store.meanwhile = commit
    await it.settle()
    assert sorted(it.counts()) == [1, 1, 1]  # the last one was published to `one` alone
    it.delete("one")
    await it.settle()
    assert (it.payloads(), it.counts()) == (0, [])


async def test_a_removal_that_the_store_interrupted_goes_on_and_leaves_nothing() -> None:
    it = await open_sharing()
    await it.publish(3)
    await it.publish(3)
    it.delete("two")

    async def fail() -> None:
        raise StoreUnavailable("reading: no answer")

    it.store.meanwhile = fail
    try:
        await it.shard.sweep_once()
    except StoreUnavailable:
        pass
    else:
        raise AssertionError("the store did not fail")
    await it.settle()
    assert it.counts() == [1] * 6
    it.delete("one")
    await it.settle()
    assert (it.payloads(), it.counts()) == (0, [])


async def test_a_queue_deleted_right_before_a_crash_leaves_nothing_of_what_it_shared() -> None:
    """Of some it had let go before."""
    it = await open_sharing()
    _, sink = managers.consume(it.shard.manager, it.queues[1])
    await it.publish(3)
    it.shard.manager.dispatch(it.clock.ms)
    it.shard.manager.ack(sink.claims[1:2], it.clock.ms)
    await it.settle()
    it.clock.ms += 60_000
    await it.settle()
    before = it.counts()
    it.delete("two")
    await it.shard.commit_once(everything=True)
    assert it.counts() == before
    await it.restart()
    await it.settle()
    assert it.counts() == [1, 1, 1]
    it.delete("one")
    await it.settle()
    assert (it.payloads(), it.counts()) == (0, [])


@pytest.mark.parametrize("is_asked_for", [True, False])
async def test_queues_deleted_right_after_a_start_leave_nothing_of_what_they_shared(
    is_asked_for: bool,
) -> None:
    """By a client, or unused: what they had let go of before has to be read first.

    One message is claimed, one is done.
    """
    it = await open_sharing()
    _, sink = managers.consume(it.shard.manager, it.queues[1])
    await it.publish(3)
    it.shard.manager.dispatch(it.clock.ms)
    it.shard.manager.ack(sink.claims[1:2], it.clock.ms)
    await it.shard.commit_once(everything=True)
    await it.restart()
    answers = []
    for name in ("two", "one"):
        if is_asked_for:
            answers.append(QueueClient(it.shard).delete(name))
        else:
            directory = it.shard.manager.queues
            directory.delete_unused(directory.find(name), it.clock.ms)
    await it.settle()
    for answer in answers:
        await answer
    await it.settle()
    assert (it.payloads(), it.counts()) == (0, [])


class Crash(Exception):
    """The process ends."""


@pytest.mark.parametrize("step", range(12))
async def test_a_removal_that_a_crash_interrupts_takes_each_reference_back_once(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two groups have failed all: only their records tell of the messages, each of them of all."""
    it = await open_sharing()
    manager = it.shard.manager
    sinks = [managers.consume(manager, it.queues[1], group)[1] for group in ("a", "b")]
    await it.publish(4)
    manager.dispatch(it.clock.ms)
    for sink in sinks:
        manager.reject(sink.claims, it.clock.ms)
    await it.settle()
    it.clock.ms += 60_000
    await it.settle()
    it.delete("two")
    left = step

    async def crash(commits: CommitLoop) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            await commits.commit_once(everything=True)
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(CommitLoop, "room_for_deletes", crash)
        try:
            await it.settle()
        except Crash:
            await it.restart()
    await it.settle()
    assert it.counts() == [1] * 4
    it.delete("one")
    await it.settle()
    assert (it.payloads(), it.counts()) == (0, [])


PASSED_BY = {
    "the queue's TTL": managers.make_policy(done_retention_ms=0, message_ttl_ms=100),
    "a TTL of their own": POLICY,
    "a bound": managers.make_policy(done_retention_ms=0, depth_max=1, overflow="drop-head"),
    "a purge": POLICY,
}


async def share_and_pass(by: str, *, has_group: bool) -> Sharing:
    """Have the second queue pass messages that nobody was given; what it shares has yet to be let go of."""
    it = await open_sharing(PASSED_BY[by])
    if has_group:
        managers.consume(it.shard.manager, it.queues[1], credit_max=0)
    await it.publish(3, ttl_ms=100 if by == "a TTL of their own" else None)
    if by == "a purge":
        it.queues[1].purge(it.clock.ms)
    it.clock.ms += 200
    it.shard.manager.expire(it.clock.ms)
    await it.shard.commit_once(everything=True)
    return it


@pytest.mark.parametrize("has_group", [False, True])
@pytest.mark.parametrize("by", PASSED_BY)
@pytest.mark.parametrize("is_deleted", [False, True])
async def test_messages_passed_right_before_a_crash_leave_nothing_of_what_they_shared(
    by: str, has_group: bool, is_deleted: bool
) -> None:
    """Whether the queue is still there or was deleted before the crash, too."""
    it = await share_and_pass(by, has_group=has_group)
    if is_deleted:
        it.delete("two")
        await it.shard.commit_once(everything=True)
    await it.restart()
    check_ownership(all_rows(it.store))
    await it.settle()
    check_ownership(all_rows(it.store))
    for name in ("one", "two"):
        if name in it.shard.manager.queues:
            it.delete(name)
    await it.settle()
    assert (it.payloads(), it.counts()) == (0, [])


@pytest.mark.parametrize("has_group", [False, True])
@pytest.mark.parametrize("by", PASSED_BY)
async def test_messages_passed_in_a_queue_that_is_deleted_take_each_reference_back_once(
    by: str, has_group: bool
) -> None:
    it = await share_and_pass(by, has_group=has_group)
    it.delete("two")
    await it.settle()
    check_ownership(all_rows(it.store))
    assert by == "a TTL of their own" or it.counts() == [1, 1, 1]
    it.delete("one")
    await it.settle()
    assert (it.payloads(), it.counts()) == (0, [])


async def test_a_purge_right_after_a_start_and_before_a_crash_leaves_nothing_of_what_was_shared() -> None:
    it = await open_sharing()
    managers.consume(it.shard.manager, it.queues[1], credit_max=0)
    await it.publish(3)
    await it.restart()
    purged = QueueClient(it.shard).purge("two")
    assert (await purged).count == 3
    await it.shard.commit_once(everything=True)
    await it.restart()
    await it.settle()
    check_ownership(all_rows(it.store))
    assert it.counts() == [1, 1, 1]


async def pass_right_after_a_start(*, by_all: bool) -> Sharing:
    """Have a group of the second queue pass messages right after a start, when it is not known yet what
    groups did before; another one waits for them, or passes them, too (`by_all`).
    """
    it = await open_sharing(PASSED_BY["the queue's TTL"] if by_all else POLICY)
    groups = ("a", "#" if by_all else "none"), ("b", "#")
    for group, pattern in groups:
        managers.consume(it.shard.manager, it.queues[1], group, pattern, credit_max=0)
    await it.shard.commit_once(everything=True)
    await it.restart()
    await it.publish(3)
    manager = it.shard.manager
    two = manager.queues.find("two")
    if by_all:
        it.clock.ms += 200
        manager.expire(it.clock.ms)
    else:
        managers.consume(manager, two, *groups[0], credit_max=1)
        manager.dispatch(it.clock.ms)
    await it.shard.commit_once(everything=True)
    assert not two.is_history_known()
    return it


@pytest.mark.parametrize("crashes", [0, 1, 2])
@pytest.mark.parametrize("by_all", [False, True])
async def test_messages_passed_right_after_a_start_leave_nothing_that_no_group_needs(
    by_all: bool, crashes: int
) -> None:
    it = await pass_right_after_a_start(by_all=by_all)
    for _ in range(crashes):
        await it.restart()
        check_ownership(all_rows(it.store))
    await it.settle()
    check_ownership(all_rows(it.store))
    assert it.counts() == ([1, 1, 1] if by_all else [2, 2, 2])
    await QueueClient(it.shard).purge("two")
    await it.settle()
    assert it.counts() == [1, 1, 1]
    for name in ("two", "one"):
        it.delete(name)
        await it.settle()
        check_ownership(all_rows(it.store))
    assert (it.payloads(), it.counts()) == (0, [])
