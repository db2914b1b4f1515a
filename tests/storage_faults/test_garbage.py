"""The log of a busy broker does not pile up, and what a backup reads stays meanwhile."""

import os

from config import limits
from config.settings import StorageSettings
from storage.backup.source import CutSource
from storage.batch import WriteOps
from storage.local_sync import wal_ids
from storage.open import open_store
from storage.store import Store
from tests.unit.storage.store_conformance import batch
from tests.waiting import until_so

COMMITS = 400
CUT_AT = 100


async def handed_over(store: Store) -> None:
    """Wait until SlateDB has what the journal was given."""
    await until_so(lambda: not store.journal.waiting_bytes)


async def test_log_objects_are_collected_while_rows_come_and_go_and_a_cut_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "STORE_GARBAGE_INTERVAL_S", 1)
    monkeypatch.setattr(limits, "STORE_GARBAGE_AGE_MIN_S", 1)
    monkeypatch.setattr(limits, "STORE_TABLE_BYTES", 256 * limits.KIB)
    monkeypatch.setattr(limits, "STORE_SWEEP_INTERVAL_S", 0.2)
    monkeypatch.setattr(limits, "STORE_COMPACTED_AGE_MIN_S", 1)
    monkeypatch.setattr(limits, "JOURNAL_APPLY_INTERVAL_MS", 20)
    monkeypatch.setattr(limits, "JOURNAL_FLUSH_INTERVAL_MS", 100)
    store = await open_store(StorageSettings(url=str(tmp_path)))
    for commit in range(COMMITS):
        ops = WriteOps()
        for row in range(10):
            ops.put(b"k%08d-%d" % (commit, row), bytes(200))
            if commit > 20:
                ops.delete(b"k%08d-%d" % (commit - 20, row))
        await store.write(ops)
        if commit == CUT_AT:
            cut = await store.cuts.make()
        if commit % 10 == 9:
            await handed_over(store)  # SlateDB gets them in batches

    def files(folder: str) -> set[str]:
        return set(os.listdir(tmp_path / "db" / folder))

    tables = files("compacted")
    assert len(tables) > 1
    newest = wal_ids(tmp_path / "db")[-1]

    async def is_collected() -> bool:
        # what keeps the newest objects is the next ones
        await store.write(batch({b"last": b""}))
        await handed_over(store)
        is_log_collected = wal_ids(tmp_path / "db")[0] > newest // 2
        return is_log_collected and len(files("manifest")) < 10 and bool(tables - files("compacted"))

    await until_so(
        is_collected, 60, told=lambda: f"{files('manifest')}, {files('compacted')}, {tables} at first"
    )
    assert len(await store.scan(b"k", b"l", limit=1_000)) in range(200, 220)
    source = await CutSource.open(str(tmp_path), cut.id)
    found = [key async for page in source.pages() for key, _ in page if key.startswith(b"k")]
    kept = [0, *range(CUT_AT - 19, CUT_AT + 1)]  # the first are never deleted
    assert found == [b"k%08d-%d" % (commit, row) for commit in kept for row in range(10)]
    await source.close()
    await store.close()
    store = await open_store(StorageSettings(url=str(tmp_path)))
    assert store.notes == ()
    assert len(await store.scan(b"k", b"l", limit=1_000)) in range(200, 220)
    await store.close()
