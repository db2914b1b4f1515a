"""A storage that is encrypted, from its opening to what lies on the disk."""

import secrets
import shutil
import subprocess
import sys
import zlib
from functools import partial
from pathlib import Path

import pytest
from slatedb.uniffi import ObjectStore

from config import limits
from storage import open as opening
from storage.directory_lock import DirectoryLock
from storage.errors import CorruptRecord, StorageError
from storage.journal import frames
from storage.journal.files import segment_paths
from storage.journal.frames import EndRecord
from storage.journal.journal_survey import read_commits, survey_journal
from storage.journal.journaled_store import JournaledStore
from storage.journal.opening import open_journaled
from storage.open import open_database, open_store
from storage.read_only import open_read_only
from storage.records import encryption, format_marker, journal_state, payload
from storage.records.special_codecs import SEALED_VERSION
from storage.sealing.sealed_store import SealedStore
from tests.unit.storage.journal.journals import frames_in, generations
from tests.unit.storage.sealing.rings import MARKER, SECRETS, encrypted, found_in, key_file, ring
from tests.unit.storage.store_conformance import CHECKS, batch


def taken_lock(root: Path) -> DirectoryLock:
    lock = DirectoryLock(root)
    lock.take()
    return lock


KEY = payload.key(1)
LARGE = MARKER + bytes(limits.VALUE_PART_BYTES + 7) + MARKER


@pytest.fixture(params=["memory", "journal"])
def opener(request, tmp_path):
    """Opens one database, in memory, that is behind a ring, and behind a journal or not."""
    memory = ObjectStore.resolve("memory:///")

    async def unlock(database):
        return partial(SealedStore, ring=ring(1, salt=secrets.token_bytes(14)))

    async def opened():
        store = await opening._open_memory(memory, unlock)
        return await open_journaled(store, taken_lock(tmp_path)) if request.param == "journal" else store

    return opened


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_encrypted_store_passes_each_store_check(check, opener):
    await check(opener)


async def crashed(root: Path, tmp_path: Path) -> Path:
    """A copy of the storage as it is now: what a crash of the process leaves."""
    target = tmp_path / "crashed"
    target.mkdir()
    shutil.copytree(root / "data", target / "data")
    return target


@pytest.mark.parametrize("sync", ["always", "os"])
async def test_nothing_of_a_value_is_found_on_the_disk(tmp_path, sync):
    settings = encrypted(tmp_path, "2026", sync=sync)
    store = await open_store(settings)
    large = batch({payload.key(2): LARGE})
    large.is_large = True
    await store.write(batch({KEY: MARKER, b"\x03\x01x": b"before" + MARKER}))
    await store.write(large)
    copy = await crashed(tmp_path, tmp_path)
    assert found_in(tmp_path) == []
    await store.close()
    assert found_in(tmp_path) == []
    for root in (tmp_path, copy):
        store = await open_store(encrypted(root, "2026", sync=sync))
        assert await store.get(KEY) == MARKER
        assert await store.get(payload.key(2)) == LARGE
        rows = await store.scan(b"", None, limit=100)
        assert (b"\x03\x01x", b"before" + MARKER) in rows
        assert await store.get(format_marker.key()) == format_marker.encode(SEALED_VERSION)
        assert "encrypted with key 2026" in store.describe()
        await store.close()


async def test_the_same_without_encryption_is_found(tmp_path):
    store = await open_store(encrypted(tmp_path))
    await store.write(batch({KEY: MARKER}))
    await store.close()
    assert found_in(tmp_path)


