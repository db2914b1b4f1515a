"""The clock of leases: it goes on while the machine is suspended, which monotonic time does not on Linux.

A machine that sleeps is one whose lease runs out: when it wakes, others may have what it had.
"""

from __future__ import annotations

import time
from typing import Final

_ID: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def lease_clock_s() -> float:
    """Return seconds that never go back, the same for all processes of a machine."""
    return time.clock_gettime(_ID)
