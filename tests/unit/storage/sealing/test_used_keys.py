"""Which keys are in use, sealing anew, and forgetting a key."""

import shutil

import pytest

from config import limits
from storage.errors import CorruptRecord, StorageError
from storage.open import open_database, open_store, open_unjournaled
from storage.read_only import open_read_only
from storage.records import encryption, payload
from storage.sealing.used_keys import KeyUse, KeyUses, count_keys, forget_key, seal_anew
from tests.unit.storage.sealing.rings import MARKER, encrypted, found_in
from tests.unit.storage.store_conformance import batch

SEEN: list[int] = []


def tell(seen: int) -> None:
    SEEN.append(seen)


async def written(tmp_path, *key_ids: str, count: int = 3) -> None:
    """Have `count` records under each set of keys."""
    for number in range(len(key_ids)):
        ids = key_ids[number::-1] if number else key_ids[:1]
        store = await open_store(encrypted(tmp_path, *[each for each in ids if each]))
        start = number * count
        await store.write(batch({payload.key(start + each): MARKER for each in range(count)}))
        await store.close()


async def uses_of(settings) -> list[KeyUse]:
    store = await open_unjournaled(settings)
    found = (await count_keys(store, tell)).found()
    await store.close()
    return found


async def test_records_are_counted_by_key(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "SEALING_FIRST_ROWS", 2)
    await written(tmp_path, "", "2025", "2026")
    found = await uses_of(encrypted(tmp_path, "2026", "2025"))
    assert found == [KeyUse("2025", 3, 3 * 76), KeyUse("2026", 3, 3 * 76), KeyUse(None, 3, 3 * 28)]


def test_key_that_nothing_names_is_told():
    uses = KeyUses(None)
    uses.note(b"k", b"plain")
    assert uses.found() == [KeyUse(None, 1, 5)]


async def test_commits_that_only_the_journal_has_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "JOURNAL_APPLY_INTERVAL_MS", 3_600_000)
    store = await open_store(encrypted(tmp_path, "2025"))
    await store.write(batch({b"k": b"v"}))
    (tmp_path / "crashed").mkdir()
    shutil.copytree(tmp_path / "data", tmp_path / "crashed" / "data")
    await store.close()
    looking = await open_read_only(encrypted(tmp_path / "crashed", "2026", "2025"))
    uses = KeyUses(encryption.decode(await looking.get(encryption.key())))
    for start in looking.commit_starts:
        uses.note_commit(start)
    await looking.close()
    (found,) = uses.found()
    assert (found.id, found.commits) == ("2025", 1)
    assert uses.is_used("2025")


async def test_everything_is_sealed_anew_and_then_nothing_plain_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "RESTORE_WRITE_BYTES", 100)
    monkeypatch.setattr(limits, "SEALING_FIRST_ROWS", 2)
    await written(tmp_path, "", "2025", "2026")
    settings = encrypted(tmp_path, "2026", "2025")
    store = await open_unjournaled(settings)
    assert await seal_anew(store, tell) == 6
    assert await seal_anew(store, tell) == 0
    await store.close()
    found = await uses_of(settings)
    assert [(use.id, use.records) for use in found] == [("2025", 0), ("2026", 9)]
    database = await open_database(encrypted(tmp_path))
    assert encryption.decode(await database.get(encryption.key())).has_plain == 0
    await database.write(batch({payload.key(0): b"plain"}))
    await database.close()
    again = await open_store(settings)
    assert await again.get(payload.key(8)) == MARKER
    with pytest.raises(CorruptRecord, match="not encrypted, as all else is"):
        await again.get(payload.key(0))
    await again.close()


async def test_unused_key_is_forgotten_and_no_longer_needed(tmp_path):
    await written(tmp_path, "2024", "2025", "2026")
    settings = encrypted(tmp_path, "2026", "2025", "2024")
    store = await open_unjournaled(settings)
    for key_id, reason in (
        ("2026", "is the one that encrypts"),
        ("2025", "is in use"),
        ("x", "has no key x"),
    ):
        with pytest.raises(StorageError, match=reason):
            await forget_key(store, key_id, tell)
    await seal_anew(store, tell)
    await forget_key(store, "2024", tell)
    await forget_key(store, "2025", tell)
    await store.close()
    again = await open_store(encrypted(tmp_path, "2026"))
    assert await again.get(payload.key(0)) == MARKER
    await again.close()
    assert not found_in(tmp_path)
    again = await open_store(encrypted(tmp_path, "2025", "2026"))  # one of that name may come again
    database = encryption.decode(await again.get(encryption.key()))
    assert [(key.number, key.id) for key in database.keys] == [(3, "2026"), (4, "2025")]
    await again.close()