def test_no_key_is_imported_where_none_is_configured():
    code = (
        "import sys, storage.open, storage.read_only, storage.backup.restoring;"
        " print([name for name in sys.modules if name.startswith(('cryptography', 'storage.sealing'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


async def test_older_key_is_read_and_the_first_one_encrypts(tmp_path):
    for key_ids in (("2024",), ("2025", "2024"), ("2026", "2025", "2024")):
        store = await open_store(encrypted(tmp_path, *key_ids))
        await store.write(batch({b"k" + key_ids[0].encode(): key_ids[0].encode()}))
        rows = await store.scan(b"k", b"l", limit=9)
        assert rows == [(b"k" + found, found) for found in (b"2024", b"2025", b"2026")[: len(key_ids)]]
        await store.close()
    database = await open_database(encrypted(tmp_path))
    known = encryption.decode(await database.get(encryption.key()))
    assert [(key.number, key.id) for key in known.keys] == [(1, "2024"), (2, "2025"), (3, "2026")]
    numbers = [value[8:10] for _, value in await database.scan(b"k", b"l", limit=9)]
    assert numbers == [b"\1\0", b"\2\0", b"\3\0"]
    assert known.has_plain == 0
    await database.close()


REFUSED = {
    "none": ((), "encrypted with 2024, 2025, and there is no storage.encryption"),
    "missing": (("2025",), "lacks 2024, with which"),
    "only a new one": (("2026",), "lacks 2024, 2025, with which"),
}


@pytest.mark.parametrize("key_ids", REFUSED)
async def test_missing_key_is_refused_and_nothing_is_written(tmp_path, key_ids):
    configured, reason = REFUSED[key_ids]
    for ids in (("2024",), ("2025", "2024")):
        store = await open_store(encrypted(tmp_path, *ids))
        await store.write(batch({KEY: MARKER}))
        await store.close()
    await refused_unchanged(tmp_path, encrypted(tmp_path, *configured), reason)


async def test_wrong_key_is_refused_and_nothing_is_written(tmp_path):
    store = await open_store(encrypted(tmp_path, "2025"))
    await store.write(batch({KEY: MARKER}))
    await store.close()
    settings = encrypted(tmp_path, "2026", "2025")
    key_file(tmp_path, "2025", SECRETS["2024"])
    await refused_unchanged(tmp_path, settings, "2025.key has another key than the one that this storage")


async def refused_unchanged(tmp_path, settings, reason) -> None:
    async def rows():
        database = await open_database(encrypted(tmp_path))
        found = await database.scan(b"", None, limit=100)
        await database.close()
        return found

    before = await rows()
    journal = {path: path.read_bytes() for path in (tmp_path / "data" / "journal").iterdir()}
    for opened in (open_store, open_read_only):
        with pytest.raises(StorageError, match=reason) as refused:
            await opened(settings)
        assert "\n" not in refused.value.reason
    assert await rows() == before
    assert {path: path.read_bytes() for path in (tmp_path / "data" / "journal").iterdir()} == journal


async def test_plain_storage_gets_encryption_and_its_old_values_stay_readable(tmp_path):
    store = await open_store(encrypted(tmp_path))
    await store.write(batch({b"k1": b"old"}))
    copy = await crashed(tmp_path, tmp_path)  # with a commit that is only in the journal
    await store.close()
    for root in (tmp_path, copy):
        for _ in range(2):
            store = await open_store(encrypted(root, "2026"))
            assert await store.get(b"k1") == b"old"
            await store.write(batch({b"k2": b"new"}))
            assert dict(await store.scan(b"k", b"l", limit=9)) == {b"k1": b"old", b"k2": b"new"}
            await store.close()
        looking = await open_read_only(encrypted(root, "2026"))
        assert [value for _, value in await looking.scan(b"k", b"l", limit=9)] == [b"old", b"new"]
        await looking.close()


async def test_a_crash_before_the_record_of_the_key_leaves_a_storage_that_opens(tmp_path):
    """The marker and the record are one write: either way the next start goes on."""
    settings = encrypted(tmp_path, "2026")
    database = await open_database(encrypted(tmp_path))
    await database.close()
    store = await open_store(settings)
    await store.write(batch({b"k": b"v"}))
    await store.close()
    store = await open_store(settings)
    assert await store.get(b"k") == b"v"
    await store.close()


async def damaged(tmp_path, change) -> None:
    """Change rows as they lie there: `change` is given them, and gives those to write."""
    database = await open_database(encrypted(tmp_path))
    rows = dict(await database.scan(b"", None, limit=1_000))
    await database.write(batch(change(rows)))
    await database.close()


def flipped(rows):
    return {payload.key(1): rows[payload.key(1)][:-1] + bytes([rows[payload.key(1)][-1] ^ 1])}


def swapped(rows):
    return {payload.key(1): rows[payload.key(2)], payload.key(2): rows[payload.key(1)]}


def unsealed(rows):
    return {payload.key(1): b"plain"}


@pytest.mark.parametrize("change", [flipped, swapped, unsealed])
async def test_changed_block_is_a_corrupt_record(tmp_path, change):
    settings = encrypted(tmp_path, "2026", sync="os")
    store = await open_store(settings)
    await store.write(batch({payload.key(1): b"one", payload.key(2): b"two", payload.key(3): b"three"}))
    await store.close()
    await damaged(tmp_path, change)
    store = await open_store(settings)
    with pytest.raises(CorruptRecord, match="corrupt payload record: value"):
        await store.get(payload.key(1))
    with pytest.raises(CorruptRecord, match="corrupt payload record: value"):
        await store.scan(payload.prefix(), None, limit=9)
    assert await store.get(payload.key(3)) == b"three"
    await store.close()


async def test_missing_record_of_the_keys_is_refused(tmp_path):
    settings = encrypted(tmp_path, "2026", sync="os")
    await (await open_store(settings)).close()
    database = await open_database(encrypted(tmp_path))
    await database.write(batch({}, encryption.key()))
    await database.close()
    with pytest.raises(StorageError, match="the record of its keys is missing"):
        await open_store(settings)


async def test_a_broker_that_runs_is_not_taken_over_with_another_key(tmp_path):
    store = await open_store(encrypted(tmp_path, "2026"))
    await store.write(batch({b"k": b"v"}))
    for configured in ((), ("2025",)):
        with pytest.raises(StorageError, match="2026"):
            await open_store(encrypted(tmp_path, *configured), take_over=True)
    await store.write(batch({b"k": b"w"}))
    await store.close()
    store = await open_store(encrypted(tmp_path, "2026"))
    assert await store.get(b"k") == b"w"
    await store.close()


async def test_changed_record_of_the_keys_is_refused(tmp_path):
    """Nobody can have unsealed values taken for those of the time before."""
    settings = encrypted(tmp_path, "2026", sync="os")
    await (await open_store(settings)).close()
    database = await open_database(encrypted(tmp_path))
    known = encryption.decode(await database.get(encryption.key()))
    await database.write(batch({encryption.key(): encryption.encode(*known._replace(has_plain=1))}))
    await database.close()
    with pytest.raises(StorageError, match="has another key than the one that this storage"):
        await open_store(settings)


# the journal


@pytest.fixture
async def journaled(tmp_path, monkeypatch):
    """A crashed storage whose last three commits are only in the journal."""
    monkeypatch.setattr(limits, "JOURNAL_APPLY_INTERVAL_MS", 3_600_000)
    store = await open_store(encrypted(tmp_path, "2026"))
    assert isinstance(store, JournaledStore)
    for number in (1, 2, 3):
        await store.write(batch({b"k%d" % number: MARKER + b"%d" % number}))
    copy = await crashed(tmp_path, tmp_path)
    await store.close()
    return copy


def last_segment(root: Path) -> Path:
    return list(generations(root / "data" / "journal").values())[-1]


async def test_encrypted_commits_are_replayed(journaled):
    assert found_in(journaled) == []
    settings = encrypted(journaled, "2026")
    looking = await open_read_only(settings)
    assert len(await looking.scan(b"k", b"l", limit=9)) == 3
    await looking.close()
    store = await open_store(settings)
    assert isinstance(store, JournaledStore)
    assert store.replayed is not None
    assert store.replayed.commit_count == 3
    assert await store.get(b"k3") == MARKER + b"3"
    await store.close()


async def test_encrypted_commits_are_replayed_behind_the_start(journaled, monkeypatch):
    monkeypatch.setattr(limits, "JOURNAL_REPLAY_AT_ONCE_BYTES", 0)
    store = await open_store(encrypted(journaled, "2026"))
    assert [value for _, value in await store.scan(b"k", b"l", limit=9)] == [
        MARKER + b"1",
        MARKER + b"2",
        MARKER + b"3",
    ]
    await store.close()


async def test_encrypted_commits_are_replayed_under_the_key_before(journaled):
    store = await open_store(encrypted(journaled, "2025", "2026"))
    assert await store.get(b"k3") == MARKER + b"3"
    await store.close()


async def test_journal_that_ends_within_an_encrypted_frame_loses_that_frame_alone(journaled, tmp_path):
    path = last_segment(journaled)
    *_, (begin, end) = frames_in(path)
    whole = path.read_bytes()
    for number, cut in enumerate({begin + 1, begin + 39, begin + 41, (begin + end) // 2, end - 9}):
        root = tmp_path / f"cut{number}"
        root.mkdir()
        shutil.copytree(journaled / "data", root / "data")
        torn = root / "data" / "journal" / path.name
        torn.write_bytes(whole[:cut] + bytes(len(whole) - cut))
        (root / "data" / "journal" / "end").write_bytes(end_of(journaled))
        store = await open_store(encrypted(root, "2026"))
        assert await store.get(b"k2") == MARKER + b"2"
        assert await store.get(b"k3") is None
        await store.write(batch({b"k4": b"4"}))
        await store.close()


def resealed(segment: Path, change) -> None:
    """Change the frames of a segment, and give them right checksums again: what only a person would do."""
    raw = segment.read_bytes()
    head = frames.decode_head(raw)
    signs = frames.signs_of(head)
    found = [frames.read_frame(memoryview(raw), at, signs) for at, _ in frames_in(segment)]
    bodies = change([raw[frame.body_start : frame.body_end] for frame in found])
    written, previous = bytearray(raw[: frames.HEAD_BYTES]), found[0].previous
    for frame, body in zip(found, bodies, strict=True):
        made = frames.FrameBody([body], len(body), zlib.crc32(body, signs.seed), frame.puts, frame.deletes)
        parts, previous = frames.encode_frame(made, frame.sequence, signs, previous)
        written += b"".join(parts)
    segment.write_bytes(bytes(written).ljust(len(raw), b"\0"))


@pytest.mark.parametrize(
    "change",
    [lambda bodies: [bodies[0], bodies[2], bodies[1]], lambda bodies: [*bodies[:2], bodies[2][:-1] + b"\0"]],
    ids=["swapped", "changed"],
)
async def test_commit_that_was_changed_or_moved_is_refused(journaled, change):
    resealed(last_segment(journaled), change)
    (journaled / "data" / "journal" / "end").write_bytes(end_of(journaled))
    for opened in (open_store, open_read_only):
        with pytest.raises(CorruptRecord, match="corrupt journal record: commit"):
            await opened(encrypted(journaled, "2026"))


def end_of(root: Path) -> bytes:
    """An end record that names no commit behind the database's."""
    raw = last_segment(root).read_bytes()
    database_id = frames.decode_head(raw).database_id
    record = frames.encode_end(database_id, EndRecord(0, frames.seed_of(database_id)))
    return record.ljust(frames.END_SLOT_BYTES, b"\0") + record


async def test_leaving_the_journal_keeps_the_format_of_an_encrypted_database(journaled):
    store = await open_store(encrypted(journaled, "2026", sync="os"))
    assert await store.get(b"k3") == MARKER + b"3"
    assert await store.get(format_marker.key()) == format_marker.encode(SEALED_VERSION)
    await store.close()


async def test_segments_say_that_they_are_encrypted(journaled):
    versions = {
        frames.decode_head(path.read_bytes()).version
        for path in segment_paths(journaled / "data" / "journal")
    }
    assert versions == {frames.SEALED_VERSION}
    database = await open_database(encrypted(journaled))
    state = journal_state.decode(await database.get(journal_state.key()))
    await database.close()
    survey = survey_journal(
        journaled / "data" / "journal", state.database_id, EndRecord(state.sequence, state.checksum)
    )
    with pytest.raises(CorruptRecord, match="it is encrypted, and there is no key"):
        list(read_commits(survey))
