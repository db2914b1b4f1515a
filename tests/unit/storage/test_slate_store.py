import asyncio
import random
import threading

import pytest
from slatedb.uniffi import Db, DbIterator, FlushOptions, FlushType, ObjectStore

from config import limits
from config.settings import StorageSettings
from storage import fast_batch
from storage.batch import WriteOps
from storage.errors import StorageError, StoreFenced, StoreUnavailable
from storage.fast_rows import value_of
from storage.open import open_database
from storage.records import payload
from storage.slate_store import SlateStore
from tests.unit.storage.store_conformance import CHECKS, batch
from tests.waiting import turns, until_so


@pytest.fixture(params=["memory", "memory, stock binding", "disk, always", "disk, os"])
def opener(request, tmp_path, monkeypatch):
    memory = ObjectStore.resolve("memory:///")
    if "stock" in request.param:
        monkeypatch.setenv(fast_batch.SWITCH, "off")
    if request.param.startswith("memory"):
        settings = StorageSettings(url="memory:")
    else:
        settings = StorageSettings(url=str(tmp_path), sync=request.param.removeprefix("disk, "))

    opened: list[SlateStore] = []

    async def open_again() -> SlateStore:
        for store in opened:
            if store.lock is not None:
                store.lock.release()  # as the death of its process would
        opened.append(await open_database(settings, memory=memory))
        return opened[-1]

    return open_again


@pytest.fixture
async def store():
    store = await open_database(StorageSettings(url="memory:"))
    yield store
    await store.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_slate_store_passes_each_store_check(check, opener):
    await check(opener)


async def test_written_batch_is_complete_after_a_reopen_without_close(opener):
    store = await opener()
    await store.write(batch({b"a": b"1", b"b": b"2"}))
    await store.write(batch({b"c": b"3"}, b"a"))
    again = await opener()  # fences the first, as a restart after a crash would
    assert await again.scan(b"", None, limit=10) == [(b"b", b"2"), (b"c", b"3")]
    with pytest.raises(StoreFenced):
        await store.write(batch({b"d": b"4"}))
    assert await again.get(b"d") is None
    await store.close()
    await again.close()


async def test_payloads_of_any_size_read_back_equal(opener, monkeypatch):
    monkeypatch.setattr(limits, "VALUE_PART_BYTES", 1_000)
    before = threading.enumerate()
    store = await opener()
    sizes = (0, 1, 999, 1_000, 1_001, 2_000, 70_001)
    values = {payload.key(number): random.Random(number).randbytes(size) for number, size in enumerate(sizes)}
    await store.write(batch(values))
    assert await store.scan(payload.key(0), payload.key(99), limit=9) == list(values.items())
    assert await store.scan(b"", None, limit=9) == list(values.items())
    assert await store.get_many([*values, payload.key(99)]) == [*values.values(), None]
    await store.close()
    assert not [t for t in threading.enumerate() if t.name == "store-reads" and t not in before]
    with pytest.raises(StorageError):
        await store.get(payload.key(0))


async def test_payloads_are_read_beside_the_event_loop(store, monkeypatch):
    threads = []
    whole = value_of

    async def note(database, key):
        threads.append(threading.current_thread().name)
        return await whole(database, key)

    monkeypatch.setattr(SlateStore, "_value_of", staticmethod(note))
    await store.get(payload.key(0))
    await store.get(b"k")
    assert threads == ["store-reads", threading.current_thread().name]


async def test_scan_merges_memory_and_tables(opener):
    store = await opener()
    expected = {}
    for table in range(4):
        ops = WriteOps()
        for number in range(table, 2_000, 4):
            expected[b"k%05d" % number] = b"%d" % number * 50
            ops.put(b"k%05d" % number, expected[b"k%05d" % number])
        await store.write(ops)
        if table < 3:
            await store._database.flush_with_options(FlushOptions(flush_type=FlushType.MEM_TABLE))
    rows = sorted(expected.items())
    for limit in (1, 16, 17, 64, 65, 1_999, 2_000, 5_000):
        assert await store.scan(b"k", None, limit=limit) == rows[:limit]
        assert await store.scan(b"k", None, limit=limit, reverse=True) == rows[::-1][:limit]
    await store.close()


@pytest.mark.parametrize("wait_ms", [1, 3_600_000])
async def test_what_scans_have_read_is_let_go_of_beside_the_loop(opener, monkeypatch, wait_ms):
    """Soon, when they are many, and at the end."""
    monkeypatch.setattr(limits, "STORE_RELEASE_INTERVAL_MS", wait_ms)
    threads = []
    monkeypatch.setattr(DbIterator, "__del__", lambda rows: threads.append(threading.current_thread()))
    store = await opener()
    for _ in range(limits.STORE_USED_SCANS_MAX + 1):
        await store.scan(b"k", None, limit=1)
    await until_so(lambda: len(threads) >= limits.STORE_USED_SCANS_MAX)
    await store.close()
    await until_so(lambda: len(threads) == limits.STORE_USED_SCANS_MAX + 1)
    assert threading.current_thread() not in threads


