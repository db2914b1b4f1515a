"""Performing removals: whatever the manager wants found by scanning and deleted."""

from __future__ import annotations

from broker.engine.commit_loop import CommitLoop
from broker.engine.group_removal import GroupRemover
from broker.engine.log_trim import LogTrimmer
from broker.engine.payload_references import PayloadReferences
from broker.engine.queue_removal import QueueRemover
from broker.engine.stream_trim import StreamTrimmer
from queue_manager.log.removals import GroupRemoval, LogTrim, QueueRemoval, RangeRemoval, StreamTrim
from queue_manager.log.retention import HeadRemoval
from queue_manager.manager import QueueManager
from queue_manager.shard.context import Removal
from storage.errors import StorageError
from storage.store import Store


class Removals:
    """Gives each removal to what knows how to do it.

    The deletes go into open commits, a bounded number into each.
    """

    def __init__(
        self, store: Store, manager: QueueManager, commits: CommitLoop, references: PayloadReferences
    ) -> None:
        self._manager = manager
        self._commits = commits
        self._logs = LogTrimmer(store, manager, commits)
        self._streams = StreamTrimmer(store, manager, commits, references)
        self._groups = GroupRemover(store, manager, commits, references)
        self._queues = QueueRemover(store, manager, commits, references)

    async def perform(self, removal: Removal) -> None:
        """Do one removal to its end."""
        if isinstance(removal, RangeRemoval):
            await self._logs.release_range(removal)
        elif isinstance(removal, StreamTrim):
            await self._streams.trim(removal.log)
        elif isinstance(removal, HeadRemoval):
            await self._logs.trim(removal)
        elif isinstance(removal, GroupRemoval):
            await self._groups.remove(removal)
        elif isinstance(removal, QueueRemoval):
            await self._queues.remove(removal)

    async def perform_due(self) -> None:
        """Do what is to be removed now; what a StorageError keeps from being done stays to be done."""
        due = _distinct(self._manager.context.take_removals())
        try:
            # what is to be found by scanning must be in the store
            await self._commits.barrier()
            while due:
                await self.perform(due[0])
                due.pop(0)
        except StorageError:
            self._manager.context.removals = due + self._manager.context.removals
            raise


def _distinct(removals: list[Removal]) -> list[Removal]:
    """Return the last of several trims of one queue's log, which does the work of all."""
    last = {removal.log: removal for removal in removals if isinstance(removal, LogTrim)}
    return [r for r in removals if not isinstance(r, LogTrim) or last[r.log] is r]
