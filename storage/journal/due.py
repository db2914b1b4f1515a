"""Work in the background that is due at once, or at a time."""

import asyncio


class Due:
    """Wakes who waits for it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def now(self) -> None:
        """Make the work due."""
        self._event.set()

    def at(self, time_s: float) -> None:
        """Make the work due at that time of the loop, unless it is earlier."""
        if self._timer is None:
            self._timer = self._loop.call_at(time_s, self._event.set)

    def after(self, delay_s: float) -> None:
        """Make the work due so long from now, unless it is earlier."""
        self.at(self._loop.time() + delay_s)

    async def wait(self) -> None:
        """Return once the work is due; it is not from then on."""
        await self._event.wait()
        self._event.clear()
        self.cancel()

    def cancel(self) -> None:
        """Forget the time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
