"""Performing the manager's loads."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from broker.clock import Clock
from broker.engine.log_reader import LogReader
from broker.engine.recovery.log_ends import recover_done
from broker.engine.shard_ending import Ending, resolve
from broker.engine.store_retry import StoreRetry
from broker.engine.stream_reader import StreamBlockReader
from broker.engine.wakeups import Wakeups
from queue_manager.cursor.cursor import Cursor
from queue_manager.log.range_set import RangeSet
from queue_manager.manager import QueueManager
from queue_manager.shard.loads import BodiesLoad, Load, LogRows, ScanLoad, StreamLoad
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


@dataclass(eq=False, repr=False)
class Loader:
    """Reads what the manager asks for, one load after the other, and brings it back."""

    _store: Store
    _manager: QueueManager
    _clock: Clock
    _wakeups: Wakeups
    _retry: StoreRetry
    _reader: LogReader
    _done_records: DoneRecords
    _stream_reader: StreamBlockReader = field(init=False)

    def __post_init__(self) -> None:
        self._stream_reader = StreamBlockReader(self._store, self._manager.context.metadata_log, self._reader)

    async def run(self) -> None:
        """Load whenever there is something to be loaded."""
        wake = self._wakeups.load
        while True:
            await wake.wait()
            wake.clear()
            await self._retry.take(self.load_once)

    async def load_once(self) -> bool:
        """Perform the loads that are asked for, until there are none; returns whether there were any."""
        manager = self._manager
        performed = False
        if manager.context.awaiting_history and not self._wakeups.is_running:  # otherwise the sweep does it
            await self._done_records.learn()
            performed = True
        while manager.context.loads:
            await self._perform(manager.context.loads[0])
            performed = True
            self._wakeups.wake()
        return performed

    async def _perform(self, load: Load) -> None:
        """Perform the first load; it leaves the list once it was read."""
        loads = self._manager.context.loads
        if isinstance(load, ScanLoad):
            found = await self._store.scan(load.start, load.end, limit=load.limit, reverse=load.reverse)
            loads.pop(0)
            load.then(found, self._clock.now_ms())
        elif isinstance(load, BodiesLoad):
            bodies, read_count = await self._reader.read_payloads(load.message_ids)
            loads.pop(0)
            load.then(bodies, read_count, self._clock.now_ms())
        elif load.target.is_over():
            loads.pop(0)
            load.target.abandon(self._clock.now_ms())
        else:
            if isinstance(load, StreamLoad):
                read = LogRows(load, *await self._stream_reader.read(load))
            else:
                read = LogRows(load, *await self._reader.read_log(load))
            loads.pop(0)
            load.target.log_loaded(read, self._clock.now_ms())
        self._manager.dispatch(self._clock.now_ms())