async def test_scan_of_rows_of_different_sizes_is_complete(store):
    rows = [(b"k%04d" % number, bytes(400_000 if number % 50 == 49 else 10)) for number in range(200)]
    ops = WriteOps()
    ops.puts += rows
    await store.write(ops)
    assert await store.scan(b"", None, limit=1_000) == rows


async def test_concurrent_reads_see_whole_batches(store):
    async def read() -> None:
        for _ in range(50):
            rows = await store.scan(b"k", None, limit=10)
            assert len({value for _, value in rows}) <= 1  # both rows of one batch, or neither

    async def write() -> None:
        for number in range(50):
            await store.write(batch({b"k1": b"%d" % number, b"k2": b"%d" % number}))

    await asyncio.gather(write(), read(), read())


class StuckDatabase:
    """A database whose flushes wait for `release`."""

    def __init__(self, database: Db) -> None:
        self._database = database
        self.release = asyncio.Event()
        self.writes = 0

    def __getattr__(self, name: str):
        return getattr(self._database, name)

    async def write(self, rows):
        self.writes += 1
        return await self._database.write(rows)

    async def flush_with_options(self, options):
        await self.release.wait()
        await self._database.flush_with_options(options)


async def test_late_write_is_unavailable_and_can_be_repeated(store, monkeypatch):
    monkeypatch.setattr(limits, "STORE_CALL_TIMEOUT_S", 0.05)
    store._database = stuck = StuckDatabase(store._database)
    ops = batch({b"k": b"v"})
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="writing: no answer from memory"):
            await store.write(ops)
    assert stuck.writes == 1, "the rows are in SlateDB's memory already"
    monkeypatch.undo()
    stuck.release.set()
    await store.write(ops)
    assert stuck.writes == 1
    await store.write(ops)
    assert stuck.writes == 2, "once durable, the same batch is a new one"


async def test_keys_of_one_call_are_read_concurrently(store):
    await store.write(batch({b"a": b"1", b"b": b"2"}))

    class Slow(StuckDatabase):
        asked_count = 0

        async def get(self, key):
            self.asked_count += 1
            if self.asked_count == 2:
                self.release.set()
            await self.release.wait()
            return await self._database.get(key)

    real = store._database
    store._database = Slow(real)
    async with asyncio.timeout(5):
        assert await store.get_many([b"a", b"b"]) == [b"1", b"2"]
    store._database = real


async def test_batch_that_grew_after_a_late_write_is_written_again(store, monkeypatch):
    monkeypatch.setattr(limits, "STORE_CALL_TIMEOUT_S", 0.05)
    store._database = stuck = StuckDatabase(store._database)
    ops = batch({b"k": b"v"})
    with pytest.raises(StoreUnavailable):
        await store.write(ops)
    ops.put(b"more", b"v")
    monkeypatch.undo()
    stuck.release.set()
    await store.write(ops)
    assert await store.get(b"more") == b"v"


async def test_commit_without_a_log_object_is_not_confirmed(tmp_path):
    store = await open_database(StorageSettings(url=str(tmp_path)))

    class Forgetful(StuckDatabase):
        async def flush_with_options(self, options):
            return

    real = store._database
    store._database = Forgetful(real)
    with pytest.raises(StorageError, match="not found"):
        await store.write(batch({b"k": b"v"}))
    store._database = real
    await store.close()


async def test_log_is_kept_short_for_who_takes_over_by_a_lease(store, monkeypatch):
    monkeypatch.setattr(limits, "STORE_LEASED_LOG_OBJECTS_MAX", 5)
    flushed = []

    async def flush_tables():
        flushed.append(store._log_objects)

    monkeypatch.setattr(store, "_flush_tables", flush_tables)
    for number in range(12):
        await store.write(batch({b"k%d" % number: b"v"}))
    assert not flushed, "without a lease it is as long as the library likes"
    await store.hold(60_000)
    for number in range(12):
        await store.write(batch({b"k%d" % number: b"v"}))
    assert len(flushed) == 3
    await store.close()


async def test_store_is_usable_after_a_refused_operation(store):
    ops = batch({b"good": b"1"})
    ops.puts.append((b"", b"an empty key"))
    with pytest.raises(StorageError, match="refused"):
        await store.write(ops)
    assert await store.get(b"good") is None
    await store.write(batch({b"good": b"2"}))
    assert await store.get(b"good") == b"2"


async def test_cancelled_write_does_not_block_the_next(store):
    task = asyncio.create_task(store.write(batch({b"k": b"1"})))
    await turns()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await store.write(batch({b"k": b"2"}))
    assert await store.get(b"k") == b"2"
