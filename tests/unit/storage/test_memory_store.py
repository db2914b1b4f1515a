import asyncio
import random

import pytest

from storage.batch import WriteOps
from storage.errors import StorageError, StoreUnavailable
from tests.memory_store import MemoryStore
from tests.unit.storage.store_conformance import CHECKS, Opener, batch
from tests.waiting import turns


@pytest.fixture
def opener() -> Opener:
    last = MemoryStore()

    async def open_again() -> MemoryStore:
        nonlocal last
        last = last.crash()
        return last

    return open_again


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_memory_store_passes_each_store_check(check, opener):
    await check(opener)


async def test_deferred_write_is_read_at_once_but_returns_when_durable():
    store = MemoryStore(deferred=True)
    write = asyncio.create_task(store.write(batch({b"k": b"v"})))
    await turns()
    assert await store.get(b"k") == b"v"
    assert store.pending_writes == 1
    assert not write.done()
    store.make_durable()
    await write
    assert store.pending_writes == 0


async def test_writes_become_durable_in_order():
    store = MemoryStore(deferred=True)
    done: list[int] = []

    async def write(number: int) -> None:
        await store.write(batch({b"%d" % number: b""}))
        done.append(number)

    tasks = [asyncio.create_task(write(number)) for number in range(3)]
    await turns()
    store.make_durable(2)
    await asyncio.gather(*tasks[:2])
    assert done == [0, 1]
    store.make_durable(5)
    await tasks[2]
    assert done == [0, 1, 2]


async def test_crash_keeps_only_what_was_durable():
    store = MemoryStore(deferred=True)
    first = asyncio.create_task(store.write(batch({b"a": b"1", b"b": b"1"})))
    second = asyncio.create_task(store.write(batch({b"a": b"2"}, b"b")))
    await turns()
    store.make_durable(1)
    await first
    after = store.crash()
    with pytest.raises(StorageError, match="crashed"):
        await second
    with pytest.raises(StorageError, match="closed"):
        await store.get(b"a")
    assert await after.scan(b"", None, limit=10) == [(b"a", b"1"), (b"b", b"1")]
    # the new store is deferred as well
    third = asyncio.create_task(after.write(batch({b"c": b""})))
    await turns()
    assert not third.done()
    await after.close()
    await third


async def test_crash_without_deferral_loses_nothing_and_shares_nothing():
    store = MemoryStore()
    await store.write(batch({b"a": b"1"}))
    after = store.crash()
    await after.write(batch({b"b": b"2"}))
    assert await after.scan(b"", None, limit=10) == [(b"a", b"1"), (b"b", b"2")]
    assert await after.crash().get(b"b") == b"2"


async def test_cancelled_writer_does_not_stop_the_others():
    store = MemoryStore(deferred=True)
    cancelled = asyncio.create_task(store.write(batch({b"a": b""})))
    other = asyncio.create_task(store.write(batch({b"b": b""})))
    await turns()
    cancelled.cancel()
    await turns()
    store.make_durable()
    await other
    assert [key for key, _ in await store.crash().scan(b"", None, limit=10)] == [b"a", b"b"]


async def test_later_changes_of_a_pending_batch_are_not_written():
    store = MemoryStore(deferred=True)
    ops = batch({b"k": b"kept"})
    write = asyncio.create_task(store.write(ops))
    await turns()
    ops.put(b"other", b"")
    store.make_durable()
    await write
    assert await store.crash().scan(b"", None, limit=10) == [(b"k", b"kept")]


async def test_failed_write_leaves_nothing():
    store = MemoryStore()
    store.fail_next_write(StoreUnavailable("no answer"))
    with pytest.raises(StoreUnavailable, match="no answer"):
        await store.write(batch({b"k": b""}))
    assert await store.get(b"k") is None
    await store.write(batch({b"k": b""}))
    assert await store.get(b"k") == b""


async def test_planned_failures_happen_one_after_another():
    store = MemoryStore()
    store.fail_next_write(StoreUnavailable("one"))
    store.fail_next_write(StoreUnavailable("two"))
    for reason in ("one", "two"):
        with pytest.raises(StoreUnavailable, match=reason):
            await store.write(WriteOps())
    await store.write(WriteOps())


@pytest.mark.parametrize("deferred", [False, True])
async def test_write_that_fails_may_be_applied(deferred):
    store = MemoryStore(deferred=deferred)
    store.fail_next_write(StoreUnavailable("answer lost"), applied=True)
    with pytest.raises(StoreUnavailable):
        await store.write(batch({b"k": b"v"}))
    assert await store.get(b"k") == b"v"
    store.make_durable()
    assert await store.crash().get(b"k") == b"v"


async def test_applied_failure_is_lost_by_a_crash_before_it_is_durable():
    store = MemoryStore(deferred=True)
    store.fail_next_write(StoreUnavailable("answer lost"), applied=True)
    with pytest.raises(StoreUnavailable):
        await store.write(batch({b"k": b"v"}))
    assert await store.crash().get(b"k") is None


def test_describe_names_the_mode():
    assert MemoryStore().describe() != MemoryStore(deferred=True).describe()


async def test_scans_agree_with_a_sorted_dictionary():
    rng = random.Random(7)
    store = MemoryStore()
    model: dict[bytes, bytes] = {}
    for _ in range(60):
        puts = {rng.randrange(20_000).to_bytes(2, "big"): b"%d" % rng.randrange(1_000) for _ in range(300)}
        gone = [key for key in rng.sample(sorted(model), min(len(model), 150)) if key not in puts]
        await store.write(batch(puts, *gone))
        model.update(puts)
        for key in gone:
            del model[key]
        start, end = sorted(rng.randrange(20_000).to_bytes(2, "big") for _ in range(2))
        expected = [(key, model[key]) for key in sorted(model) if start <= key < end]
        assert await store.scan(start, end, limit=100_000) == expected
        assert await store.scan(start, end, limit=100_000, reverse=True) == expected[::-1]
    assert await store.scan(b"", None, limit=100_000) == sorted(model.items())
    assert await store.scan(b"", None, limit=100_000, reverse=True) == sorted(model.items())[::-1]
