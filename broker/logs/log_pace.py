"""Saying a thing that happens again and again, such as a refusal, once in a while, with how often it did."""

from __future__ import annotations

from typing import Any, Final

import structlog

from config import limits


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


_log: Final = structlog.get_logger("sluicemq.publish")


class RefusalLog:
    """Writes at most one line for each queue, topic or exchange in `limits.REFUSAL_LOG_INTERVAL_MS`."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, LogPace] = {}  # by target

    def note(self, target: str, now_ms: int, count: int, **fields: Any) -> None:
        """Tell that `count` publishes were refused; `fields` (queue, peer, reason, ...) are of the last."""
        pace = self._seen.get(target)
        if pace is None:
            if len(self._seen) >= limits.REFUSAL_LOG_QUEUES_MAX:
                self._seen.clear()
            pace = self._seen[target] = LogPace(limits.REFUSAL_LOG_INTERVAL_MS)
        told = pace.turn(now_ms, count)
        if told > count:
            fields["not_logged"] = told - count
        if told:
            _log.warning("publish.refused", count=count, **fields)
