"""Room on a local disk.

SlateDB goes on trying when a disk is full and tells nobody, so a write that takes long looks for itself.
"""

import asyncio
import os
from pathlib import Path

from config import limits


def free_bytes(directory: Path) -> int:
    """What an unprivileged process may still write to the filesystem of `directory`. Raises OSError."""
    stat = os.statvfs(directory)
    return stat.f_bavail * stat.f_frsize


class RoomWatch:
    """Ends `deadline` early once the disk of `directory` is found full."""

    __slots__ = ("_deadline", "_directory", "_timer")

    def __init__(self, directory: Path, deadline: asyncio.Timeout) -> None:
        self._directory = directory
        self._deadline = deadline
        self._timer = asyncio.get_running_loop().call_later(limits.STORE_ROOM_CHECK_INTERVAL_S, self._look)

    def stop(self) -> None:
        """Look no more. Must be called."""
        self._timer.cancel()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            full = free_bytes(self._directory) < limits.STORE_ROOM_BYTES_MIN
        except OSError:
            full = True  # the directory is gone; who catches the timeout looks again and says so
        if full and not self._deadline.expired():
            self._deadline.reschedule(loop.time())
            return
        self._timer = loop.call_later(limits.STORE_ROOM_CHECK_INTERVAL_S, self._look)
