"""broker.engine.shard: commits, loads and cleaning go on whatever happens, and in bounded steps."""

import asyncio
from typing import Any

import pytest

from broker.engine.shard import Shard
from config import limits
from queue_manager.log.removals import LogTrim
from queue_manager.policy import QueuePolicy
from queue_manager.spec_records import QueueDefinition
from storage.envelope import PROPERTIES_NONE
from tests.memory_store import MemoryStore
from tests.waiting import turns, until_so

POLICY = QueuePolicy(visibility_timeout_ms=100, message_bytes_max=1 << 20, done_retention_ms=1)


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class Sink:
    """Keeps the claims it is given."""

    def __init__(self) -> None:
        self.claims: list[Any] = []

    def deliver(self, consumer, messages, claims):
        self.claims += claims
        return True

    def revoked(self, consumer, claims):
        self.revoked_count = len(claims)

    def cancelled(self, consumer, reason):
        pass


class Waiter:
    def __init__(self, error=None):
        self.error = error
        self.committed_count = 0

    def committed(self, tokens):
        self.committed_count += 1
        if self.error is not None:
            raise self.error


class CountingStore(MemoryStore):
    """Notes how many operations each write has."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def write(self, ops):
        self.sizes.append(len(ops.puts) + len(ops.deletes))
        await super().write(ops)


@pytest.fixture
async def shard():
    shard = await Shard.open(
        CountingStore(), Clock(), default_policy=POLICY, auto_create=True, cache_bytes_max=1 << 30
    )
    yield shard
    await shard.close()


def publish(shard, count, name="q"):
    manager = shard.manager
    queue = manager.queues.declare(QueueDefinition(name, durable=True, policy=POLICY), shard.clock.now_ms())
    plan = manager.plan(f"$queue/{name}", PROPERTIES_NONE, b"", True)
    plan.aim_at((queue,), 1)
    for _ in range(0, count, 1_000):
        manager.publish(plan, [b"x"] * min(count, 1_000), shard.clock.now_ms())
    return queue


def consume(shard, queue, **options):
    sink = Sink()
    options = {"credit_max": 1 << 20, "lease_ms": 100, **options}
    consumer = shard.manager.consumption.subscribe(
        queue, "", "#", sink, consumer_id="c", no_ack=False, exclusive=False, **options
    )
    shard.manager.dispatch(shard.clock.now_ms())
    shard.steps.finish()
    return consumer, sink


async def test_one_sweep_purges_all_that_is_due(shard):
    queue = publish(shard, 45_000)
    _, sink = consume(shard, queue)
    shard.manager.ack(sink.claims, shard.clock.now_ms())
    await shard.commit_once(everything=True)
    shard.clock.ms += 10_000
    await shard.sweep_once()
    assert queue.log.head_offset == 45_000


async def test_a_purge_of_a_backlog_is_many_small_commits(shard, monkeypatch):
    monkeypatch.setattr(limits, "BACKGROUND_DELETES_PER_COMMIT_MAX", 1_000)
    monkeypatch.setattr(limits, "LOG_ENTRY_MESSAGES_MAX", 50)
    queue = publish(shard, 30_000)
    queue.group("")
    await shard.commit_once(everything=True)
    shard.store.sizes.clear()
    queue.purge(shard.clock.now_ms())
    await shard.sweep_once()
    await shard.sweep_once()
    assert queue.log.head_offset == 30_000
    assert max(shard.store.sizes) < 3_000


async def test_a_deleted_queue_found_at_the_start_goes_in_bounded_commits(monkeypatch):
    store = CountingStore()
    clock = Clock()
    options = {"default_policy": POLICY, "auto_create": True, "cache_bytes_max": 1 << 30}
    shard = await Shard.open(store, clock, **options)
    queue = publish(shard, 30_000)
    await shard.commit_once(everything=True)
    shard.manager.queues.delete(queue, clock.now_ms())
    await shard.commit_once(everything=True)  # and here the broker ends
    monkeypatch.setattr(limits, "BACKGROUND_DELETES_PER_COMMIT_MAX", 1_000)
    store.sizes.clear()
    shard = await Shard.open(store, clock, **options)
    await shard.sweep_once()  # it goes on behind the start
    await shard.commit_once(everything=True)
    assert len(store.sizes) > 1
    assert max(store.sizes) < 20_000
    await shard.close()


async def test_leases_end_while_something_large_is_removed(shard, monkeypatch):
    monkeypatch.setattr(limits, "SWEEP_INTERVAL_MS", 1)
    queue = publish(shard, 1)
    _, sink = consume(shard, queue)
    doomed = publish(shard, 1, "doomed")
    await shard.commit_once(everything=True)

    scanning = asyncio.Event()

    async def scan_for_ever(*args, **options):
        scanning.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(shard.store, "scan", scan_for_ever)
    shard.done_records.are_known = True
    shard.manager.queues.delete(doomed, shard.clock.now_ms())
    shard.start()
    shard.wake()
    await asyncio.wait_for(scanning.wait(), 20)
    shard.clock.ms += 1_000
    await until_so(lambda: hasattr(sink, "revoked_count"))
    assert sink.revoked_count == 1
    assert len(sink.claims) == 2


async def test_a_loop_that_ends_by_our_own_bug_is_a_failure_and_not_silence(shard):
    failures: list[Any] = []
    shard.on_failure(failures.append)
    shard.start()
    shard.manager.context.commit.wait(Waiter(KeyError("bug")), 0)
    shard.wake()
    await until_so(lambda: failures)
    assert [failure.reason for failure in failures] == ["internal error: KeyError: 'bug'"]


@pytest.mark.parametrize("loop", ["timers", "sweep"])
async def test_a_loop_woken_as_the_shard_closes_ends_all_the_same(loop, shard):
    shard.manager.context.timers.set(
        shard, shard.clock.now_ms() + 60_000
    )  # anybody: its loop has a time to wait for
    shard.start()
    await turns(20)  # every loop has begun to wait
    getattr(shard.wakeups, loop).set()
    async with asyncio.timeout(2):
        await shard.close()
    assert shard.is_closed


async def test_who_waits_for_a_load_is_called_when_the_queue_is_deleted_instead(shard):
    queue = publish(shard, 1_000)
    await shard.commit_once(everything=True)
    group = queue.group("")
    queue.log.tail.drop_before(1_000)
    called: list[Any] = []
    puller = shard.manager.consumption.puller(queue, Sink(), "p", lease_ms=100)
    assert shard.manager.consumption.pull(puller, False, shard.clock.now_ms()) is None
    group.when_loaded(called.append)
    shard.manager.queues.delete(queue, shard.clock.now_ms())
    await shard.load_once()
    assert len(called) == 1


async def test_what_lies_below_the_head_of_a_log_goes_only_so_often(shard):
    """It is looked for in the store, which has to have everything then."""

    def is_due() -> bool:
        return any(isinstance(removal, LogTrim) for removal in shard.manager.context.removals)

    _, sink = consume(shard, publish(shard, 1_000))
    shard.manager.ack(sink.claims, shard.clock.now_ms())
    await shard.commit_once(everything=True)
    shard.clock.ms += 10
    await shard.sweep_once()
    await shard.commit_once(everything=True)
    assert is_due()
    shard.clock.ms += limits.LOG_TRIM_INTERVAL_MS - 1
    shard.start()
    shard.wakeups.sweep.set()
    await turns(200)
    assert is_due()
    shard.clock.ms += 1
    shard.wakeups.sweep.set()
    await until_so(lambda: not is_due())
