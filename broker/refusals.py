"""The log of refused publishes: a full queue refuses everybody, again and again, and one line says so."""

from __future__ import annotations

from typing import Any, Final

import structlog

from config import limits

_log: Final = structlog.get_logger("sluicemq.publish")


class RefusalLog:
    """Writes at most one line for each queue (or topic) in `limits.REFUSAL_LOG_INTERVAL_MS`."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}  # by queue: time of the last line, refusals since

    def note(self, queue: str, now_ms: int, count: int, **fields: Any) -> None:
        """`count` publishes to `queue` were refused; `fields` (peer, reason, ...) tell of the last."""
        seen = self._seen
        last_ms, suppressed_count = seen.get(queue, (-limits.REFUSAL_LOG_INTERVAL_MS, 0))
        if 0 <= now_ms - last_ms < limits.REFUSAL_LOG_INTERVAL_MS:
            seen[queue] = (last_ms, suppressed_count + count)
            return
        if queue not in seen and len(seen) >= limits.REFUSAL_LOG_QUEUES_MAX:
            seen.clear()
        seen[queue] = (now_ms, 0)
        if suppressed_count:
            fields["not_logged"] = suppressed_count
        _log.warning("publish.refused", queue=queue, count=count, **fields)
