"""The log of refused publishes: a full queue refuses everybody, again and again, and one line says so."""

from __future__ import annotations

from typing import Any, Final

import structlog

from config import limits

_log: Final = structlog.get_logger("sluicemq.publish")


class RefusalLog:
    """Writes at most one line for each queue, topic or exchange in `limits.REFUSAL_LOG_INTERVAL_MS`."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}  # by target: time of the last line, refusals since

    def note(self, target: str, now_ms: int, count: int, **fields: Any) -> None:
        """Tell that `count` publishes were refused; `fields` (queue, peer, reason, ...) are of the last."""
        seen = self._seen
        last_ms, suppressed_count = seen.get(target, (-limits.REFUSAL_LOG_INTERVAL_MS, 0))
        if 0 <= now_ms - last_ms < limits.REFUSAL_LOG_INTERVAL_MS:
            seen[target] = (last_ms, suppressed_count + count)
            return
        if target not in seen and len(seen) >= limits.REFUSAL_LOG_QUEUES_MAX:
            seen.clear()
        seen[target] = (now_ms, 0)
        if suppressed_count:
            fields["not_logged"] = suppressed_count
        _log.warning("publish.refused", count=count, **fields)
