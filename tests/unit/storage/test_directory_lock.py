import asyncio
import errno
import fcntl
import json
import os
import re
import subprocess
import sys

import pytest

from storage.directory_lock import LOCK_FILE, DirectoryLock, directory_holder
from storage.errors import StorageError, StoreInUse
from tests.waiting import until_so

HOLDER = """
import sys
from pathlib import Path
from storage.directory_lock import DirectoryLock
DirectoryLock(Path(sys.argv[1])).take()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that has the lock of `tmp_path` until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_second_lock_in_one_process_is_refused_until_release(tmp_path):
    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    first.take()
    first.take()
    with pytest.raises(StoreInUse, match=f"in use by process {os.getpid()} since "):
        second.take()
    assert first.is_held
    assert not second.is_held
    first.release()
    first.release()
    second.take()
    second.release()


def test_lock_of_another_process_names_pid_and_time(tmp_path, holder):
    with pytest.raises(StoreInUse) as refusal:
        DirectoryLock(tmp_path).take()
    assert re.fullmatch(
        rf"opening: {tmp_path} is in use by process {holder.pid} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC",
        refusal.value.reason,
    )


def test_lock_of_another_machine_names_that_machine(tmp_path, holder):
    (tmp_path / LOCK_FILE).write_text(json.dumps({"pid": 7, "host": "elsewhere"}))
    with pytest.raises(StoreInUse, match="process 7 on elsewhere since"):
        DirectoryLock(tmp_path).take()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": "x", "host": 1}', b"\xff"])
def test_unreadable_lock_file_is_reported_as_another_process(tmp_path, holder, content):
    (tmp_path / LOCK_FILE).write_bytes(content)
    with pytest.raises(StoreInUse, match="in use by another process"):
        DirectoryLock(tmp_path).take()


def test_lock_is_free_after_the_death_of_its_holder(tmp_path, holder):
    holder.kill()
    holder.wait()
    lock = DirectoryLock(tmp_path)
    lock.take()
    assert json.loads((tmp_path / LOCK_FILE).read_bytes())["pid"] == os.getpid()
    lock.release()


async def test_wait_takes_the_lock_once_it_is_free(tmp_path, holder, monkeypatch):
    lock = DirectoryLock(tmp_path)
    tries: list[None] = []

    whole = DirectoryLock.take

    def take(lock: DirectoryLock) -> None:
        tries.append(None)
        whole(lock)

    monkeypatch.setattr(DirectoryLock, "take", take)
    waiting = asyncio.create_task(lock.wait(20))
    await until_so(lambda: len(tries) >= 3)
    assert not waiting.done()
    holder.kill()
    await waiting
    assert lock.is_held
    lock.release()


async def test_wait_is_refused_when_its_time_is_over(tmp_path, holder):
    with pytest.raises(StoreInUse):
        await DirectoryLock(tmp_path).wait(0.1)


def test_directory_holder_is_told_without_taking_the_lock(tmp_path, holder):
    assert directory_holder(tmp_path).startswith(f"process {holder.pid} since ")
    assert directory_holder(tmp_path / "absent") == ""
    holder.kill()
    holder.wait()
    assert directory_holder(tmp_path) == ""
    lock = DirectoryLock(tmp_path)
    lock.take()
    lock.release()


def test_file_system_without_locks_is_noted_and_used(tmp_path, monkeypatch):
    def no_locks(fd, operation):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    lock = DirectoryLock(tmp_path)
    lock.take()
    assert "has no locks" in lock.note
    lock.release()


def test_lock_file_that_cannot_be_opened_is_refused_with_reason(tmp_path):
    (tmp_path / LOCK_FILE).mkdir()
    with pytest.raises(StorageError, match="cannot open .*lock: Is a directory"):
        DirectoryLock(tmp_path).take()
