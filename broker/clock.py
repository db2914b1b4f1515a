"""The only place that reads clocks."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class Clock:
    """Wall time for messages, monotonic time for connections."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000  # noqa: TID251

    monotonic = staticmethod(time.monotonic)  # seconds that never go back


def iso_time(at_ms: int) -> str:
    """A wall time as ISO 8601 has it, in UTC with milliseconds."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
