"""Saying what a start is doing, once it takes long enough for somebody to wonder."""

from __future__ import annotations

import asyncio
from typing import Final, Self

import structlog

from config import limits

_log: Final = structlog.get_logger("sluicemq")


class StartLog:
    """Tells the step that a start is at, a second after its begin and then every few seconds.

    A context manager: at its end it tells what each step of a start took that was so long, and falls silent.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._doing = ""
        self._step_begun = self._begun
        self._took_s: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._tell_in(limits.START_LOG_DELAY_MS)
        return self

    def __exit__(self, *error: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.step("")
        took_s = self._step_begun - self._begun
        if error[0] is None and took_s >= limits.START_LOG_DELAY_MS / 1000:
            _log.info("broker.start_took", seconds=round(took_s, 2), steps=self._took_s)

    def step(self, doing: str) -> None:
        """Note that the start goes on with `doing` something."""
        now = self._loop.time()
        if self._doing:
            self._took_s[self._doing] = round(now - self._step_begun, 2)
        self._doing = doing
        self._step_begun = now

    def _tell_in(self, delay_ms: int) -> None:
        self._timer = self._loop.call_later(delay_ms / 1000, self._tell)

    def _tell(self) -> None:
        elapsed_s = self._loop.time() - self._begun
        _log.info("broker.starting", doing=self._doing, elapsed_s=round(elapsed_s, 1))
        self._tell_in(limits.START_LOG_INTERVAL_MS)
