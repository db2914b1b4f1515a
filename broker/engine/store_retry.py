"""Waiting out trouble of the store that may pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from broker.clock import Clock
from config import limits
from storage.errors import StoreFull, StoreUnavailable

_log: Final = structlog.get_logger("sluicemq.shard")


class StoreRetry:
    """Takes steps again that the store failed at, as long as there is hope."""

    def __init__(self, clock: Clock, tried_again: Callable[[], None] = lambda: None) -> None:
        """`tried_again` is called whenever the store failed and is asked once more."""
        self._clock = clock
        self._stopped = False
        self._tried_again = tried_again

    def stop(self) -> None:
        """Stop: the shard closes, and a step that fails from now on is not taken again."""
        self._stopped = True

    async def take(self, step: Callable[[], Awaitable[object]]) -> None:
        """Take a step; trouble that may pass is waited out, while publishers are held back.

        Raises StorageError once it has lasted `limits.STORE_RETRY_MS_MAX`.
        """
        delay_ms = limits.STORE_RETRY_DELAY_MS_MIN
        began = self._clock.monotonic()
        while True:
            try:
                await step()
                return
            except (StoreUnavailable, StoreFull) as error:
                tried_s = self._clock.monotonic() - began
                if self._stopped:
                    raise
                if tried_s * 1000 >= limits.STORE_RETRY_MS_MAX:
                    raise type(error)(f"{error.reason}, tried for {tried_s:.0f} s") from error
                self._tried_again()
                _log.error("storage.retry", reason=error.reason, delay_ms=delay_ms)
                await asyncio.sleep(delay_ms / 1000)
                delay_ms = min(2 * delay_ms, limits.STORE_RETRY_DELAY_MS_MAX)
