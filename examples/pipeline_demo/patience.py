"""Waiting as long as something moves: a slow machine may take long, what stands still never gets there."""

import time
from collections.abc import Callable

STILL_S = 90
TELL_INTERVAL_S = 15


class Patience:
    """For one thing that is waited for; `say` is told now and then what that is."""

    def __init__(
        self, what: str, say: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._say = say
        self._now = now
        self._began = self._moved = self._told = now()
        self._progress: object = None

    @property
    def waited_s(self) -> float:
        """For how long it was waited."""
        return self._now() - self._began

    def look(self, progress: object) -> None:
        """Take note of how far it is. Raises RuntimeError once nothing has moved for `STILL_S`."""
        now = self._now()
        if progress != self._progress:
            self._progress = progress
            self._moved = now
        if now - self._moved > STILL_S:
            raise RuntimeError(
                f"waited {self.waited_s:.0f} s for {self._what}; for {STILL_S} s nothing has moved"
            )
        if now - self._told > TELL_INTERVAL_S:
            self._told = now
            self._say(f"waiting for {self._what}: {self.waited_s:.0f} s")
