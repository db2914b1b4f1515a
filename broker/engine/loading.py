"""Performing the manager's loads."""

from __future__ import annotations

from broker.clock import Clock
from broker.engine.done_records import DoneRecords
from broker.engine.log_reader import LogReader
from broker.engine.store_retry import StoreRetry
from broker.engine.stream_reader import StreamBlockReader
from broker.engine.wakeups import Wakeups
from queue_manager.manager import QueueManager
from queue_manager.shard.loads import BodiesLoad, Load, LogRows, ScanLoad, StreamLoad
from storage.store import Store


class Loader:
    """Reads what the manager asks for, one load after the other, and brings it back."""

    def __init__(
        self,
        store: Store,
        manager: QueueManager,
        clock: Clock,
        wakeups: Wakeups,
        retry: StoreRetry,
        reader: LogReader,
        done_records: DoneRecords,
    ) -> None:
        self._store = store
        self._manager = manager
        self._clock = clock
        self._wakeups = wakeups
        self._retry = retry
        self._reader = reader
        self._stream_reader = StreamBlockReader(store, manager.context.metadata_log, reader)
        self._done_records = done_records

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
