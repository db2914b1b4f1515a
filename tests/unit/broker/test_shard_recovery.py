"""The first seconds after a start, before the done records have been read."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.engine.shard import Shard
from config import limits
from queue_manager.policy import QueuePolicy
from storage.metadata_log import listing_bounds, parse_listing_key, parse_log_key
from storage.records import done, failed
from tests.memory_store import MemoryStore
from tests.model.drain import drain
from tests.model.harness import DEFAULT_POLICY, FakeClock, Harness, open_shard
from tests.model.leaks import all_rows
from tests.model.oracle import OracleQueue
from tests.unit.queue_manager import managers

SHARED = ("shop/#",)


def policy(done_retention_ms: int = 0, bucket_size: int = 1, attempts_max: int = 0) -> QueuePolicy:
    return QueuePolicy(
        visibility_timeout_ms=30_000,
        message_bytes_max=1 << 20,
        done_retention_ms=done_retention_ms,
        bucket_size=bucket_size,
        attempts_max=attempts_max,
    )


def two_queues(done_retention_ms: int = 0, bucket_size: int = 1, count: int = 20) -> Harness:
    """Queues `one` and `two` with the same messages, all durable."""
    h = Harness()
    h.declare("one", policy(done_retention_ms, bucket_size), ("$queue/one/#", *SHARED))
    h.declare("two", policy(done_retention_ms, bucket_size), ("$queue/two/#", *SHARED))
    h.publish("shop/eu", count)
    h.commit(everything=True)
    return h


def queue(h: Harness, name: str) -> OracleQueue:
    return h.oracle.queues[name]


def ack(h: Harness, name: str, count: int) -> None:
    held = [pair for pair in h.held_items() if pair[0].queue.name == name]
    h.settle("ack", held[:count])


def test_a_bucket_that_closes_before_the_first_sweep_is_purged_once() -> None:
    h = two_queues(done_retention_ms=60_000)
    h.subscribe(queue(h, "one"))
    h.quiesce()
    ack(h, "one", 5)
    h.commit(everything=True)
    h.crash()
    h.subscribe(queue(h, "one"))
    h.quiesce()
    ack(h, "one", 15)
    h.commit(everything=True)
    h.advance(61_000)
    for _ in range(3):
        h.sweep()
        h.commit(everything=True)
    h.crash()
    h.subscribe(queue(h, "two"))
    h.quiesce()
    assert len(h.held_items()) == 20
    drain(h)


def test_a_group_made_before_the_first_sweep_does_not_release_twice() -> None:
    h = two_queues()
    h.subscribe(queue(h, "one"))
    h.quiesce()
    first, *others = [pair for pair in h.held_items() if pair[0].queue.name == "one"]
    h.settle("ack", others)
    h.commit(everything=True)
    for _ in range(3):
        h.sweep()
        h.commit(everything=True)
    h.crash()
    h.subscribe(queue(h, "one"), "late")
    h.quiesce()
    h.settle("ack", h.held_items())
    h.commit(everything=True)
    for _ in range(3):
        h.sweep()
        h.commit(everything=True)
    h.subscribe(queue(h, "two"))
    h.crash()
    h.subscribe(queue(h, "two"))
    h.quiesce()
    assert len(queue(h, "two").groups[""].held()) == 20
    drain(h)


def test_a_queue_deleted_before_the_first_sweep_leaves_the_payloads_of_others() -> None:
    h = two_queues()
    h.subscribe(queue(h, "one"))
    h.quiesce()
    h.settle("ack", h.held_items()[1:])
    h.commit(everything=True)
    for _ in range(3):
        h.sweep()
        h.commit(everything=True)
    h.crash()
    h.delete(queue(h, "one"))
    h.commit(everything=True)
    h.sweep()
    h.commit(everything=True)
    h.crash()
    h.subscribe(queue(h, "two"))
    h.quiesce()
    assert len(h.held_items()) == 20
    drain(h)


def test_a_failed_message_keeps_its_payload_when_the_log_is_trimmed_after_a_restart() -> None:
    h = Harness()
    h.declare("one", policy())
    h.publish("$queue/one", 12)
    h.commit(everything=True)
    h.crash()
    h.subscribe(queue(h, "one"))
    h.quiesce()
    h.settle("reject", h.held_items()[:2])
    h.settle("ack", h.held_items())
    drain(h)  # looks for the payloads of failed messages


def test_attempts_of_a_message_that_was_purged_go_with_its_done_record() -> None:
    h = Harness()
    h.declare("one", policy(done_retention_ms=60_000))
    h.publish("$queue/one", 3)
    h.subscribe(queue(h, "one"), credit_max=1)
    h.quiesce()
    h.settle("requeue", h.held_items())
    h.commit(everything=True)
    h.purge(queue(h, "one"))
    drain(h)


@pytest.mark.parametrize("bucket_sizes", [[1], [0], [1, 2], [0, 2, 1]])
def test_a_bucket_left_over_by_another_bucket_size_is_let_go_of(bucket_sizes: list[int]) -> None:
    h = Harness()
    h.declare("one", policy(done_retention_ms=60_000, bucket_size=2))
    h.publish("$queue/one", 30)
    h.subscribe(queue(h, "one"), credit_max=7)
    h.quiesce()
    h.commit(everything=True)
    for bucket_size in bucket_sizes:
        h.crash(bucket_size)
        h.subscribe(queue(h, "one"), credit_max=9)
        h.quiesce()
        h.settle("ack", h.held_items()[:3])
        h.commit(everything=True)
    drain(h)


def test_claims_in_flight_return_with_their_attempts() -> None:
    h = Harness()
    h.declare("one", policy())
    h.publish("$queue/one", 4)
    for _ in range(3):
        h.subscribe(queue(h, "one"))
        h.quiesce()
        h.commit(everything=True)
        h.crash()
    h.subscribe(queue(h, "one"))
    h.quiesce()
    assert [item.attempts_min for _, item in h.held_items()] == [4] * 4
    drain(h)


def test_nothing_is_written_of_a_queue_in_memory() -> None:
    h = Harness()
    h.publish("$queue/temp/eu", 9)
    h.subscribe(queue(h, "temp"), "a", "eu")
    h.subscribe(queue(h, "temp"), "b", "us/#", no_ack=True)
    h.quiesce()
    h.settle("requeue", h.held_items()[:3])
    h.quiesce()
    h.settle("ack", h.held_items()[:3])
    h.settle("reject", h.held_items()[:3])
    h.purge(queue(h, "temp"))
    h.commit(everything=True)
    h.sweep()
    h.commit(everything=True)
    assert [key for key, _ in all_rows(h.store) if key[:2] != b"\x01\x07"] == []
    h.crash()
    assert not h.oracle.queues


def test_a_purge_is_durable_with_the_next_commit() -> None:
    h = two_queues()
    h.subscribe(queue(h, "one"), credit_max=2)
    h.quiesce()
    h.commit(everything=True)
    h.purge(queue(h, "one"))
    h.purge(queue(h, "two"))
    h.commit(everything=False)
    h.oracle.committed_everything(lambda group: False)
    h.crash()
    assert h.manager.queues.find("one").ready_count() == 2
    assert h.manager.queues.find("two").ready_count() == 0
    drain(h)


def test_a_queue_s_offsets_go_on_after_everything_was_consumed() -> None:
    h = Harness()
    h.declare("one", policy())
    for _ in range(3):
        h.publish("$queue/one", 7)
        h.subscribe(queue(h, "one"))
        h.quiesce()
        h.settle("ack", h.held_items())
        h.commit(everything=True)
        h.sweep()
        h.commit(everything=True)
        h.crash()
    h.publish("$queue/one", 1)
    assert h.manager.queues.find("one").log.next_offset == 22
    drain(h)


class CountingStore(MemoryStore):
    """Notes by how many keys values are asked for."""

    def __init__(self, rows: dict[bytes, bytes]) -> None:
        super().__init__(rows=rows)
        self.key_counts: list[int] = []

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.key_counts.append(len(keys))
        return [await super(CountingStore, self).get(key) for key in keys]

    async def get(self, key: bytes) -> bytes | None:
        if key[1] in (done.prefix()[1], failed.prefix()[1]):
            self.key_counts.append(1)
        return await super().get(key)


async def test_the_records_of_open_buckets_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECOVERY_BUCKETS_AT_ONCE", 3)
    h = two_queues(count=50)  # ten to a bucket
    for name in ("one", "two"):
        h.subscribe(queue(h, name))
    h.quiesce()
    h.settle("ack", h.held_items()[::10])
    h.settle("reject", h.held_items()[::9])  # of each bucket one
    h.commit(everything=True)
    store = CountingStore(dict(all_rows(h.store)))
    shard = await Shard.open(
        store,
        h.clock,  # type: ignore[arg-type]
        default_policy=DEFAULT_POLICY,
        auto_create=True,
        cache_bytes_max=0,
    )
    assert store.key_counts == [6, 6, 6, 2]
    await shard.sweep_once()
    for name in ("one", "two"):
        group = shard.manager.queues.find(name).groups.find("")
        assert (group.ready_count(), group.failed_count()) == (40, 5)


async def stored_instances(store: MemoryStore) -> set[str]:
    """The instance IDs in the keys of what is listed."""
    rows = await store.scan(*listing_bounds(1), limit=100)
    return {parse_log_key(parse_listing_key(key)[1])[0] for key, _ in rows}


@pytest.mark.parametrize("first", ["i1", "site-a.1"])
async def test_a_store_keeps_the_instance_id_its_logs_were_begun_with(first: str) -> None:
    store = MemoryStore()
    clock = FakeClock()
    for instance_id in (first, "another"):
        shard = await Shard.open(
            store,
            clock,  # type: ignore[arg-type]
            default_policy=DEFAULT_POLICY,
            auto_create=True,
            cache_bytes_max=0,
            instance_id=instance_id,
        )
        if "jobs" not in shard.manager.queues:
            managers.make_queue(shard.manager)
        managers.publish(shard.manager, 2)
        await shard.commit_once(everything=True)
        store = store.crash()
    assert await stored_instances(store) == {first}
    shard = open_shard(store, clock)
    assert shard.manager.queues.find("jobs").log.next_offset == 4
