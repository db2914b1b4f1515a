"""The log of refused publishes: a full queue refuses everybody, again and again, and one line says so."""

from __future__ import annotations

from typing import Any, Final

import structlog

from broker.logs.log_pace import LogPace
from config import limits

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
