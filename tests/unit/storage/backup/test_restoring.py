"""From a storage through the files of a backup to another storage."""

import asyncio
from pathlib import Path

import pytest

from config import limits
from config.settings import StorageSettings
from storage.backup import restoring
from storage.backup.backup_places import open_for_reading, open_for_writing
from storage.backup.copying import About, copy_cut
from storage.backup.source import CutSource
from storage.batch import WriteOps
from storage.cuts import TooManyCuts
from storage.errors import StorageError
from storage.open import open_store
from storage.slate_store import SlateStore
from tests.unit.storage.store_conformance import batch

ABOUT = About(made_by="test", made_at="now", sequence=1)


async def backed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: dict[bytes, bytes]) -> Path:
    """A backup of these rows in small parts, made while others are written."""
    monkeypatch.setattr(limits, "BACKUP_PART_BYTES", 2_000)
    store = await open_store(StorageSettings(url=str(tmp_path / "data")))
    await store.write(batch(rows))
    assert store.cuts is not None
    cut = await store.cuts.make()
    await store.write(batch({b"\x01later": b"x"}, *list(rows)[:3]))
    source = await CutSource.open(str(tmp_path / "data"), cut.id)
    sink = await open_for_writing(str(tmp_path / "copy"))
    index = await copy_cut(source, sink, ABOUT)
    await source.close()
    assert index.rows == len(rows)
    assert len(index.files) == 2
    assert await store.cuts.drop(cut.id)
    assert not await store.cuts.drop(cut.id)
    await store.close()
    return tmp_path / "copy"


ROWS = {b"\x01k%03d" % number: b"v" * number for number in range(100)}


async def test_restored_storage_has_the_rows_of_the_cut_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await open_for_reading(str(await backed_up(tmp_path, monkeypatch, ROWS)))
    settings = StorageSettings(url=str(tmp_path / "restored"))
    done: list[int] = []
    index = await restoring.check_backup(source)
    await restoring.restore_backup(source, index, settings, done.append)
    assert done[-1] == index.bytes
    store = await open_store(settings)
    found = await store.scan(b"\x01k", b"\x01m", limit=1_000)
    assert dict(found) == ROWS
    await store.close()


async def test_half_restored_storage_is_opened_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await open_for_reading(str(await backed_up(tmp_path, monkeypatch, ROWS)))
    settings = StorageSettings(url=str(tmp_path / "restored"))
    index = await restoring.check_backup(source)
    write, left = SlateStore.write, [2]

    async def fail_later(store: SlateStore, ops: WriteOps) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise StorageError("no more")
        await write(store, ops)

    with monkeypatch.context() as patch:
        patch.setattr(SlateStore, "write", fail_later)
        with pytest.raises(StorageError, match="no more"):
            await restoring.restore_backup(source, index, settings)
    with pytest.raises(StorageError, match="not SluiceMQ's"):
        await open_store(settings)


async def test_copy_that_fails_is_no_backup(tmp_path: Path) -> None:
    class Failing:
        async def pages(self):
            yield [(b"\x01k", b"v")]
            raise StorageError("gone")

    sink = await open_for_writing(str(tmp_path / "copy"))
    with pytest.raises(StorageError, match="gone"):
        await copy_cut(Failing(), sink, ABOUT)
    with pytest.raises(StorageError, match="backup.json: is missing"):
        await restoring.check_backup(await open_for_reading(str(tmp_path / "copy")))


async def test_cuts_are_bounded_and_one_that_is_gone_is_not_read(tmp_path: Path) -> None:
    store = await open_store(StorageSettings(url=str(tmp_path / "data")))
    assert store.cuts is not None
    made = [await store.cuts.make() for _ in range(limits.CUTS_MAX)]
    with pytest.raises(TooManyCuts):
        await store.cuts.make()
    assert await store.cuts.keep(made[0].id)
    await asyncio.gather(*[store.cuts.drop(cut.id) for cut in made[1:]])
    with pytest.raises(StorageError, match="no cut"):
        await CutSource.open(str(tmp_path / "data"), made[1].id)
    assert not await store.cuts.keep(made[1].id)
    await store.close()
