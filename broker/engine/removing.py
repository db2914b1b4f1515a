"""Performing removals: whatever the manager wants found by scanning and deleted."""

from __future__ import annotations

from typing import Final

from broker.engine.commit_loop import CommitLoop
from broker.engine.deleting import Deleting
from broker.engine.group_removal import remove_group
from broker.engine.log_steps import Steps
from broker.engine.log_trim import release_range, trim_log
from broker.engine.payload_references import PayloadReferences, drop_reference
from broker.engine.queue_removal import remove_queue
from queue_manager.log.payloads import Run, add_to_runs
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.removals import GroupRemoval, LogTrim, QueueRemoval, RangeRemoval, StreamTrim
from queue_manager.log.retention import HeadRemoval
from queue_manager.manager import QueueManager
from queue_manager.shard.context import Removal
from storage.envelope import SHARED, read_head
from storage.errors import StorageError
from storage.records import metadata, payload_keys, queue_meta, stream_chunk
from storage.store import Store

ENTRIES_PER_STEP: Final = 16
CHUNKS_PER_STEP: Final = 500


async def trim_stream(at: Deleting, stream: QueueLog) -> None:
    """Delete what lies wholly below the head, each log entry in one commit with its payloads."""
    head = stream.head_offset
    async for scan, rows in at.entries(stream.log_id, stream.head_sequence, Steps(ENTRIES_PER_STEP)):
        if stream.deleted:
            return
        for key, value in rows:
            messages = metadata.decode(value)
            if read_head(messages[-1][1])[1] >= head:
                stream.begin_reading_at(scan.sequence(key))
                await _finish(at, stream, head)
                return
            await _delete_entry(at, stream, key, messages)
            stream.begin_reading_at(scan.sequence(key))
            await at.commits.room_for_deletes()
    await _finish(at, stream, head)


async def _delete_entry(
    at: Deleting, stream: QueueLog, key: bytes, messages: list[tuple[int, bytes]]
) -> None:
    runs: list[Run] = []
    shared: list[int] = []
    for message_id, envelope in messages:
        flags, offset, _ = read_head(envelope)
        if flags & SHARED:
            shared.append(message_id)
        else:
            add_to_runs(runs, offset, message_id)
    async with at.references.counted(shared) as counts:
        if stream.deleted:
            return  # its removal finds the entry, and lets go of the payloads
        commit = at.commit
        commit.delete(key)
        for _, first_id, count in runs:
            commit.delete_run(payload_keys(first_id, count))
        for message_id, count in counts.items():
            drop_reference(commit, message_id, count)


async def _finish(at: Deleting, stream: QueueLog, head: int) -> None:
    """Delete the records of chunks below `head`, and write down where the log begins."""
    start = stream_chunk.prefix(stream.name)
    end = stream_chunk.key(stream.name, head)
    while rows := await at.store.scan(start, end, limit=CHUNKS_PER_STEP):
        if stream.deleted:
            return
        for key, _ in rows:
            at.commit.delete(key)
        start = rows[-1][0] + b"\x00"
    if not stream.deleted:
        where = queue_meta.encode(stream.head_offset, stream.head_sequence)
        at.commit.put(queue_meta.key(stream.name), where)


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

    async def perform_due(self, *, with_trims: bool = True) -> bool:
        """Do what is to be removed now, but for logs that are to be trimmed if not `with_trims`; return
        whether there was anything. What a StorageError keeps from being done stays to be done.
        """
        due = _distinct(self._context.take_removals())
        if not with_trims:
            self._context.give_back_removals([removal for removal in due if isinstance(removal, LogTrim)])
            due = [removal for removal in due if not isinstance(removal, LogTrim)]
        if not due:
            return False
        try:
            # what is to be found by scanning must be in the store
            await self._commits.barrier()
            while due:
                await self.perform(due[0])
                due.pop(0)
        except StorageError:
            self._context.give_back_removals(due)
            raise
        return True


def _distinct(removals: list[Removal]) -> list[Removal]:
    """Return the last of several trims of one queue's log, which does the work of all."""
    last = {removal.log: removal for removal in removals if isinstance(removal, LogTrim)}
    return [r for r in removals if not isinstance(r, LogTrim) or last[r.log] is r]
