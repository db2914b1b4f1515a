"""Memory for large bodies."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from io import BytesIO
from mmap import PAGESIZE
from typing import Final

from config import limits

_MADV_HUGEPAGE: Final = 14
_MADV_POPULATE_WRITE: Final = 23
_LARGE_PAGE_BYTES: Final = 2 * limits.MIB
_BYTES_OFFSET: Final = bytes.__basicsize__ - 1  # of what a bytes object holds, in CPython


def _find_madvise() -> Callable[[int, int, int], int] | None:
    if sys.platform != "linux" or sys.implementation.name != "cpython":
        return None
    try:
        madvise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return None
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    madvise.restype = ctypes.c_int
    return madvise


_madvise: Final = _find_madvise()


class LargeBody(BytesIO):
    """The buffer of a large body: in large pages, taken a part at a time, before that is written to.

    Whoever writes first to a large page waits until the system has it, 0.1 to 7 ms: the event loop had better
    not.
    """

    def __init__(self, size: int, advise: Callable[[int, int, int], int]) -> None:
        zeros = bytes(size)
        super().__init__(zeros)
        self._advise = advise
        self._address = id(zeros) + _BYTES_OFFSET
        begin = -(-self._address // PAGESIZE) * PAGESIZE
        self._end = (self._address + size) // PAGESIZE * PAGESIZE
        self._taken = begin
        advise(begin, self._end - begin, _MADV_HUGEPAGE)  # a wish: where it cannot be, nothing changes

    @property
    def lacks_memory(self) -> bool:
        """Whether the memory for what is read next, somewhat more than in one turn, is not taken yet."""
        return min(self._address + self.tell() + 2 * limits.READ_TURN_BYTES_MAX, self._end) > self._taken

    def take_memory(self) -> None:
        """Take memory for what is written next; in a thread, while nothing is."""
        end = self._address + self.tell() + limits.BODY_MEMORY_STEP_BYTES
        end = min(-(-end // _LARGE_PAGE_BYTES) * _LARGE_PAGE_BYTES, self._end)
        begin, self._taken = self._taken, end
        if self._advise(begin, end - begin, _MADV_POPULATE_WRITE):
            self._taken = self._end  # Linux before 5.14 does not know the wish: nothing more is asked for


def body_buffer(size: int) -> BytesIO:
    """Make a buffer of zeros as large as a body, whose memory is taken as it is written to.

    The system is asked for large pages: taking small ones costs as much as all copying of a body.
    """
    if _madvise is None or size < limits.LARGE_PAGES_BYTES_MIN:
        return BytesIO(bytes(size))
    return LargeBody(size, _madvise)
