"""The done and failed records of recovered groups: read in the background, as only retention needs them."""

from __future__ import annotations

import asyncio

from broker.clock import Clock
from broker.engine.recovery.done import recover_done
from broker.engine.shard_ending import Ending, resolve
from queue_manager.cursor.cursor import Cursor
from queue_manager.log.range_set import RangeSet
from queue_manager.manager import QueueManager
from storage.store import Store


class DoneRecords:
    """Learns once after a start what groups did before it; nothing is purged until then.

    `taken` is what each recovered group had taken, as `recovery.start.recover` gives it.
    """

    def __init__(
        self, store: Store, manager: QueueManager, clock: Clock, ending: Ending, taken: dict[Cursor, RangeSet]
    ) -> None:
        self._store = store
        self._manager = manager
        self._clock = clock
        self._ending = ending
        self._taken = taken
        self._waiting: list[asyncio.Future[None]] = []
        self.are_known = False

    async def learn(self) -> None:
        """Read the records, if that has not been done."""
        if self.are_known:
            return
        manager = self._manager
        await recover_done(self._store, manager, self._taken)
        self._taken = {}
        self.are_known = True
        for future in self._waiting:
            resolve(future)
        manager.history_known(self._clock.now_ms())

    def known(self) -> asyncio.Future[None]:
        """Return what to wait for until `learn` was called."""
        known = self._ending.future()
        if self.are_known:
            resolve(known)
        else:
            self._waiting.append(known)
        return known
