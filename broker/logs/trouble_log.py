"""Saying what keeps the store from working in the background, and when that is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from broker.logs.log_pace import LogPace
from config import limits
from storage.store import Store

_log: Final = structlog.get_logger("sluicemq")


class TroubleLog:
    """Writes a line when trouble begins, one every few seconds while it lasts, and one at its end."""

    def __init__(self, store: Store, tell: Callable[[str], None]) -> None:
        """`tell` is called with the reason when trouble begins, and with "" when it is over."""
        self._store = store
        self._tell = tell
        self._pace = LogPace(limits.TROUBLE_LOG_INTERVAL_MS)
        self._is_told = False

    def look(self, now_ms: int) -> None:
        """Look for trouble; to be called often, does nothing most of the time."""
        trouble = self._store.trouble
        if trouble is None:
            if self._is_told:
                self._is_told = False
                self._pace = LogPace(limits.TROUBLE_LOG_INTERVAL_MS)
                _log.info("storage.trouble_over")
                self._tell("")
        elif self._pace.turn(now_ms):
            if not self._is_told:
                self._tell(trouble.reason)
            self._is_told = True
            _log.error("storage.trouble", reason=trouble.reason)
