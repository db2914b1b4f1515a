"""The loops of time, where leases end and timers fire, and of work too large for one turn, in steps."""

from __future__ import annotations

import asyncio

from broker.clock import Clock, until_beat_s
from broker.engine.wakeups import Wakeups
from config import limits
from queue_manager.manager import QueueManager
from storage.store import Store


class LeaseLoop:
    """Apart from the sweep, which may take long: leases end in time while a large queue is removed."""

    def __init__(self, store: Store, manager: QueueManager, clock: Clock, wakeups: Wakeups) -> None:
        self._store = store
        self._manager = manager
        self._clock = clock
        self._wakeups = wakeups

    async def run(self) -> None:
        """Return claims whose lease has ended, twice a second."""
        while True:
            await asyncio.sleep(until_beat_s(limits.SWEEP_INTERVAL_MS))
            self.expire_once()

    def expire_once(self) -> None:
        """Return claims whose lease has ended."""
        self._store.check()
        self._manager.expire(self._clock.now_ms())
        self._wakeups.wake()

    async def run_timers(self) -> None:
        """Call the manager when something is due by its timers."""
        timers = self._manager.context.timers
        wake = self._wakeups.timers
        while True:
            due_ms = timers.look()
            wake.clear()
            try:
                wait_s = None if due_ms is None else max(0, due_ms - self._clock.now_ms()) / 1000
                async with asyncio.timeout(wait_s):
                    await wake.wait()
            except TimeoutError:
                self._manager.fire_timers(self._clock.now_ms())
                self._wakeups.wake()


class StepLoop:
    """Takes one step of the manager's in each turn of the loop, so that clients are read from in between."""

    def __init__(self, manager: QueueManager, clock: Clock, wakeups: Wakeups) -> None:
        self._manager = manager
        self._discards = manager.context.discards
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
        self._discards.end()
        while self._manager.take_step(self._clock.now_ms()):
            pass
