"""A journal before a real SlateDB."""

import asyncio
import os
import threading
from contextlib import suppress

import pytest
from slatedb.uniffi import ObjectStore

from config import limits
from config.settings import StorageSettings
from storage import slate_store
from storage.directory_lock import DirectoryLock
from storage.errors import StorageError, StoreFenced, StoreFull, StoreUnavailable
from storage.fast_batch import fill_batch
from storage.journal.appender import Appender
from storage.journal.files import segment_paths
from storage.journal.journaled_store import JournaledStore
from storage.journal.opening import open_journaled
from storage.open import open_database
from storage.records import journal_state
from storage.slate_store import SlateStore
from tests.unit.storage.store_conformance import CHECKS, batch
from tests.waiting import LoopClock, hold_up, turns, until_so

WAYS = ["now if it can", "by the thread"]


class NowFirst:
    """The store as the broker's commit loop uses it."""

    def __init__(self, store: JournaledStore) -> None:
        self._store = store

    def __getattr__(self, name: str):
        return getattr(self._store, name)

    async def write(self, ops):
        self._store.prepare(ops)
        await write_soon(self._store, ops)


@pytest.fixture
def quick(monkeypatch):
    """However busy the disk is, it counts as quick."""
    monkeypatch.setattr(limits, "JOURNAL_INLINE_SYNC_US_MAX", 10_000_000)


def taken_lock(root) -> DirectoryLock:
    lock = DirectoryLock(root)
    lock.take()
    return lock


@pytest.fixture
def opener(tmp_path):
    async def open_again() -> JournaledStore:
        slate = await open_database(StorageSettings(url=str(tmp_path)))
        assert slate.lock is not None
        return await open_journaled(slate, slate.lock)

    return open_again


@pytest.fixture
async def store(opener):
    store = await opener()
    yield store
    await store.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_conformance(check, opener, way, quick):
    async def open_again():
        store = await opener()
        return NowFirst(store) if way == "now if it can" else store

    await check(open_again)


class HeldDisk(threading.Event):
    """Syncs wait until it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    async def is_asked(self) -> None:
        """Return once there is a sync."""
        assert await asyncio.to_thread(self.asked.wait, 20)


@pytest.fixture
def held_disk(monkeypatch):
    """A disk whose syncs of the journal's segments wait for `set`."""
    go_on = HeldDisk()
    whole = os.fdatasync

    def sync(fd: int) -> None:
        if "segment-" in os.readlink(f"/proc/self/fd/{fd}"):
            go_on.asked.set()
            go_on.wait(20)
        whole(fd)

    monkeypatch.setattr(os, "fdatasync", sync)
    yield go_on
    go_on.set()


class HeldDatabase:
    """Flushes wait for `go_on`."""

    def __init__(self, slate: SlateStore, monkeypatch) -> None:
        self.go_on = asyncio.Event()
        self.flush_count = 0
        self._flush = slate.make_durable
        monkeypatch.setattr(SlateStore, "make_durable", lambda slate: self.flush())

    async def flush(self) -> None:
        await self.go_on.wait()
        await self._flush()
        self.flush_count += 1


async def fill(store: JournaledStore) -> int:
    """Write until there is no more room; how many commits of 9 KB there was room for."""
    for number in range(1_000):
        try:
            await store.write(batch({b"k%04d" % number: bytes(9_000)}))
        except StoreFull:
            return number
    raise AssertionError("there is always room")


async def failure_of(store: JournaledStore) -> StorageError:
    """What the store fails with, by itself."""

    def failure() -> StorageError | None:
        try:
            store.check()
        except StorageError as error:
            return error
        return None

    return await until_so(failure)


async def write_soon(store: JournaledStore, ops) -> None:
    if not store.write_now(ops):
        await store.write(ops)


async def sequence_in(slate: SlateStore) -> int:
    value = await slate.get(journal_state.key())
    assert value is not None
    return journal_state.decode(value).sequence


async def test_a_small_commit_on_a_quick_disk_needs_no_thread(store, quick):
    await store.write(batch({b"first": b"makes the segment"}))
    assert store.write_now(batch({b"k": b"v"}))
    assert await store.get(b"k") == b"v"
    assert await store.scan(b"k", None, limit=5) == [(b"k", b"v")]
    assert not store.write_now(batch({b"large": bytes(limits.JOURNAL_INLINE_BYTES_MAX)}))
    assert await store.get(b"large") is None


