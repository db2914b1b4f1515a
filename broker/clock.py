"""The only place that reads clocks."""

from __future__ import annotations

import time


class Clock:
    """Wall time for messages, monotonic time for connections."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000  # noqa: TID251

    monotonic = staticmethod(time.monotonic)  # seconds that never go back
