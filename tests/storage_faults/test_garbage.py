"""The log of a busy broker does not pile up."""

import asyncio
import os

from config import limits
from config.settings import StorageSettings
from storage.batch import WriteOps
from storage.open import open_store
from tests.unit.storage.store_conformance import batch


async def test_log_objects_are_collected_while_rows_come_and_go(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "STORE_GARBAGE_INTERVAL_S", 1)
    monkeypatch.setattr(limits, "STORE_GARBAGE_AGE_MIN_S", 1)
    monkeypatch.setattr(limits, "STORE_TABLE_BYTES", 256 * limits.KIB)
    monkeypatch.setattr(limits, "STORE_SWEEP_INTERVAL_S", 0.2)
    store = await open_store(StorageSettings(url=str(tmp_path)))
    loop = asyncio.get_running_loop()
    end = loop.time() + 8
    commits = most = 0
    while loop.time() < end:
        ops = WriteOps()
        for row in range(10):
            ops.put(b"k%08d-%d" % (commits, row), bytes(200))
            if commits > 20:
                ops.delete(b"k%08d-%d" % (commits - 20, row))
        await store.write(ops)
        commits += 1
        most = max(most, len(os.listdir(tmp_path / "db" / "wal")))
    await asyncio.sleep(3)
    await store.write(batch({b"last": b""}))
    left = len(os.listdir(tmp_path / "db" / "wal"))
    assert commits > 200
    assert most < commits * 0.8
    assert left < commits * 0.5
    assert len(os.listdir(tmp_path / "db" / "manifest")) < 60
    assert len(await store.scan(b"k", b"l", limit=1_000)) in range(200, 220)
    await store.close()
    store = await open_store(StorageSettings(url=str(tmp_path)))
    assert store.notes == ()
    assert len(await store.scan(b"k", b"l", limit=1_000)) in range(200, 220)
    await store.close()
