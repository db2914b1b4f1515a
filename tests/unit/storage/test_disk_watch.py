import asyncio
import errno
import os
import resource
import tempfile
from typing import Any

import pytest

from config import limits
from storage import disk_watch
from storage.disk_watch import DiskWatch, disk_trouble, file_size_trouble
from storage.errors import StoreFull, StoreUnavailable
from tests.waiting import LoopClock, until_so


def test_directory_that_takes_files_has_no_trouble(tmp_path):
    assert disk_trouble(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_directory_that_is_gone_is_told(tmp_path):
    trouble = disk_trouble(tmp_path / "gone")
    assert isinstance(trouble, StoreUnavailable)
    assert trouble.reason == f"cannot write to {tmp_path}/gone: No such file or directory"


def test_little_room_is_a_full_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "STORE_ROOM_BYTES_MIN", 1 << 60)
    trouble = disk_trouble(tmp_path)
    assert isinstance(trouble, StoreFull)
    assert f"bytes are free on the disk of {tmp_path}" in trouble.reason


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.EROFS, StoreUnavailable), (errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull)],
)
def test_error_of_a_write_is_told(tmp_path, monkeypatch, number, kind):
    def refuse(dir):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    trouble = disk_trouble(tmp_path)
    assert type(trouble) is kind
    assert trouble.reason == f"cannot write to {tmp_path}: {os.strerror(number)}"


@pytest.mark.parametrize(
    ("largest", "is_enough"),
    [
        (resource.RLIM_INFINITY, True),
        (limits.STORE_FILE_BYTES_MAX, True),
        (limits.STORE_FILE_BYTES_MAX - 1, False),
    ],
)
def test_limit_of_file_sizes_is_held_against_what_the_store_needs(tmp_path, monkeypatch, largest, is_enough):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (largest, largest))
    assert (file_size_trouble() == "") == is_enough
    assert (disk_trouble(tmp_path) is None) == is_enough


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(limits, "STORE_ROOM_CHECK_INTERVAL_S", 0.02)


async def test_watch_finds_trouble_and_its_end(tmp_path, quick):
    directory = tmp_path / "db"
    watch = DiskWatch(directory)
    assert watch.trouble is None
    await until_so(lambda: watch.trouble is not None)
    directory.mkdir()
    await until_so(lambda: watch.trouble is None)
    watch.stop()


async def test_watch_ends_a_deadline_early_once_there_is_trouble(tmp_path, quick):
    watches = []

    async def wait_long() -> None:
        async with asyncio.timeout(30) as deadline:
            watches.append(DiskWatch(tmp_path / "gone", deadline))
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await wait_long()
    assert watches[0].trouble is not None
    watches[0].stop()


async def test_watch_that_was_stopped_looks_no_more(tmp_path, quick, monkeypatch):
    looks: list[Any] = []
    monkeypatch.setattr(disk_watch, "disk_trouble", looks.append)
    watch = DiskWatch(tmp_path)
    await until_so(lambda: looks)
    watch.stop()
    await asyncio.to_thread(list)  # behind a look that had begun
    seen = len(looks)
    await LoopClock().advance(10 * limits.STORE_ROOM_CHECK_INTERVAL_S)
    await asyncio.to_thread(list)
    assert len(looks) == seen