async def test_a_slow_disk_is_left_to_the_thread_until_it_is_quick_again(opener, monkeypatch):
    whole = os.fdatasync
    delay_s = 0.02

    def slow(fd: int) -> None:
        hold_up(delay_s)
        whole(fd)

    monkeypatch.setattr(limits, "JOURNAL_INLINE_SYNC_US_MAX", 10_000)
    monkeypatch.setattr(os, "fdatasync", slow)
    store = await opener()
    for number in range(4):
        assert not store.write_now(batch({b"k": b"%d" % number}))
        await store.write(batch({b"k": b"%d" % number}))
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    for number in range(30):
        if store.write_now(batch({b"k": b"%d" % number})):
            break
        await store.write(batch({b"k": b"%d" % number}))
    else:
        pytest.fail("the disk is quick again, and nobody noticed")
    await store.close()


@pytest.mark.parametrize("folder", ["wal", "compacted"])
async def test_the_loop_waits_for_no_sync_behind_that_of_slatedbs_files(opener, monkeypatch, quick, folder):
    monkeypatch.setattr(limits, "STORE_SWEEP_INTERVAL_S", 0.2)
    monkeypatch.setattr(limits, "JOURNAL_FLUSH_INTERVAL_MS", 10)
    store = await opener()
    begun, go_on = threading.Event(), threading.Event()
    whole = os.fsync

    def sync(fd: int) -> None:
        if f"/{folder}" in os.readlink(f"/proc/self/fd/{fd}"):
            begun.set()
            go_on.wait(20)
        whole(fd)

    await store.write(batch({b"k": b"1"}))
    monkeypatch.setattr(os, "fsync", sync)
    if folder == "wal":
        await store.scan(b"k", None, limit=1)
    else:
        await store._slate._flush_tables()
    await asyncio.to_thread(begun.wait, 20)
    ops = batch({b"k": b"3"})
    assert not store.write_now(ops)
    await store.write(ops)
    go_on.set()
    await until_so(lambda: store.write_now(batch({b"k": b"4"})))  # the sync has ended
    await store.close()


async def test_the_loop_goes_on_while_the_disk_is_slow(store, held_disk):
    write = asyncio.create_task(store.write(batch({b"k": b"v"})))
    await held_disk.is_asked()
    assert not write.done()
    assert not store.write_now(batch({b"later": b""})), "it has to wait for its turn"
    held_disk.set()
    await write


async def test_slatedb_has_nothing_the_journal_has_not(store, held_disk, monkeypatch):
    monkeypatch.setattr(limits, "JOURNAL_APPLY_INTERVAL_MS", 1)
    write = asyncio.create_task(store.write(batch({b"k": b"v"})))
    await held_disk.is_asked()
    await LoopClock().advance(0.1)
    assert await store._slate.get(b"k") is None
    held_disk.set()
    await write
    assert await store.scan(b"k", None, limit=5) == [(b"k", b"v")]
    assert await store._slate.get(b"k") == b"v"


async def test_reads_see_what_was_begun(store, held_disk):
    write = asyncio.create_task(store.write(batch({b"k": b"v"})))
    await held_disk.is_asked()
    reads = asyncio.gather(store.get(b"k"), store.scan(b"k", None, limit=5))
    await turns(20)
    assert not reads.done()
    held_disk.set()
    assert tuple(await reads) == (b"v", [(b"k", b"v")])
    await write


async def test_a_batch_for_slatedb_holds_whole_commits_and_their_number(tmp_path, monkeypatch):
    """Whenever the database is cut off, it has exactly the commits it says, wholly."""
    monkeypatch.setattr(limits, "JOURNAL_APPLY_INTERVAL_MS", 1)
    monkeypatch.setattr(limits, "JOURNAL_APPLY_STEP_ROWS", 3)
    memory = ObjectStore.resolve("memory:///")
    settings = StorageSettings(url="memory:")
    store = await open_journaled(await open_database(settings, memory=memory), taken_lock(tmp_path))
    seen = set()
    for number in range(1, 120):
        await store.write(batch({b"k%04d-%d" % (number, part): b"v" for part in range(7)}))
        if number % 10 == 0:
            await store._slate.make_durable()
            taken_over = await open_database(settings, memory=memory)
            sequence = await sequence_in(taken_over)
            rows = await taken_over.scan(b"k", b"l", limit=10_000)
            assert [key for key, _ in rows] == [
                b"k%04d-%d" % (n, part) for n in range(1, sequence + 1) for part in range(7)
            ]
            seen.add(sequence)
            with suppress(StoreFenced):  # unless it has noticed already
                await store.close()
            store = await open_journaled(taken_over, taken_lock(tmp_path))
            assert len(await store.scan(b"k", b"l", limit=10_000)) == 7 * number
    assert len(seen) == 11
    await store.close()


