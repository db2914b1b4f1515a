"""Redriving with a shard that runs: rate, refusals, closed buckets, deleting, a crash half-way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from broker.clock import Clock
from broker.engine.client.counting import returned_claims
from broker.engine.client.messages import MessageClient
from broker.engine.shard import Shard
from broker.properties.readers import install_readers
from queue_manager.errors import GroupNotFound, InvalidArgument, QueueNotFound
from queue_manager.options import PublishOptions
from queue_manager.queue.queue import Queue
from queue_manager.spec_records import QueueDefinition
from storage.records import payload
from tests.memory_store import MemoryStore
from tests.unit.queue_manager.managers import Sink, consume, make_policy
from tests.waiting import until_so

CLOCK = Clock()


async def open_shard(store: MemoryStore) -> Shard:
    shard = await Shard.open(
        store, CLOCK, default_policy=make_policy(), auto_create=True, cache_bytes_max=1 << 20
    )
    install_readers(shard.manager)
    shard.start()
    return shard


@asynccontextmanager
async def running(store: MemoryStore | None = None) -> AsyncIterator[Shard]:
    shard = await open_shard(store or MemoryStore())
    try:
        yield shard
    finally:
        await shard.close()


def declare(shard: Shard, name: str, **fields: object) -> Queue:
    policy = make_policy(**fields)  # type: ignore[arg-type]
    return shard.manager.queues.declare(QueueDefinition(name, durable=True, policy=policy), CLOCK.now_ms())


def publish(shard: Shard, topic: str, count: int) -> None:
    manager = shard.manager
    plan = manager.plan(topic, 0, b"", True)
    plan.aim(manager.publisher.route(topic, CLOCK.now_ms()))
    manager.publish(plan, [b"%d" % number for number in range(count)], CLOCK.now_ms())
    shard.wake()


async def delivered(sink: Sink, count: int) -> None:
    """Wait until the sink was given so many."""
    await until_so(lambda: len(sink.claims) >= count, told=lambda: f"{len(sink.claims)} of {count} came")


async def reject_all(shard: Shard, queue: Queue, count: int) -> None:
    """Have `count` messages claimed and rejected."""
    consumer, sink = consume(shard.manager, queue)
    shard.manager.dispatch(CLOCK.now_ms())

    def are_claimed() -> bool:
        shard.wake()
        return len(sink.claims) >= count

    await until_so(are_claimed)
    assert len(sink.claims) == count
    shard.manager.reject(sink.claims, CLOCK.now_ms())
    shard.manager.consumption.unsubscribe(consumer, CLOCK.now_ms())
    await shard.barrier()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), 10)

    asyncio.run(bounded())


def test_failed_messages_of_closed_buckets_after_a_restart() -> None:
    async def test() -> None:
        store = MemoryStore()
        async with running(store) as shard:
            queue = declare(shard, "jobs", bucket_size=1, done_retention_ms=0)
            publish(shard, "$queue/jobs", 35)
            await reject_all(shard, queue, 35)
        async with running(store.crash()) as shard:
            assert await MessageClient(shard).redrive("jobs", "", limit=5) == 5  # the oldest
            group = shard.manager.queues.find("jobs").groups.find("")
            returned = returned_claims(group.cursors[0])
            assert [claim.message.offset for claim in returned] == [*range(5)]
            assert await MessageClient(shard).redrive("jobs", "", offsets=[12, 30, 99]) == 2
            assert await MessageClient(shard).redrive("jobs", "") == 28
            assert (group.failed_count(), group.ready_count()) == (0, 35)
            store = shard.store  # type: ignore[assignment]
        async with running(store.crash()) as shard:
            queue = shard.manager.queues.find("jobs")
            _, sink = consume(shard.manager, queue)
            shard.manager.dispatch(CLOCK.now_ms())
            shard.wake()
            await delivered(sink, 35)
            assert sink.offsets == list(range(35))
            assert {claim.attempts for claim in sink.claims} == {1}
            assert queue.groups.find("").failed_count() == 0

    run(test)


def test_what_was_redriven_goes_with_its_queue() -> None:
    async def test() -> None:
        async with running() as shard:
            queue = declare(shard, "jobs", bucket_size=0, done_retention_ms=60_000)
            publish(shard, "$queue/jobs", 6)
            await reject_all(shard, queue, 6)
            await shard.sweep_once()
            assert queue.log.head_offset == 6
            assert await MessageClient(shard).redrive("jobs", "", limit=4) == 4
            consumer, sink = consume(shard.manager, queue, credit_max=2)
            shard.manager.dispatch(CLOCK.now_ms())
            shard.wake()
            await delivered(sink, 2)
            shard.manager.ack(sink.claims[:1], CLOCK.now_ms())
            await shard.barrier()
            shard.manager.queues.delete(queue, CLOCK.now_ms())

            def is_removed() -> bool:
                shard.wake()
                return not shard.manager.queues.removing

            await until_so(is_removed)
            await shard.barrier()
            rows = await shard.store.scan(payload.prefix(), None, limit=100)
            assert not [key for key, _ in rows if key.startswith(payload.prefix())]
            left = await shard.store.scan(b"\x01\x02", b"\x01\x07", limit=100)
            assert left == []

    run(test)


def test_rate_and_named_target() -> None:
    async def test() -> None:
        async with running() as shard:
            queue = declare(shard, "jobs", dead_letter="dead")
            declare(shard, "dead")
            other = declare(shard, "other")
            publish(shard, "$queue/jobs/eu", 6)
            await reject_all(shard, queue, 6)
            begin = CLOCK.monotonic()
            assert await MessageClient(shard).redrive_dead_letters("dead", limit=4, per_second=20) == 4
            assert 0.14 < CLOCK.monotonic() - begin < 2
            assert await MessageClient(shard).redrive_dead_letters("dead", to="other") == 2
            assert (queue.ready_count(), other.depth()) == (4, 2)
            assert other.log.tail.slice(0, 1)[0].template.topic == "$queue/jobs/eu"

    run(test)


def test_refusals() -> None:
    async def test() -> None:
        async with running() as shard:
            declare(shard, "jobs")
            with pytest.raises(QueueNotFound):
                await MessageClient(shard).redrive("none", "")
            with pytest.raises(GroupNotFound):
                await MessageClient(shard).redrive("jobs", "none")
            with pytest.raises(QueueNotFound):
                await MessageClient(shard).redrive_dead_letters("jobs", to="none")
            with pytest.raises(InvalidArgument):
                await MessageClient(shard).redrive_dead_letters("jobs", to="jobs")
            with pytest.raises(InvalidArgument):
                await MessageClient(shard).redrive_dead_letters("jobs", per_second=0)
            with pytest.raises(InvalidArgument):
                await MessageClient(shard).redrive_dead_letters("jobs", limit=-1)
            assert await MessageClient(shard).redrive_dead_letters("jobs") == 0

    run(test)


def test_what_has_nowhere_to_go_stays() -> None:
    async def test() -> None:
        async with running() as shard:
            queue = declare(shard, "jobs", dead_letter="dead")
            dead = declare(shard, "dead")
            publish(shard, "$queue/jobs", 3)
            await reject_all(shard, queue, 3)
            shard.manager.queues.delete(queue, CLOCK.now_ms())
            assert await MessageClient(shard).redrive_dead_letters("dead") == 0
            _, sink = consume(shard.manager, dead)
            shard.manager.dispatch(CLOCK.now_ms())
            assert [claim.attempts for claim in sink.claims] == [1, 1, 1]

    run(test)


def test_a_crash_in_the_middle_neither_loses_nor_doubles() -> None:
    async def test() -> None:
        store = MemoryStore()
        shard = await open_shard(store)
        queue = declare(shard, "jobs", dead_letter="dead")
        declare(shard, "dead")
        publish(shard, "$queue/jobs", 60)
        await reject_all(shard, queue, 60)
        redriving = asyncio.create_task(MessageClient(shard).redrive_dead_letters("dead", per_second=400))
        await until_so(lambda: queue.log.next_offset >= 70)
        after = store.crash()  # as it is on the store at this moment
        redriving.cancel()
        await asyncio.gather(redriving, return_exceptions=True)
        await shard.close()
        async with running(after) as shard:
            jobs, dead = shard.manager.queues.find("jobs"), shard.manager.queues.find("dead")
            sinks: list[Sink] = []
            for target in (jobs, dead):
                _, sink = consume(shard.manager, target)
                sinks.append(sink)
            shard.manager.dispatch(CLOCK.now_ms())
            shard.wake()
            await until_so(lambda: sum(len(sink.claims) for sink in sinks) >= 60)
            await shard.barrier()
            bodies = [claim.message.body for sink in sinks for claim in sink.claims]
            assert sorted(bodies, key=lambda body: int(body or b"0")) == [b"%d" % n for n in range(60)]
            assert 0 < len(sinks[0].claims) < 60

    run(test)


def test_all_priorities_are_redriven() -> None:
    async def test() -> None:
        async with running() as shard:
            manager = shard.manager
            queue = declare(shard, "jobs", priority_max=2, dead_letter="")
            declare(shard, "dead", priority_max=2)
            for priority in (0, 1, 2, 2):
                plan = manager.plan("jobs", 0, b"", True, PublishOptions(priority=priority))
                plan.aim_at((queue,), 1)
                manager.publish(plan, [b"%d" % priority], CLOCK.now_ms())
            await reject_all(shard, queue, 4)
            assert await MessageClient(shard).redrive("jobs", "", limit=3) == 3
            assert await MessageClient(shard).redrive("jobs", "") == 1
            assert queue.groups.find("").ready_count() == 4
            assert await MessageClient(shard).redrive_dead_letters("jobs", to="dead") == 4
            _, sink = consume(manager, manager.queues.find("dead"))
            manager.dispatch(CLOCK.now_ms())
            assert [offset >> 56 for offset in sink.offsets] == [2, 2, 1, 0]

    run(test)
