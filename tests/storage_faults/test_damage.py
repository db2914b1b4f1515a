"""Damage to a database with a journal, told apart from a power cut: made good, or refused by name."""

import shutil

import pytest

from config.settings import StorageSettings
from storage.errors import StorageError
from storage.journal import frames
from storage.local_sync import wal_name
from storage.open import open_store
from tests.storage_faults.children import Writer, check_rows

CONFIRMED = 299
SPREAD_OUT = (
    "from config import limits; limits.JOURNAL_APPLY_INTERVAL_MS = limits.JOURNAL_FLUSH_INTERVAL_MS = 1\n"
)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """300 confirmed commits, many objects in SlateDB's log, and a process that was killed."""
    directory = tmp_path_factory.mktemp("written")
    writer = Writer(str(directory), commits=CONFIRMED + 1, before=SPREAD_OUT)
    writer.start()
    writer.wait()
    return directory


@pytest.fixture
def root(written, tmp_path):
    shutil.copytree(written, tmp_path / "data")
    return tmp_path / "data"


def log_objects(root):
    """The objects of SlateDB's log with rows in them, the newest last."""
    found = [path for path in sorted((root / "db" / "wal").iterdir()) if path.stat().st_size]
    assert len(found) > 5
    return found


def flip_bit(path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


async def check_start(root, *, notes: int) -> None:
    """A start finds every confirmed commit, and tells of so many files; the next one of none."""
    store = await open_store(StorageSettings(url=str(root)))
    await check_rows(store, CONFIRMED)
    assert len(store.notes) == notes
    await store.close()
    store = await open_store(StorageSettings(url=str(root)))
    await check_rows(store, CONFIRMED)
    assert store.notes == ()
    await store.close()


async def test_kill_alone_leaves_nothing_to_tell(root):
    await check_start(root, notes=0)


async def test_flipped_bit_in_the_newest_log_object_is_made_good(root):
    newest = log_objects(root)[-1]
    flip_bit(newest, newest.stat().st_size // 2)
    await check_start(root, notes=1)


async def test_deleted_newest_log_object_is_made_good(root):
    log_objects(root)[-1].unlink()
    await check_start(root, notes=0)


@pytest.mark.parametrize("back", [2, 4])
async def test_deleted_log_object_in_the_middle_is_made_good(root, back):
    log_objects(root)[-back].unlink()
    await check_start(root, notes=back - 1)


async def test_torn_log_object_with_empty_ones_behind_it_is_made_good(root):
    newest = log_objects(root)[-1]
    newest.write_bytes(newest.read_bytes()[:100])
    for behind in (1, 2):
        (root / "db" / "wal" / wal_name(int(newest.stem) + behind)).touch()
    await check_start(root, notes=3)


def last_frame(root):
    """The file of the last commit, and where its frame begins and ends."""
    (path,) = (root / "journal").glob("segment-*")
    data = path.read_bytes()
    head = frames.decode_head(data)
    assert head is not None
    at, end = 0, frames.HEAD_BYTES
    signs = frames.signs_of(head)
    while (found := frames.read_frame(memoryview(data), end, signs)) is not None:
        at, end = end, found.end
    return path, at, end


@pytest.mark.parametrize("where", ["head", "body"])
async def test_flipped_bit_in_the_last_confirmed_frame_is_refused(root, where):
    path, begin, end = last_frame(root)
    flip_bit(path, begin + 20 if where == "head" else end - 9)
    for wal in log_objects(root)[-3:]:
        wal.unlink()  # the database does not have it either
    with pytest.raises(
        StorageError, match=f"commits {CONFIRMED + 1} to {CONFIRMED + 1} were confirmed and are not"
    ):
        await open_store(StorageSettings(url=str(root)))


async def test_deleted_newest_segment_is_refused(root):
    (path,) = (root / "journal").glob("segment-*")
    path.unlink()
    for wal in log_objects(root)[-3:]:
        wal.unlink()
    with pytest.raises(StorageError, match=f"to {CONFIRMED + 1} were confirmed and are not there"):
        await open_store(StorageSettings(url=str(root)))
