"""What happens while a commit is still on its way to the store."""

from __future__ import annotations

import asyncio

import pytest

from broker.engine.shard import Shard
from queue_manager.claims.claim import UNLIMITED, Claim, Consumer
from queue_manager.model import Message
from queue_manager.queue.queue import Queue
from queue_manager.spec_records import QueueDefinition
from storage.errors import StorageError, StoreFull, StoreUnavailable
from tests.memory_store import MemoryStore
from tests.model.harness import DEFAULT_POLICY, FakeClock
from tests.model.tight_limits import tight_limits
from tests.waiting import turns, until_so


class Sink:
    """Collects what a consumer is given."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.claims: list[Claim] = []

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        self.offsets += [message.offset for message in messages]
        self.claims += claims or []
        return True

    def revoked(self, consumer: Consumer, claims: list[Claim]) -> None:
        pass

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        pass


class Confirms:
    """A publisher's confirms, in order."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def committed(self, tokens: list[int]) -> None:
        self.tokens += tokens


async def open_shard(store: MemoryStore) -> Shard:
    return await Shard.open(
        store,
        FakeClock(),  # type: ignore[arg-type]
        default_policy=DEFAULT_POLICY,
        auto_create=True,
        cache_bytes_max=0,
    )


def declare(shard: Shard, name: str = "jobs", topics: tuple[str, ...] = ()) -> Queue:
    definition = QueueDefinition(name, durable=True, policy=DEFAULT_POLICY, topics=topics)
    return shard.manager.queues.declare(definition, shard.clock.now_ms())


def publish(shard: Shard, count: int, topic: str = "$queue/jobs/eu") -> None:
    manager = shard.manager
    plan = manager.plan(topic, 0, b"", True)
    plan.aim(manager.publisher.route(topic, shard.clock.now_ms()))
    manager.publish(plan, [b"%d" % number for number in range(count)], shard.clock.now_ms())


def subscribe(shard: Shard, queue: Queue, group: str = "") -> Sink:
    sink = Sink()
    shard.manager.consumption.subscribe(
        queue,
        group,
        "#",
        sink,
        consumer_id="c",
        credit_max=UNLIMITED,
        no_ack=False,
        exclusive=False,
        lease_ms=30_000,
    )
    return sink


async def quiesce(shard: Shard) -> None:
    shard.manager.dispatch(shard.clock.now_ms())
    while shard.manager.take_step(shard.clock.now_ms()) or shard.manager.context.loads:
        await shard.load_once()


async def until_pending(store: MemoryStore) -> None:
    await until_so(lambda: store.pending_writes)


async def test_confirms_come_after_durability_and_in_order() -> None:
    store = MemoryStore(deferred=True)
    shard = await open_shard(store)
    confirms = Confirms()
    declare(shard)
    tasks = []
    for token in range(3):
        publish(shard, 2)
        shard.manager.context.commit.wait(confirms, token)
        tasks.append(asyncio.create_task(shard.commit_once()))
        await turns()
    assert confirms.tokens == []
    assert shard.manager.context.uncommitted_bytes() >= 6
    store.make_durable(1)
    await tasks[0]
    assert confirms.tokens == [0]
    store.make_durable()
    await asyncio.gather(*tasks)
    assert confirms.tokens == [0, 1, 2]
    assert shard.manager.context.uncommitted_bytes() == 0


async def test_messages_are_delivered_before_they_are_durable() -> None:
    store = MemoryStore(deferred=True)
    shard = await open_shard(store)
    sink = subscribe(shard, declare(shard))
    publish(shard, 5)
    shard.manager.dispatch(shard.clock.now_ms())
    assert sink.offsets == [0, 1, 2, 3, 4]


