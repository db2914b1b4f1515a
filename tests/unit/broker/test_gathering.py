"""Commits to a store that is far away wait for those who were told of the one before."""

from __future__ import annotations

import asyncio

from broker.clock import Clock
from broker.engine.gathering import Gathering
from broker.engine.shard import Shard
from config import limits
from storage.batch import WriteOps
from tests.memory_store import MemoryStore
from tests.model.harness import DEFAULT_POLICY
from tests.unit.broker.test_shard_commits import declare, publish, subscribe
from tests.waiting import hold_up_task, until_so

WRITE_S = 0.05


class Time:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_next_commit_waits_a_part_of_what_the_last_one_took_unless_all_are_back() -> None:
    time = Time()
    gathering = Gathering(time)
    assert gathering.rest_s(0) == 0
    gathering.told(2, 0.04)
    assert gathering.rest_s(1) == 0.04 / limits.COMMIT_GATHER_DIVISOR
    assert gathering.rest_s(2) == 0
    time.now_s += 0.04
    assert gathering.rest_s(1) == 0


def test_no_commit_waits_longer_than_the_limit_nor_for_nobody() -> None:
    gathering = Gathering(Time())
    gathering.told(1, 60)
    assert gathering.rest_s(0) == limits.COMMIT_GATHER_MS_MAX / 1000
    gathering.told(0, 60)
    assert gathering.rest_s(0) == 0


class FarStore(MemoryStore):
    """Takes its time for each write."""

    is_remote = True
    writes = 0
    is_writing = False

    async def write(self, ops: WriteOps) -> None:
        self.writes += 1
        self.is_writing = True
        await hold_up_task(WRITE_S)
        await super().write(ops)
        self.is_writing = False


async def test_acknowledgements_alone_do_not_get_in_the_way_of_the_next_publish() -> None:
    store = FarStore()
    shard = await Shard.open(
        store, Clock(), default_policy=DEFAULT_POLICY, auto_create=True, cache_bytes_max=0
    )
    sink = subscribe(shard, declare(shard))
    shard.start()
    await shard.barrier()
    store.writes = 0
    for _ in range(8):
        publish(shard, 1)
        shard.follow_up()
        confirmed = asyncio.create_task(shard.barrier())
        await until_so(lambda: store.is_writing)
        shard.manager.ack(sink.claims, shard.clock.now_ms())
        sink.claims = []
        shard.manager.context.state_writes.make_due()
        shard.wake()
        await confirmed
    assert store.writes <= 10
    await shard.close()