async def test_replay_is_right_where_the_database_was_never_given_what_was_deleted_soon(
    tmp_path, monkeypatch
):
    """Cut off whenever a portion was handed over without values that later commits delete."""
    monkeypatch.setattr(limits, "JOURNAL_APPLY_INTERVAL_MS", 3_600_000)
    monkeypatch.setattr(limits, "JOURNAL_PORTION_BYTES", 20_000)
    monkeypatch.setattr(limits, "JOURNAL_WAITING_BYTES", 60_000)
    body = bytes(3 * limits.JOURNAL_LARGE_ROW_BYTES)
    memory = ObjectStore.resolve("memory:///")
    settings = StorageSettings(url="memory:")
    store = await open_journaled(await open_database(settings, memory=memory), taken_lock(tmp_path))
    written: set[bytes] = set()
    fill = fill_batch

    def noted(into, ops):
        written.update(dict(ops.puts))
        fill(into, ops)

    monkeypatch.setattr(slate_store, "fill_batch", noted)
    kept = {}
    for number in range(1, 121):
        key = b"k%04d" % number
        await store.write(batch({key: body}))
        if number % 6:
            await store.write(batch({}, key))
        else:
            kept[key] = body
        if number % 40 == 0:
            await store._slate.make_durable()
            taken_over = await open_database(settings, memory=memory)
            assert await sequence_in(taken_over) > 0
            with suppress(StoreFenced):  # unless it has noticed already
                await store.close()
            store = await open_journaled(taken_over, taken_lock(tmp_path))
            found = dict(await store.scan(b"k", b"l", limit=1_000))
            assert (sorted(found), number) == (sorted(kept), number)
    assert kept.keys() <= written
    assert len([key for key in written if key.startswith(b"k")]) < 60, "most were deleted before"
    await store.close()


async def test_a_flush_that_stalls_holds_writers_back_and_loses_nothing(opener, monkeypatch, tmp_path):
    monkeypatch.setattr(limits, "JOURNAL_SEGMENT_BYTES", 64 * limits.KIB)
    monkeypatch.setattr(limits, "JOURNAL_SEGMENTS_MAX", 4)
    monkeypatch.setattr(limits, "STORE_CALL_TIMEOUT_S", 0.3)
    store = await opener()
    held = HeldDatabase(store._slate, monkeypatch)
    written = await fill(store)
    assert 4 * 6 <= written <= 4 * 7
    ops = batch({b"k%04d" % written: bytes(9_000)})
    with pytest.raises(StoreFull, match="the journal is full"):
        await store.write(ops)
    assert len(await store.scan(b"k", b"l", limit=100)) == written, "reading goes on"
    held.go_on.set()
    await store.write(ops)
    assert await store.get(b"k%04d" % written) == bytes(9_000)
    assert len(segment_paths(tmp_path / "journal")) == 4
    await store.close()
    store = await opener()
    assert len(await store.scan(b"k", b"l", limit=100)) == written + 1
    await store.close()


async def test_a_segment_waits_for_our_sync_of_slatedbs_files(opener, monkeypatch):
    """SlateDB's flush alone does not free it: the machine may lose what is not synced."""
    monkeypatch.setattr(limits, "JOURNAL_SEGMENT_BYTES", 64 * limits.KIB)
    monkeypatch.setattr(limits, "JOURNAL_SEGMENTS_MAX", 2)
    monkeypatch.setattr(limits, "STORE_CALL_TIMEOUT_S", 0.5)
    store = await opener()
    go_on = threading.Event()
    whole = os.fsync

    def sync(fd: int) -> None:
        if "/wal/" in os.readlink(f"/proc/self/fd/{fd}"):
            go_on.wait(20)
        whole(fd)

    monkeypatch.setattr(os, "fsync", sync)
    assert await fill(store) < 20
    go_on.set()
    await store.write(batch({b"more": b""}))
    await store.close()


