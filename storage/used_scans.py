"""Letting go of scans that were read, beside the event loop."""

import asyncio

from slatedb.uniffi import DbIterator

from config import limits


class UsedScans:
    """Scans of SlateDB that nobody reads any more.

    One may be the last to refer to a whole table in memory, which takes long to free: that is done in a
    thread, for many at a time.
    """

    def __init__(self) -> None:
        self._scans: list[DbIterator] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, scan: DbIterator) -> None:
        """Keep a scan until `release`; may be called in any thread."""
        self._scans.append(scan)

    def release_soon(self) -> None:
        """Have what was added let go of after a while, or at once if it is much."""
        if len(self._scans) >= limits.STORE_USED_SCANS_MAX:
            self.release()
        elif self._scans and self._timer is None:
            delay_s = limits.STORE_RELEASE_INTERVAL_MS / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.release)

    def release(self) -> None:
        """Let go of what was added."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        scans, self._scans = self._scans, []
        asyncio.get_running_loop().run_in_executor(None, scans.clear)
