"""Saying what a start is doing, once it takes long enough for somebody to wonder."""

from __future__ import annotations

import asyncio
from typing import Final, Self

import structlog

from config import limits

_log: Final = structlog.get_logger("sluicemq")


class StartLog:
    """Tells the step that a start is at, a second after its begin and then every few seconds.

    A context manager: it falls silent at its end.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._doing = ""
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._tell_in(limits.START_LOG_DELAY_MS)
        return self

    def __exit__(self, *error: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def step(self, doing: str) -> None:
        """The start goes on with `doing` something."""
        self._doing = doing

    def _tell_in(self, delay_ms: int) -> None:
        self._timer = self._loop.call_later(delay_ms / 1000, self._tell)

    def _tell(self) -> None:
        elapsed_s = self._loop.time() - self._begun
        _log.info("broker.starting", doing=self._doing, elapsed_s=round(elapsed_s, 1))
        self._tell_in(limits.START_LOG_INTERVAL_MS)
