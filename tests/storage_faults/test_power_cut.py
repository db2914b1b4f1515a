"""Power cuts under load, on a disk that keeps only what was synced: nothing confirmed is missing."""

import asyncio
import random
import shutil

import pytest

from config.settings import StorageSettings
from storage.open import open_store
from tests.storage_faults import power
from tests.storage_faults.children import Writer, check_rows
from tests.waiting import pass_time


async def power_cuts(tmp_path, source: random.Random, cycles: int, *, slow_s: float = 0.0) -> None:
    """Cycles of load, a power cut at any moment, and a start that must find everything."""
    first = 0
    root = tmp_path / "0"
    for cycle in range(1, cycles + 1):
        notes = tmp_path / f"notes-{cycle}"
        before = power.installing(root, notes, slow_s=slow_s)
        root.mkdir(exist_ok=True)
        size = source.choice([20, 300, 3_000])
        writer = Writer(str(root), first=first, value_bytes=size, before=before)
        await asyncio.to_thread(writer.start)
        await asyncio.to_thread(writer.run_to, first + source.randrange(1, 250))
        await asyncio.to_thread(pass_time, source.random() * 0.05)
        await asyncio.to_thread(writer.kill)
        left = tmp_path / str(cycle)
        power.restore(root, notes, left, source if source.random() < 0.7 else None)
        shutil.rmtree(root)
        shutil.rmtree(notes)
        store = await open_store(StorageSettings(url=str(left)))
        first = await check_rows(store, writer.confirmed) + 1
        await store.close()
        root = left


async def test_power_cuts_lose_nothing_confirmed(tmp_path):
    await power_cuts(tmp_path, random.Random("power"), 6)


async def test_power_cuts_lose_nothing_confirmed_while_tables_take_long_to_sync(tmp_path):
    """Longer than SlateDB's own collector would have waited before it deletes the log."""
    await power_cuts(tmp_path, random.Random("slow"), 3, slow_s=2.5)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("slow_s", [0.0, 0.3])
async def test_fifty_power_cuts_lose_nothing_confirmed(tmp_path, slow_s):
    await power_cuts(tmp_path, random.Random(f"long {slow_s}"), 50, slow_s=slow_s)
