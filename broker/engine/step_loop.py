"""Work that is too large for one turn of the loop, in steps."""

from __future__ import annotations

import asyncio

from broker.clock import Clock
from broker.engine.wakeups import Wakeups
from queue_manager.manager import QueueManager


class StepLoop:
    """Takes one step of the manager's in each turn of the loop, so that clients are read from in between."""

    def __init__(self, manager: QueueManager, clock: Clock, wakeups: Wakeups) -> None:
        self._manager = manager
        self._clock = clock
        self._wakeups = wakeups

    async def run(self) -> None:
        """Take steps whenever there are any."""
        wake = self._wakeups.step
        while True:
            await wake.wait()
            wake.clear()
            while self._manager.take_step(self._clock.now_ms()):
                self._wakeups.wake()
                await asyncio.sleep(0)

    def finish(self) -> None:
        """Take all steps that are left, but for what a start finds by itself."""
        self._manager.context.discards.end()
        while self._manager.take_step(self._clock.now_ms()):
            pass