async def test_a_failed_sync_is_final(store, monkeypatch, quick):
    await store.write(batch({b"k": b"kept"}))

    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fail)
        with pytest.raises(StorageError, match="syncing the journal"):
            await write_soon(store, batch({b"k": b"lost"}))
    for _ in range(2):
        with pytest.raises(StorageError, match="syncing the journal"):
            await store.write(batch({b"k": b"again"}))
        with pytest.raises(StorageError, match="syncing the journal"):
            store.write_now(batch({b"k": b"again"}))
        with pytest.raises(StorageError, match="syncing the journal"):
            store.check()
    assert await store.get(b"k") == b"kept"


async def test_a_failed_sync_of_slatedbs_files_is_final(store, monkeypatch):
    def fail(fd: int) -> None:
        raise OSError(28, "No space left on device")

    await store.write(batch({b"k": b"v"}))
    monkeypatch.setattr(os, "fsync", fail)
    await store.write(batch({b"k": b"v"}))
    failure = await failure_of(store)
    assert "syncing to disk: No space left" in failure.reason
    assert type(failure) is StorageError, "not one that invites to try again"


async def test_a_write_that_is_late_says_so_and_is_not_begun_twice(store, held_disk, monkeypatch):
    monkeypatch.setattr(limits, "STORE_CALL_TIMEOUT_S", 0.05)
    appended = []
    whole = Appender.append

    def noted(*args):
        appended.append(args)
        return whole(*args)

    monkeypatch.setattr(Appender, "append", noted)
    ops = batch({b"k": b"v"})
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="no answer from"):
            await store.write(ops)
    held_disk.set()
    monkeypatch.setattr(limits, "STORE_CALL_TIMEOUT_S", 20)
    await store.write(ops)
    assert len(appended) == 1
    await store.write(ops)
    assert len(appended) == 2, "once durable, the same batch is a new one"


async def test_a_cancelled_write_takes_effect_and_leaves_no_gap(opener, held_disk):
    store = await opener()
    ops = batch({b"k": b"1"})
    task = asyncio.create_task(store.write(ops))
    await held_disk.is_asked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ops.puts[0] = (b"k", b"changed after the call")
    held_disk.set()
    await store.write(batch({b"other": b"2"}))
    assert await store.scan(b"k", None, limit=9) == [(b"k", b"1"), (b"other", b"2")]
    await store.close()
    store = await opener()
    assert await store.scan(b"k", None, limit=9) == [(b"k", b"1"), (b"other", b"2")]
    await store.close()


async def test_large_commits_are_handed_over_in_steps(store, monkeypatch):
    longest = 0
    whole = asyncio.sleep

    async def count(delay: float, *args):
        nonlocal longest
        longest += delay == 0
        await whole(delay, *args)

    monkeypatch.setattr(asyncio, "sleep", count)
    await store.write(batch({b"k%06d" % number: bytes(100) for number in range(10_000)}))
    assert len(await store.scan(b"k", b"l", limit=20_000)) == 10_000
    assert longest >= 10_000 // limits.JOURNAL_APPLY_STEP_ROWS


async def test_small_commits_share_a_batch(store, monkeypatch, quick):
    applied = []
    whole = SlateStore.apply

    async def apply(slate, rows):
        applied.append(rows)
        await whole(slate, rows)

    monkeypatch.setattr(SlateStore, "apply", apply)
    monkeypatch.setattr(limits, "JOURNAL_APPLY_INTERVAL_MS", 10_000)
    await store.write(batch({b"k": b""}))
    for number in range(200):
        await store.write(batch({b"k%d" % number: b""}))
    assert applied == []
    await store.scan(b"k", None, limit=1)
    assert len(applied) == 1


async def test_the_journals_own_record_is_not_a_row_of_the_store(store):
    await store.write(batch({b"\x01\x1e": b"before", b"\x01\x20": b"behind"}))
    assert await store.scan(b"\x01", None, limit=2) == [(b"\x01\x1e", b"before"), (b"\x01\x20", b"behind")]
    assert await store.scan(b"\x01", None, limit=2, reverse=True) == [
        (b"\x01\x20", b"behind"),
        (b"\x01\x1e", b"before"),
    ]
    assert await store.scan(b"\x01\x1f", b"\x01\x20", limit=2) == []
    assert await store.scan(b"\x01", None, limit=1) == [(b"\x01\x1e", b"before")]
