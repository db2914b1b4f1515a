"""Performing removals: whatever the manager wants found by scanning and deleted."""

from __future__ import annotations

from broker.engine.commit_loop import CommitLoop
from broker.engine.deleting import Deleting
from broker.engine.group_removal import remove_group
from broker.engine.log_trim import release_range, trim_log
from broker.engine.payload_references import PayloadReferences
from broker.engine.queue_removal import remove_queue
from broker.engine.stream_trim import trim_stream
from queue_manager.log.removals import GroupRemoval, LogTrim, QueueRemoval, RangeRemoval, StreamTrim
from queue_manager.log.retention import HeadRemoval
from queue_manager.manager import QueueManager
from queue_manager.shard.context import Removal
from storage.errors import StorageError
from storage.store import Store


class Removals:
    """Performs removals, with open commits that take a bounded number of deletes each."""

    def __init__(
        self, store: Store, manager: QueueManager, commits: CommitLoop, references: PayloadReferences
    ) -> None:
        self._at = Deleting(store, manager, commits, references)
        self._context = manager.context
        self._commits = commits

    async def perform(self, removal: Removal) -> None:
        """Do one removal to its end."""
        if isinstance(removal, RangeRemoval):
            await release_range(self._at, removal)
        elif isinstance(removal, StreamTrim):
            await trim_stream(self._at, removal.log)
        elif isinstance(removal, HeadRemoval):
            await trim_log(self._at, removal)
        elif isinstance(removal, GroupRemoval):
            await remove_group(self._at, removal)
        elif isinstance(removal, QueueRemoval):
            await remove_queue(self._at, removal)

    async def perform_due(self) -> None:
        """Do what is to be removed now; what a StorageError keeps from being done stays to be done."""
        due = _distinct(self._context.take_removals())
        try:
            # what is to be found by scanning must be in the store
            await self._commits.barrier()
            while due:
                await self.perform(due[0])
                due.pop(0)
        except StorageError:
            self._context.give_back_removals(due)
            raise


def _distinct(removals: list[Removal]) -> list[Removal]:
    """Return the last of several trims of one queue's log, which does the work of all."""
    last = {removal.log: removal for removal in removals if isinstance(removal, LogTrim)}
    return [r for r in removals if not isinstance(r, LogTrim) or last[r.log] is r]
