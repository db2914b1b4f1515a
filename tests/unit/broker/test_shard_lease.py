"""A shard whose store it has by a lease: what is delivered and confirmed, and when."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from broker.engine.shard import Shard
from storage.batch import WriteOps
from storage.errors import StorageError, StoreFenced
from storage.records import holder
from storage.store_lease import RENEWABLE_LEASES, StoreLease
from tests.memory_store import MemoryStore
from tests.unit.broker.test_shard_commits import (
    Confirms,
    declare,
    open_shard,
    publish,
    subscribe,
    until_pending,
)
from tests.waiting import turns, until_so

LEASE_S = 5.0


class Time:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> Time:
    return Time()


async def leased_store(time: Time, *, deferred: bool = False) -> MemoryStore:
    store = MemoryStore(deferred=deferred)
    if deferred:
        store.catch_up()
    store.lease = StoreLease(store.write, "s3://b/x", int(1000 * LEASE_S), time)
    await store.lease.begin()
    store.lease.keep_by_commits()
    store.is_stuck = deferred
    return store


async def beat(store: MemoryStore) -> int:
    value = await store.get(holder.key())
    assert value is not None
    return holder.decode(value).beat


async def commit(shard: Shard) -> None:
    """Renew the lease, if that is due, with what there is to commit."""
    await shard.commit_once()


async def test_confirm_waits_for_a_lease_that_is_valid_after_the_write_returned(time: Time) -> None:
    store = await leased_store(time, deferred=True)
    shard = await open_shard(store)
    declare(shard)
    confirms = Confirms()
    writes = []
    for token in range(2):
        publish(shard, 1)
        shard.manager.context.commit.wait(confirms, token)
        writes.append(asyncio.create_task(shard.commit_once()))
        await turns()
    time.now_s += LEASE_S
    store.make_durable()
    await asyncio.gather(*writes)
    assert confirms.tokens == [], "another broker may have the database by now"
    renewal = asyncio.create_task(shard.commit_once())
    await until_pending(store)
    publish(shard, 1)
    shard.manager.context.commit.wait(confirms, 2)
    last = asyncio.create_task(shard.commit_once())
    await turns(5)
    time.now_s += 1
    store.make_durable(1)
    await renewal
    assert confirms.tokens == [0, 1]
    store.make_durable()
    await last
    assert confirms.tokens == [0, 1, 2]


async def test_nothing_is_delivered_while_the_lease_has_ended(time: Time) -> None:
    shard = await open_shard(await leased_store(time))
    queue = declare(shard)
    sink = subscribe(shard, queue)
    publish(shard, 1)
    shard.follow_up()
    assert sink.offsets == [0]
    time.now_s += LEASE_S
    publish(shard, 3)
    shard.follow_up()
    shard.manager.expire(shard.clock.now_ms())
    shard.manager.take_step(shard.clock.now_ms())
    assert sink.offsets == [0]
    await commit(shard)
    assert sink.offsets == [0, 1, 2, 3]


async def test_puller_waits_for_the_lease_instead_of_hearing_that_there_is_nothing(time: Time) -> None:
    shard = await open_shard(await leased_store(time))
    queue = declare(shard)
    publish(shard, 1)
    await commit(shard)
    consumption = shard.manager.consumption
    puller = consumption.puller(queue, subscribe(shard, declare(shard, "other")), "p", lease_ms=30_000)
    time.now_s += LEASE_S
    assert consumption.pull(puller, False, shard.clock.now_ms()) is None
    told: list[int] = []
    puller.group.when_loaded(told.append)
    await commit(shard)
    assert told
    assert consumption.pull(puller, False, shard.clock.now_ms()) == 1


async def test_idle_shard_renews_its_lease_and_a_stuck_store_ends_it(time: Time) -> None:
    store = await leased_store(time, deferred=True)
    store.catch_up()
    shard = await open_shard(store)
    shard.start()
    before = await beat(store)
    for _ in range(4):
        time.now_s += LEASE_S / 2
        shard.wakeups.commit.set()
        await until_so(partial(has_beaten_since, store, await beat(store)))
    assert await beat(store) >= before + 4
    assert store.lease is not None
    assert store.lease.is_valid()
    store.is_stuck = True
    time.now_s += LEASE_S
    shard.wakeups.commit.set()
    await until_pending(store)
    assert not store.lease.is_valid()
    store.catch_up()
    await until_so(store.lease.is_valid)
    await shard.close()


async def has_beaten_since(store: MemoryStore, seen: int) -> bool:
    return await beat(store) > seen


async def test_shard_fails_when_its_lease_is_lost(time: Time) -> None:
    store = await leased_store(time, deferred=True)
    store.catch_up()
    shard = await open_shard(store)
    failures: list[StorageError] = []
    shard.on_failure(failures.append)
    confirms = Confirms()
    declare(shard)
    shard.start()
    await shard.barrier()
    store.is_stuck = True
    publish(shard, 1)
    shard.manager.context.commit.wait(confirms, 0)
    shard.wake()
    await until_pending(store)
    time.now_s += RENEWABLE_LEASES * LEASE_S
    store.make_durable()
    await until_so(lambda: failures)
    assert "too long to be renewed: another broker may have the database" in failures[0].reason
    assert confirms.tokens == []
    store.catch_up()
    await shard.close()


async def test_fenced_renewal_ends_a_shard_that_has_nothing_to_do(time: Time) -> None:
    store = await leased_store(time)
    shard = await open_shard(store)
    failures: list[StorageError] = []
    shard.on_failure(failures.append)
    shard.start()
    await shard.barrier()

    async def fenced(ops: WriteOps) -> None:
        raise StoreFenced("writing: another process has opened this database")

    store.write = fenced  # type: ignore[method-assign]
    time.now_s += LEASE_S
    shard.wakeups.commit.set()
    await until_so(lambda: failures)
    assert isinstance(failures[0], StoreFenced)
    await shard.close()