async def test_a_group_made_while_a_commit_is_pending_gets_what_the_store_does_not_have_yet() -> None:
    with tight_limits():
        store = MemoryStore(deferred=True)
        shard = await open_shard(store)
        queue = declare(shard)
        subscribe(shard, queue)
        publish(shard, 10)
        commit = asyncio.create_task(shard.commit_once())
        await until_pending(store)
        publish(shard, 10)
        shard.manager.dispatch(shard.clock.now_ms())
        store.make_durable()
        await commit
        late = subscribe(shard, queue, "late")
        await quiesce(shard)
        assert late.offsets == list(range(20))


async def test_what_was_pending_in_a_crash_is_gone_and_the_rest_is_there() -> None:
    store = MemoryStore(deferred=True)
    shard = await open_shard(store)
    queue = declare(shard)
    publish(shard, 3)
    commit = asyncio.create_task(shard.commit_once())
    await until_pending(store)
    store.make_durable()
    await commit
    sink = subscribe(shard, queue)
    publish(shard, 4)
    await quiesce(shard)
    shard.manager.ack(sink.claims, shard.clock.now_ms())
    commit = asyncio.create_task(shard.commit_once(everything=True))
    await until_pending(store)
    after = store.crash()
    with pytest.raises(StorageError):
        await commit
    shard = await open_shard(after)
    sink = subscribe(shard, shard.manager.queues.find("jobs"))
    await quiesce(shard)
    assert sink.offsets == [0, 1, 2]


@pytest.mark.parametrize("error", [StoreUnavailable("down"), StoreFull("full")])
async def test_passing_trouble_is_waited_out_before_anything_is_confirmed(error: StorageError) -> None:
    store = MemoryStore()
    shard = await open_shard(store)
    confirms = Confirms()
    declare(shard)
    publish(shard, 2)
    shard.manager.context.commit.wait(confirms, 7)
    store.fail_next_write(error)
    commit = asyncio.create_task(shard.commit_once())
    await turns()
    assert confirms.tokens == []
    await commit
    assert confirms.tokens == [7]


async def test_a_write_that_was_done_although_it_failed_is_written_again_without_harm() -> None:
    store = MemoryStore()
    shard = await open_shard(store)
    sink = subscribe(shard, declare(shard))
    publish(shard, 5)
    store.fail_next_write(StoreUnavailable("the answer was lost"), applied=True)
    await shard.commit_once(everything=True)
    await quiesce(shard)
    shard.manager.ack(sink.claims[:2], shard.clock.now_ms())
    await shard.commit_once(everything=True)
    shard = await open_shard(store.crash())
    sink = subscribe(shard, shard.manager.queues.find("jobs"))
    await quiesce(shard)
    assert sink.offsets == [2, 3, 4]


async def test_lasting_trouble_ends_the_tasks_and_is_told_once() -> None:
    store = MemoryStore()
    shard = await open_shard(store)
    failed: asyncio.Queue[StorageError] = asyncio.Queue()
    shard.on_failure(failed.put_nowait)
    confirms = Confirms()
    declare(shard)
    shard.start()
    publish(shard, 2)
    shard.manager.context.commit.wait(confirms, 1)
    store.fail_next_write(StorageError("broken"))
    shard.wake()
    assert (await failed.get()).reason == "broken"
    await shard.close()
    assert failed.empty()
    assert confirms.tokens == []


async def test_references_count_what_is_not_in_the_store_yet() -> None:
    """A purge right behind the publish: the count of a shared payload may still be on its way."""
    store = MemoryStore(deferred=True)
    shard = await open_shard(store)
    declare(shard, "one", ("shop/#",))
    two = declare(shard, "two", ("shop/#",))
    publish(shard, 1, "shop/eu")
    async with shard.references.counted([0]) as counts:
        assert counts == {0: 2}
    sink = subscribe(shard, two)
    shard.manager.dispatch(shard.clock.now_ms())
    shard.manager.ack(sink.claims, shard.clock.now_ms())
    sealed = asyncio.create_task(shard.commit_once(everything=True))
    await until_pending(store)
    await shard.sweep_once()
    async with shard.references.counted([0]) as counts:
        assert counts == {0: 1}
    store.make_durable()
    await sealed
