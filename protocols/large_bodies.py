"""Memory for large bodies."""

import ctypes
import sys
from collections.abc import Callable
from io import BytesIO
from mmap import PAGESIZE
from typing import Final

from config import limits

_MADV_HUGEPAGE: Final = 14
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


def body_buffer(size: int) -> BytesIO:
    """A buffer of zeros as large as a body, whose memory is taken as it is written to.

    The system is asked for large pages: taking small ones costs as much as all copying of a body.
    """
    zeros = bytes(size)
    if _madvise is not None and size >= limits.LARGE_PAGES_BYTES_MIN:
        begin = id(zeros) + _BYTES_OFFSET
        end = (begin + size) // PAGESIZE * PAGESIZE
        begin = -(-begin // PAGESIZE) * PAGESIZE
        _madvise(begin, end - begin, _MADV_HUGEPAGE)  # a wish: where it cannot be, nothing changes
    return BytesIO(zeros)
