"""Sorting more than fits into memory, in a temporary file."""

from __future__ import annotations

import heapq
import os
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, Final

from config import limits

_READ_BYTES: Final = 64 * limits.KIB


def _open_unnamed() -> BinaryIO:
    """Open a temporary file that goes when it is closed. Raises OSError."""
    fd, name = tempfile.mkstemp()
    os.unlink(name)
    return os.fdopen(fd, "w+b")


class SortedOnDisk:
    """Byte strings of one length, taken in any order and given back in order.

    `limits.SORTED_IN_MEMORY_MAX` of them lie in memory, the others in a temporary file that has no name, as
    sorted runs.
    """

    def __init__(self, item_bytes: int) -> None:
        self._item_bytes = item_bytes
        self._items: list[bytes] = []
        self._runs: list[tuple[int, int]] = []  # where each begins and ends in the file
        self._file = _open_unnamed()

    def add(self, item: bytes) -> None:
        """Take one. Raises OSError if there is no room on the disk."""
        self._items.append(item)
        if len(self._items) >= limits.SORTED_IN_MEMORY_MAX:
            self._spill()

    def __iter__(self) -> Iterator[bytes]:
        """Yield all that were taken, in order. Raises OSError."""
        self._items.sort()
        self._file.flush()
        return heapq.merge(self._items, *[self._read(start, end) for start, end in self._runs])

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _spill(self) -> None:
        self._items.sort()
        start = self._file.tell()
        self._file.write(b"".join(self._items))
        self._runs.append((start, self._file.tell()))
        self._items = []

    def _read(self, at: int, end: int) -> Iterator[bytes]:
        size = self._item_bytes
        step = max(1, _READ_BYTES // size) * size
        while at < end:
            part = os.pread(self._file.fileno(), min(step, end - at), at)
            yield from [part[begin : begin + size] for begin in range(0, len(part), size)]
            at += len(part)
