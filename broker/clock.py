"""The only place that reads clocks."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class Clock:
    """Wall time for messages, monotonic time for connections."""

    def now_ms(self) -> int:
        """Return the milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000  # noqa: TID251

    monotonic = staticmethod(time.monotonic)  # seconds that never go back
    thread_s = staticmethod(time.thread_time)  # seconds of a processor that this thread has taken


def until_beat_s(interval_ms: int) -> float:
    """Return the seconds until monotonic time is a multiple of the interval.

    Who looks from time to time waits so long: all of them look in the same turn of the loop, and a broker
    that has nothing to do is woken seldom.
    """
    interval_s = interval_ms / 1000
    return interval_s - time.monotonic() % interval_s


def iso_time(at_ms: int) -> str:
    """Return a wall time as ISO 8601 has it, in UTC with milliseconds."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
