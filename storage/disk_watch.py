"""Whether a local disk takes what is written to it.

SlateDB goes on trying when it does not and tells nobody, so an operation that takes long has somebody look.
"""

import asyncio
import errno
import os
import resource
import tempfile
from pathlib import Path
from typing import Final

from config import limits
from storage.errors import StoreFull, StoreUnavailable

Trouble = StoreFull | StoreUnavailable

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


def disk_trouble(directory: Path) -> Trouble | None:
    """Return the reason for which the store cannot write to `directory`, or None. Blocks as long as the file
    system does.
    """
    try:
        free = _free_bytes(directory)
        if free < limits.STORE_ROOM_BYTES_MIN:
            return StoreFull(f"only {free} bytes are free on the disk of {directory}")
        _write_a_byte(directory)
    except OSError as error:
        reason = f"cannot write to {directory}: {error.strerror}"
        return StoreFull(reason) if error.errno in _NO_ROOM else StoreUnavailable(reason)
    limited = file_size_trouble()
    return StoreUnavailable(f"cannot write to {directory}: {limited}") if limited else None


def file_size_trouble() -> str:
    """Return the reason for which files cannot become as large as the store's, or ""."""
    largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if largest == resource.RLIM_INFINITY or largest >= limits.STORE_FILE_BYTES_MAX:
        return ""
    return f"files may have {largest} bytes (ulimit -f), {limits.STORE_FILE_BYTES_MAX} are needed"


class DiskWatch:
    """Looks after `directory` while an operation takes long; `trouble` is what the last look found.

    Ends `deadline` early, if there is one, once there is trouble.
    """

    __slots__ = ("_deadline", "_directory", "_loop", "_stopped", "_timer", "trouble")

    def __init__(self, directory: Path, deadline: asyncio.Timeout | None = None) -> None:
        self.trouble: Trouble | None = None
        self._directory = directory
        self._deadline = deadline
        self._stopped = False
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(limits.STORE_ROOM_CHECK_INTERVAL_S, self._look)

    def stop(self) -> None:
        """Look no more. Must be called."""
        self._stopped = True
        self._timer.cancel()

    def _look(self) -> None:
        # in a thread: a disk that does not answer must not hold up the loop
        self._loop.run_in_executor(None, disk_trouble, self._directory).add_done_callback(self._seen)

    def _seen(self, look: "asyncio.Future[Trouble | None]") -> None:
        if self._stopped or look.cancelled():
            return
        self.trouble = look.result()
        if self.trouble is not None and self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(self._loop.time())
            return
        self._timer = self._loop.call_later(limits.STORE_ROOM_CHECK_INTERVAL_S, self._look)


def _free_bytes(directory: Path) -> int:
    """Return how much an unprivileged process may still write to the file system of `directory`."""
    stat = os.statvfs(directory)
    return stat.f_bavail * stat.f_frsize


def _write_a_byte(directory: Path) -> None:
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(b"\0")
