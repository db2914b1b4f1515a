"""Making, taking over and leaving a journal, with crashes between the steps."""

import asyncio
import errno
import fcntl
import os
import shutil
from contextlib import suppress

import pytest

from config import limits
from config.settings import StorageSettings
from storage.errors import StorageError, StoreFenced
from storage.journal import opening
from storage.journal.files import create_files
from storage.journal.journaled_store import JournaledStore
from storage.open import open_store
from storage.records import format_marker, journal_state
from storage.records.special_codecs import JOURNALED_VERSION, PLAIN_VERSION
from storage.slate_store import SlateStore
from tests.unit.storage.journal.journals import generations
from tests.unit.storage.store_conformance import batch
from tests.waiting import until_so


@pytest.fixture
def lazy(monkeypatch):
    """Nothing is handed to SlateDB unless it is asked for."""
    monkeypatch.setattr(limits, "JOURNAL_APPLY_INTERVAL_MS", 3_600_000)


async def open_at(root, sync: str = "always", *, take_over: bool = False):
    return await open_store(StorageSettings(url=str(root), sync=sync), take_over=take_over)


async def crashed(root, tmp_path, name: str = "crashed"):
    """A copy of the directory as it is now: what a crash of the process leaves."""
    target = tmp_path / name
    shutil.copytree(root, target)
    return target


async def rows_of(store) -> dict[bytes, bytes]:
    return dict(await store.scan(b"k", b"l", limit=10_000))


@pytest.fixture
async def left(tmp_path, lazy):
    """A directory whose last three commits are only in the journal."""
    root = tmp_path / "running"
    store = await open_at(root)
    await store.write(batch({b"k0": b"in both"}))
    await store.scan(b"k", None, limit=1)
    await store._slate.make_durable()
    await store.write(batch({b"k1": b"1", b"gone": b"1"}))
    await store.write(batch({b"k2": b"2"}, b"gone"))
    await store.write(batch({b"k3": b"3"}))
    copy = await crashed(root, tmp_path)
    await store.close()
    return copy


async def test_a_start_replays_what_the_database_has_not(left):
    store = await open_at(left)
    assert store.replayed is not None
    assert store.replayed.commit_count == 3
    assert store.replayed.body_bytes > 0
    assert store.notes == ()
    assert await rows_of(store) == {b"k0": b"in both", b"k1": b"1", b"k2": b"2", b"k3": b"3"}
    assert await store.get(b"gone") is None
    await store.close()
    store = await open_at(left)
    assert store.replayed is None
    assert len(await rows_of(store)) == 4
    await store.close()


async def test_what_was_replayed_is_durable_in_the_database(left, tmp_path):
    store = await open_at(left)
    await store.write(batch({b"k4": b"4"}))
    copy = await crashed(left, tmp_path, "again")
    assert len(generations(copy / "journal")) == 2, "a start begins a new segment"
    await store.close()
    store = await open_at(copy)
    assert store.replayed is not None
    assert store.replayed.commit_count == 1
    assert len(await rows_of(store)) == 5
    await store.close()


async def test_replay_in_many_batches(tmp_path, lazy, monkeypatch):
    monkeypatch.setattr(limits, "JOURNAL_REPLAY_BYTES", 1_000)
    monkeypatch.setattr(limits, "JOURNAL_SEGMENT_BYTES", 16 * limits.KIB)
    store = await open_at(tmp_path / "running")
    for number in range(100):
        await store.write(batch({b"k%04d" % number: bytes(600), b"m": b"%d" % number}))
    copy = await crashed(tmp_path / "running", tmp_path)
    await store.close()
    store = await open_at(copy)
    assert len(await rows_of(store)) == 100
    assert await store.get(b"m") == b"99"
    await store.close()


async def test_a_store_of_before_the_journal_gets_one(tmp_path):
    store = await open_at(tmp_path, "os")
    assert isinstance(store, SlateStore)
    await store.write(batch({b"k": b"before"}))
    await store.close()
    assert not (tmp_path / "journal").exists()
    store = await open_at(tmp_path)
    assert isinstance(store, JournaledStore)
    assert await rows_of(store) == {b"k": b"before"}
    assert await store.get(format_marker.key()) == format_marker.encode(JOURNALED_VERSION)
    await store.close()


