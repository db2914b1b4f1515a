"""Which loops of a shard have something to do."""

from __future__ import annotations

import asyncio

from queue_manager.manager import QueueManager


class Wakeups:
    """The signals between whoever does something to the manager and the loops that follow it up.

    `is_running`: the loops were started; otherwise whoever waits for a step takes it.
    """

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self.is_running = False
        self.commit = asyncio.Event()
        self.load = asyncio.Event()
        self.sweep = asyncio.Event()
        self.timers = asyncio.Event()
        self.step = asyncio.Event()

    def started(self) -> None:
        """Note that the loops run from now on."""
        self.is_running = True

    def wake(self) -> None:
        """See to commits and loads in this loop turn, after something was done to the manager."""
        manager = self._manager
        if manager.has_to_commit():
            self.commit.set()
        if manager.context.loads:
            self.load.set()
        if manager.queues.removing or manager.context.awaiting_history:
            self.sweep.set()
        if manager.context.has_steps():
            self.step.set()
        if manager.context.timers.is_earlier:
            self.timers.set()
