"""kill -9 at any time loses nothing that was confirmed and shows no half commit."""

import asyncio
import random

import pytest

from config.settings import StorageSettings
from storage.errors import StoreInUse
from storage.open import open_store
from tests.storage_faults.children import Writer, check_rows
from tests.waiting import pass_time


@pytest.mark.parametrize("sync", ["always", "os"])
async def test_kill_9_again_and_again(tmp_path, sync):
    source = random.Random(sync)
    for _ in range(4):
        directory = tmp_path / str(_)
        writer = Writer(str(directory), sync=sync)
        await asyncio.to_thread(writer.start)
        await asyncio.to_thread(writer.run_to, source.randrange(1, 120))
        await asyncio.to_thread(pass_time, source.random() * 0.02)
        await asyncio.to_thread(writer.kill)
        store = await open_store(StorageSettings(url=str(directory), sync=sync))
        await check_rows(store, writer.confirmed)
        assert not [note for note in store.notes if "not whole" in note]
        await store.close()


async def test_kill_9_while_tables_are_written(tmp_path):
    at_once = "from config import limits; limits.JOURNAL_WAITING_BYTES = limits.JOURNAL_PORTION_BYTES = 1\n"
    # 1 MB a commit: a new table every 16
    writer = Writer(str(tmp_path), value_bytes=100_000, before=at_once)
    await asyncio.to_thread(writer.start)
    await asyncio.to_thread(writer.run_to, 60)
    await asyncio.to_thread(writer.kill)
    assert len(list((tmp_path / "db" / "compacted").iterdir())) >= 2
    store = await open_store(StorageSettings(url=str(tmp_path)))
    await check_rows(store, writer.confirmed)
    await store.close()


async def test_second_opener_leaves_a_running_one_alone(tmp_path):
    writer = Writer(str(tmp_path))
    await asyncio.to_thread(writer.start)
    await asyncio.to_thread(writer.run_to, 20)
    assert writer.process is not None
    with pytest.raises(StoreInUse, match=f"in use by process {writer.process.pid} since"):
        await open_store(StorageSettings(url=str(tmp_path)))
    await asyncio.to_thread(writer.run_to, writer.confirmed + 20)
    await asyncio.to_thread(writer.kill)
    store = await open_store(StorageSettings(url=str(tmp_path)))
    await check_rows(store, writer.confirmed)
    await store.close()


async def test_second_opener_takes_over_from_a_running_one_when_told_to(tmp_path):
    writer = Writer(str(tmp_path))
    await asyncio.to_thread(writer.start)
    await asyncio.to_thread(writer.run_to, 20)
    store = await open_store(StorageSettings(url=str(tmp_path)), take_over=True)
    assert writer.process is not None
    code = await asyncio.to_thread(writer.process.wait, 20)
    assert code != 0, "the fenced writer ends with an error"
    await asyncio.to_thread(writer.kill)
    await check_rows(store, writer.confirmed)
    await store.close()
