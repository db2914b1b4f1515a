"""The log of a busy broker does not pile up."""

import asyncio
import os

from config import limits
from config.settings import StorageSettings
from storage.batch import WriteOps
from storage.open import open_store
from tests.unit.storage.store_conformance import batch

COMMITS = 400


async def test_log_objects_are_collected_while_rows_come_and_go(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "STORE_GARBAGE_INTERVAL_S", 1)
    monkeypatch.setattr(limits, "STORE_GARBAGE_AGE_MIN_S", 1)
    monkeypatch.setattr(limits, "STORE_TABLE_BYTES", 256 * limits.KIB)
    monkeypatch.setattr(limits, "STORE_SWEEP_INTERVAL_S", 0.2)
    store = await open_store(StorageSettings(url=str(tmp_path)))
    for commit in range(COMMITS):
        ops = WriteOps()
        for row in range(10):
            ops.put(b"k%08d-%d" % (commit, row), bytes(200))
            if commit > 20:
                ops.delete(b"k%08d-%d" % (commit - 20, row))
        await store.write(ops)

    def counts() -> tuple[int, int]:
        return len(os.listdir(tmp_path / "db" / "wal")), len(os.listdir(tmp_path / "db" / "manifest"))

    loop = asyncio.get_running_loop()
    give_up = loop.time() + 60
    while True:
        # what keeps the newest objects is the next ones
        await store.write(batch({b"last": b""}))
        log_count, manifest_count = counts()
        if log_count < COMMITS // 2 and manifest_count < 60:
            break
        assert loop.time() < give_up, f"{log_count} log objects and {manifest_count} manifests are left"
        await asyncio.sleep(0.3)
    assert len(await store.scan(b"k", b"l", limit=1_000)) in range(200, 220)
    await store.close()
    store = await open_store(StorageSettings(url=str(tmp_path)))
    assert store.notes == ()
    assert len(await store.scan(b"k", b"l", limit=1_000)) in range(200, 220)
    await store.close()
