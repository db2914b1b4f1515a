"""Serving while a large journal is still being handed over: what reads see, what is written, crashes."""

import asyncio
import random
import shutil
from bisect import bisect_left
from typing import Any

import pytest

from config import limits
from config.settings import StorageSettings
from storage.journal.early import Early
from storage.journal.handing_over import HandingOver
from storage.open import open_store
from storage.records import payload
from tests.unit.storage.journal.journals import generations
from tests.unit.storage.store_conformance import batch
from tests.waiting import turns

pytestmark = pytest.mark.timeout(60)


class HeldUp:
    """Lets replays go on once `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()


@pytest.fixture
def held_up(monkeypatch):
    """Every replay is much, and waits before its first batch."""
    held = HeldUp()
    whole = HandingOver.replay

    async def replay(self, commits):
        await held.go.wait()
        await whole(self, commits)

    monkeypatch.setattr(limits, "JOURNAL_REPLAY_AT_ONCE_BYTES", 0)
    monkeypatch.setattr(HandingOver, "replay", replay)
    return held


async def open_at(root):
    return await open_store(StorageSettings(url=str(root)))


def message(number: int) -> tuple[bytes, bytes]:
    return payload.key(number), b"body %d" % number


@pytest.fixture
async def left(tmp_path, monkeypatch):
    """A directory that a crash left: some commits are in the database, later ones in the journal alone."""
    with monkeypatch.context() as lazy:
        lazy.setattr(limits, "JOURNAL_APPLY_INTERVAL_MS", 3_600_000)
        store = await open_at(tmp_path / "running")
        await store.write(batch(dict([message(1), message(2), (b"k1", b"old"), (b"k2", b"old")])))
        await store.scan(b"k", None, limit=1)
        await store._slate.make_durable()
        await store.write(batch(dict([message(10), (b"k1", b"new"), (b"k3", b"3")])))
        await store.write(batch(dict([message(11), (b"k4", b"4")]), b"k2", message(2)[0]))
        shutil.copytree(tmp_path / "running", tmp_path / "left")
        await store.close()
    return tmp_path / "left"


NEW = {b"k1": b"new", b"k3": b"3", b"k4": b"4"}


async def test_rows_but_for_payloads_are_seen_before_the_database_has_them(left, held_up):
    store = await open_at(left)
    told: list[Any] = []
    store.tell_replayed(told.append)
    assert dict(await store.scan(b"k", b"l", limit=100)) == NEW
    assert await store.scan(b"k", b"l", limit=2, reverse=True) == [(b"k4", b"4"), (b"k3", b"3")]
    assert await store.get_many([b"k1", b"k2", b"k3", b"none"]) == [b"new", None, b"3", None]
    assert await store.get(payload.key(1)) == b"body 1", "it lies before what is replayed"
    assert (store.replayed, told) == (None, [])
    held_up.go.set()
    assert await store.get(payload.key(11)) == b"body 11"
    assert told == [store.replayed]
    assert store.replayed.commit_count == 2
    await store.close()


async def test_reads_of_payloads_on_their_way_wait_for_them(left, held_up):
    store = await open_at(left)
    reads = [
        asyncio.create_task(store.get(payload.key(2))),
        asyncio.create_task(store.get(payload.key(10))),
        asyncio.create_task(store.scan(payload.key(1), payload.key(99), limit=9)),
    ]
    await turns(100)
    assert not any(read.done() for read in reads)
    held_up.go.set()
    assert await asyncio.gather(*reads) == [None, b"body 10", [message(1), message(10), message(11)]]
    await store.close()


async def test_what_is_written_meanwhile_is_durable_and_newer(left, held_up, tmp_path):
    store = await open_at(left)
    await store.write(batch(dict([message(20), (b"k1", b"newest")]), b"k3", message(10)[0]))
    assert await store.get_many([b"k1", b"k3", payload.key(10)]) == [b"newest", None, None]
    shutil.copytree(left, tmp_path / "again")
    assert len(generations(left / "journal")) == 2, "nothing is written over what is to be replayed"
    held_up.go.set()
    for root in (left, tmp_path / "again"):
        if root != left:
            store = await open_at(root)
        rows = dict(await store.scan(b"k", b"l", limit=100))
        assert rows == {b"k1": b"newest", b"k4": b"4"}
        kept = dict(await store.scan(payload.key(0), payload.key(99), limit=9))
        assert kept == dict([message(1), message(11), message(20)])
        await store.close()


async def test_crash_while_it_is_handed_over_loses_nothing(left, held_up, tmp_path):
    store = await open_at(left)
    shutil.copytree(left, tmp_path / "again")
    held_up.go.set()
    await store.close()
    again = await open_at(tmp_path / "again")
    assert dict(await again.scan(b"k", b"l", limit=100)) == NEW
    assert await again.get(payload.key(10)) == b"body 10"
    await again.close()
    third = await open_at(tmp_path / "again")
    third.tell_replayed(lambda replayed: pytest.fail("a store that was closed has nothing to replay"))
    await third.close()


async def test_start_on_a_full_journal_takes_commits_at_once(tmp_path, held_up, monkeypatch):
    monkeypatch.setattr(limits, "JOURNAL_SEGMENT_BYTES", 16 * limits.KIB)
    monkeypatch.setattr(limits, "JOURNAL_SEGMENTS_MAX", 3)
    with monkeypatch.context() as lazy:
        lazy.setattr(limits, "JOURNAL_APPLY_INTERVAL_MS", 3_600_000)
        store = await open_at(tmp_path / "running")
        number = 0
        while store._files.has_free_segment or store._files.fits(1_100):
            await store.write(batch({payload.key(number): bytes(1_000)}))
            number += 1
        shutil.copytree(tmp_path / "running", tmp_path / "left")
        held_up.go.set()
        await store.close()
    held_up.go.clear()
    store = await open_at(tmp_path / "left")
    assert store.journal.segments_in_use == 3
    async with asyncio.timeout(10):
        await store.write(batch({b"k": b"at once"}))
    assert store.journal.segment_count == 4
    held_up.go.set()
    assert len(await store.scan(payload.key(0), payload.key(number), limit=number + 1)) == number
    assert store.journal.segments_in_use == 1
    await store.close()


async def test_replay_that_fails_ends_the_store(left, monkeypatch):
    async def replay(self, commits):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(limits, "JOURNAL_REPLAY_AT_ONCE_BYTES", 0)
    monkeypatch.setattr(HandingOver, "replay", replay)
    store = await open_at(left)
    with pytest.raises(Exception, match="Input/output error"):
        await store.get(payload.key(10))
    with pytest.raises(Exception, match="Input/output error"):
        store.check()
    await store.close()


@pytest.mark.parametrize("seed", range(40))
async def test_merged_scan_is_one_of_the_rows_after_the_replay(seed):
    """Whatever of it the database has already, whatever the limit, in both directions."""
    source = random.Random(seed)
    names = [b"%02d" % number for number in range(30)]
    before = {key: b"before" for key in names if source.random() < 0.5}
    early = {key: source.choice([b"early", None]) for key in names if source.random() < source.random()}
    database = before | {key: value for key, value in early.items() if source.random() < 0.3}
    rows = sorted([(key, value) for key, value in database.items() if value is not None])
    after = sorted([(key, value) for key, value in (before | early).items() if value is not None])

    async def scan(start, end, limit):
        begin, stop = place(rows, start), len(rows) if end is None else place(rows, end)
        return (rows[begin:stop][::-1] if reverse else rows[begin:stop])[:limit]

    def place(sorted_rows, key):
        return bisect_left(sorted_rows, key, key=lambda row: row[0])

    for _ in range(50):
        reverse, limit = source.random() < 0.5, source.randrange(12)
        start, end = sorted(source.choices(names, k=2))
        found = await Early(early, (b"", b"")).scan(scan, start, end, limit, reverse=reverse)
        wanted = after[place(after, start) : place(after, end)]
        assert found == (wanted[::-1] if reverse else wanted)[:limit]
