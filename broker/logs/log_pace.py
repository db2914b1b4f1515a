"""Saying a thing that happens again and again once in a while, with how often it happened."""

from __future__ import annotations


class LogPace:
    """Lets one line through in `interval_ms`, and counts the others."""

    __slots__ = ("_interval_ms", "_last_ms", "_skipped_count")

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._last_ms: int | None = None
        self._skipped_count = 0

    def turn(self, now_ms: int, count: int = 1) -> int:
        """Count what happened: returns how many to tell of now, those before included, or 0 to say
        nothing.
        """
        if self._last_ms is not None and 0 <= now_ms - self._last_ms < self._interval_ms:
            self._skipped_count += count
            return 0
        told = count + self._skipped_count
        self._last_ms = now_ms
        self._skipped_count = 0
        return told