async def test_leaving_the_journal_hands_over_what_is_in_it(left):
    store = await open_at(left, "os")
    assert isinstance(store, SlateStore)
    assert len(await rows_of(store)) == 4
    assert await store.get(format_marker.key()) == format_marker.encode(PLAIN_VERSION)
    assert await store.get(journal_state.key()) is None
    assert sorted(os.listdir(left)) == ["db", "lock"]
    await store.write(batch({b"k9": b"9"}))
    await store.close()
    store = await open_at(left)
    assert len(await rows_of(store)) == 5
    await store.close()


@pytest.mark.parametrize("step", range(1, 7))
@pytest.mark.parametrize("sync", ["always", "os"])
async def test_a_crash_at_any_step_of_making_or_leaving_one(left, tmp_path, monkeypatch, sync, step):
    """Each step that changes something is where the process may end; the next start goes on."""
    if sync == "always":
        store = await open_at(left, "os")
        await store.close()
    taken = 0

    def stops_at_step(call):
        def counted(*arguments):
            nonlocal taken
            taken += 1
            if taken == step:
                raise KeyboardInterrupt
            return call(*arguments)

        return counted

    write = SlateStore.write

    async def counted_write(self, ops):
        nonlocal taken
        taken += 1
        if taken == step:
            raise KeyboardInterrupt
        await write(self, ops)

    with monkeypatch.context() as crash:
        crash.setattr(SlateStore, "write", counted_write)
        crash.setattr(opening, "create_files", stops_at_step(create_files))
        crash.setattr(os, "rename", stops_at_step(os.rename))
        crash.setattr(shutil, "rmtree", stops_at_step(shutil.rmtree))
        try:
            store = await open_at(left, sync)
        except KeyboardInterrupt:
            pass
        else:
            await store.close()
            return
    copy = await crashed(left, tmp_path, "after")
    for next_sync in ("always", "os", "always"):
        store = await open_at(copy, next_sync)
        assert len(await rows_of(store)) == 4
        await store.close()


async def test_a_journal_that_is_missing_is_missed(left):
    shutil.move(left / "journal", left / "elsewhere")
    for sync in ("always", "os"):
        with pytest.raises(
            StorageError, match=r"journal is missing, and what was confirmed last is in it. Put it"
        ):
            await open_at(left, sync)
    shutil.move(left / "elsewhere", left / "journal")
    store = await open_at(left)
    assert len(await rows_of(store)) == 4
    await store.close()


async def test_a_database_that_is_missing_is_missed(left):
    shutil.move(left / "db", left / "elsewhere")
    with pytest.raises(StorageError, match="journal belongs to another database") as caught:
        await open_at(left)
    told = str(caught.value)
    assert "may hold the only copy of confirmed messages. Put the database's files back beside it" in told
    assert told.endswith("move the journal away only if what it holds may be lost")


async def test_an_older_copy_of_the_database_is_replayed_as_far_as_the_journal_reaches(left, tmp_path):
    older = await crashed(left / "db", tmp_path, "older")
    store = await open_at(left)
    await store.write(batch({b"k4": b"4"}))
    await store.close()
    shutil.rmtree(left / "db")
    shutil.move(older, left / "db")
    store = await open_at(left)
    assert store.replayed.commit_count == 4
    assert len(await rows_of(store)) == 5
    await store.close()


async def test_damage_is_refused_and_can_be_accepted(left):
    path = max(generations(left / "journal").items())[1]
    raw = path.read_bytes()
    at = raw.rindex(b"k3")  # a checksum before it may read like that
    path.write_bytes(raw[:at] + b"x" + raw[at + 1 :])
    with pytest.raises(
        StorageError, match=r"commits 4 to 4 were confirmed and are not there.*make an empty file"
    ):
        await open_at(left)
    (left / "accept-loss").touch()
    store = await open_at(left)
    assert await rows_of(store) == {b"k0": b"in both", b"k1": b"1", b"k2": b"2"}
    assert "commits 4 to 4 were confirmed" in store.notes[0]
    assert "because there was a file accept-loss" in store.notes[0]
    assert store.notes[1] == f"the damaged journal is kept as {left}/journal.damaged-1"
    await store.write(batch({b"k9": b"9"}))
    await store.close()
    assert not (left / "accept-loss").exists()
    store = await open_at(left)
    assert len(await rows_of(store)) == 4
    assert store.notes == ()
    await store.close()


