"""Giving memory back to the system after a busy time.

The C library keeps what was freed in the heaps of a dozen threads, for ever: after half a minute of a fast
publisher that is 200 MB, after hours of load more. Limiting its heaps costs a tenth of the throughput, and
asking for it while there is much to do holds up who allocates. So it is asked once a busy time is over.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from config import limits

_STATM: Final = Path("/proc/self/statm")


def memory_returner() -> Callable[[], None]:
    """Return a function that gives free memory back, in any thread; it does nothing where the C library
    cannot.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return lambda: None
    trim.argtypes = [ctypes.c_size_t]
    trim.restype = ctypes.c_int

    def give_back() -> None:
        trim(0)

    return give_back


def resident_bytes() -> int:
    """Return what of this process is in memory; 0 where the system does not tell."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


class ReturnTimes:
    """Says when memory is to be given back: after a busy time in which the process grew, and now and then.

    Times are monotonic, `cpu_s` is the processor time that the event loop has taken; `resident` tells
    the bytes in memory.
    """

    def __init__(self, resident: Callable[[], int], now_s: float, cpu_s: float) -> None:
        self._resident = resident
        self._kept_bytes = resident()
        self._given_s = self._looked_s = now_s
        self._cpu_s = cpu_s
        self._was_busy = False

    def look(self, now_s: float, cpu_s: float) -> bool:
        """Return whether to give memory back now, with `given` to follow; to be called often."""
        is_quiet = cpu_s - self._cpu_s < (now_s - self._looked_s) * limits.QUIET_CPU_SHARE
        self._looked_s = now_s
        self._cpu_s = cpu_s
        if now_s - self._given_s >= limits.MEMORY_RETURN_INTERVAL_S:
            return True
        is_over = is_quiet and self._was_busy
        self._was_busy = not is_quiet
        return is_over and self._resident() - self._kept_bytes >= limits.MEMORY_GROWTH_BYTES

    def given(self, now_s: float) -> None:
        """Note that it was given back."""
        self._kept_bytes = self._resident()
        self._given_s = now_s
