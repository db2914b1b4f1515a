"""The lock of a local storage directory: one process at a time has it.

An advisory lock (`flock`) on the file `lock` in the directory. The kernel lets go of it when its holder ends,
however it ends; the file stays, and means nothing by itself. In it stand the holder's process ID and machine;
its time of change is when the lock was taken.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from config import limits
from storage.errors import StorageError, StoreInUse

T = TypeVar("T")

LOCK_FILE: Final = "lock"

_NO_LOCKS_HERE: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_HOLDER_BYTES_MAX: Final = 1_024


class DirectoryLock:
    """The lock of one existing directory; made free, held from `take` or `wait` until `release`.

    `note` says, after `take`, why the lock does not protect; "" where it does.
    """

    __slots__ = ("_fd", "directory", "note")

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._fd = -1
        self.note = ""

    @property
    def is_held(self) -> bool:
        """Whether this object has the lock."""
        return self._fd >= 0

    def take(self) -> None:
        """Take the lock, or do nothing if it is held. Blocks no longer than the file system does.

        Raises StoreInUse, whose reason names the holder, or StorageError when the file cannot be written.
        """
        if self.is_held:
            return
        path = self.directory / LOCK_FILE
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(f"opening: cannot open {path}: {error.strerror}") from error
        try:
            self._lock(fd)
            os.ftruncate(fd, 0)
            os.pwrite(fd, _describe_this_process(), 0)
        except OSError as error:
            os.close(fd)
            raise StorageError(f"opening: cannot lock {path}: {error.strerror}") from error
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    async def wait(self, timeout_s: float) -> None:
        """Take the lock as soon as its holder lets go. Raises StoreInUse when it does not in `timeout_s`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            try:
                await loop.run_in_executor(None, self.take)
                return
            except StoreInUse:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(limits.DIRECTORY_LOCK_POLL_MS / 1000)

    def release(self) -> None:
        """Let go of the lock, if it is held."""
        if self.is_held:
            os.close(self._fd)
            self._fd = -1

    def _lock(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreInUse(f"opening: {self.directory} is in use by {_holder(fd)}") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise
            self.note = (
                f"the file system of {self.directory} has no locks: a second broker that is started on it "
                "ends this one"
            )


def keep_unlocked(directory: Path) -> Callable[[], None]:
    """Have nobody take the lock before the call that is given; nothing is written, so where there is no lock
    file, or no locks, nobody is kept out. Raises StoreInUse.
    """
    try:
        fd = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return lambda: None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            raise StoreInUse(f"opening: {directory} is in use by {_holder(fd)}") from None
        finally:
            os.close(fd)
    except OSError:
        pass
    return partial(os.close, fd)


def directory_holder(directory: Path) -> str:
    """Describe the holder of the directory; "" when there is none, or that cannot be told."""
    return _ask(directory, _holder, "", "")


def directory_holder_pid(directory: Path) -> int | None:
    """Return the process of this machine that has the directory, 0 for none; None: that cannot be told."""
    return _ask(directory, _holder_pid, 0, None)


def _ask(directory: Path, of: Callable[[int], T], nobody: T, unknown: T) -> T:
    """Return what `of` says of the lock file, if it is held."""
    try:
        fd = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return nobody
    except OSError:
        return unknown
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return of(fd)
    except OSError:
        return unknown
    finally:
        os.close(fd)
    return nobody


def _describe_this_process() -> bytes:
    return json.dumps({"pid": os.getpid(), "host": os.uname().nodename}).encode() + b"\n"


def _read(fd: int) -> tuple[int, str]:
    """Return the process ID and machine in the lock file; 0 while its holder has not written it yet."""
    try:
        written = json.loads(os.pread(fd, _HOLDER_BYTES_MAX, 0))
        return int(written["pid"]), str(written["host"])
    except (ValueError, KeyError, TypeError):
        return 0, ""


def _holder_pid(fd: int) -> int | None:
    pid, host = _read(fd)
    return pid if pid and host == os.uname().nodename else None


def _holder(fd: int) -> str:
    """Describe the process that wrote the lock file."""
    since = datetime.fromtimestamp(int(os.fstat(fd).st_mtime), UTC)
    pid, host = _read(fd)
    if not pid:
        return "another process"
    where = "" if host == os.uname().nodename else f" on {host}"
    return f"process {pid}{where} since {since:%Y-%m-%d %H:%M:%S} UTC"