async def test_a_missing_journal_can_be_accepted(left):
    shutil.rmtree(left / "journal")
    (left / "accept-loss").touch()
    store = await open_at(left)
    assert await rows_of(store) == {b"k0": b"in both"}
    await store.write(batch({b"k9": b"9"}))
    await store.close()
    store = await open_at(left)
    assert len(await rows_of(store)) == 2
    await store.close()


async def test_accepting_without_need_does_nothing(left):
    (left / "accept-loss").touch()
    store = await open_at(left)
    assert len(await rows_of(store)) == 4
    await store.close()
    assert (left / "accept-loss").exists()


async def test_who_takes_over_waits_for_the_lock_and_has_everything(tmp_path, lazy):
    first = await open_at(tmp_path)
    await first.write(batch({b"k1": b"1"}))
    loop = asyncio.get_running_loop()
    watching = loop.create_task(_watch(first))
    second = await open_at(tmp_path, take_over=True)
    assert watching.done()
    assert isinstance(watching.result(), StoreFenced)
    assert await rows_of(second) == {b"k1": b"1"}
    with pytest.raises(StoreFenced):
        await first.write(batch({b"k2": b"2"}))
    with pytest.raises(StoreFenced):
        first.write_now(batch({b"k2": b"2"}))
    with suppress(StoreFenced):
        await first.close()
    await second.write(batch({b"k3": b"3"}))
    await second.close()
    third = await open_at(tmp_path)
    assert await rows_of(third) == {b"k1": b"1", b"k3": b"3"}
    await third.close()


async def _watch(store: JournaledStore) -> StorageError:
    """What a running broker does twice a second."""

    def failure() -> StorageError | None:
        try:
            store.check()
        except StorageError as error:
            return error
        return None

    return await until_so(failure, 60)


async def test_who_confirms_until_the_last_moment_loses_nothing(tmp_path):
    """The other one has fenced the database, and waits: what is confirmed meanwhile is replayed."""
    first = await open_at(tmp_path)
    confirmed = []

    async def write() -> None:
        for number in range(100_000):
            await first.write(batch({b"k%06d" % number: b"v"}))
            confirmed.append(b"k%06d" % number)

    writing = asyncio.create_task(write())
    await until_so(lambda: len(confirmed) > 100)
    second = await open_at(tmp_path, take_over=True)
    with pytest.raises(StorageError):
        await writing
    found = await rows_of(second)
    assert confirmed
    assert set(confirmed) <= set(found)
    assert len(found) <= len(confirmed) + 1
    with suppress(StoreFenced):
        await first.close()
    await second.close()


async def test_a_live_brokers_files_are_left_alone(tmp_path, lazy, monkeypatch):
    """What looks torn while another process writes is being written."""
    monkeypatch.setattr(limits, "STORE_TAKE_OVER_TIMEOUT_S", 0.2)
    first = await open_at(tmp_path)
    (tmp_path / "db" / "wal" / f"{99:020d}.sst").touch()
    with pytest.raises(StorageError, match=f"in use by process {os.getpid()} .* kill it"):
        await open_at(tmp_path, take_over=True)
    assert not (tmp_path / "db" / "torn").exists()
    with suppress(StoreFenced):  # unless it has noticed already
        await first.close()


async def test_without_locks_there_is_no_journal(left, monkeypatch):
    """Another broker could append to it while it is replayed."""

    def fail(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    store = await open_at(left)
    assert isinstance(store, SlateStore)
    assert store.describe().endswith("(fsync before confirm)")
    assert len(await rows_of(store)) == 4
    assert not (left / "journal").exists()
    await store.write(batch({b"k9": b"9"}))
    await store.close()
