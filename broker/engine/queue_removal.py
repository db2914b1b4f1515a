"""Deleting what a deleted queue left: its log, the records of its groups, the payloads only it held."""

from __future__ import annotations

from broker.engine.commit_loop import CommitLoop
from broker.engine.payload_references import PayloadReferences
from broker.engine.scan import LogSteps, scan_prefix
from queue_manager.log.removals import QueueRemoval
from queue_manager.manager import QueueManager
from queue_manager.queue.records import LOG_TYPES, PLACE_TYPES
from queue_manager.shard.record_types import HeldPayloads, RecordType
from storage.envelope import SHARED, read_head
from storage.metadata_log import listing_key, log_key
from storage.records import claim_state, group_position, log_cursor, metadata, payload, skipped_offsets
from storage.store import Store


class QueueRemover:
    """Removes deleted queues."""

    def __init__(
        self, store: Store, manager: QueueManager, commits: CommitLoop, references: PayloadReferences
    ) -> None:
        self._store = store
        self._manager = manager
        self._commits = commits
        self._references = references

    async def remove(self, removal: QueueRemoval) -> None:
        """Do it to the end; a repetition finds what was left."""
        if not removal.is_untouched:
            await self._remove_log(removal)
        manager = self._manager
        for storage_id in removal.storage_ids:
            commit = manager.context.commit
            commit.delete(claim_state.key(storage_id))
            commit.delete(group_position.key(storage_id))
            commit.delete(log_cursor.key(storage_id, removal.log_id))
            if removal.is_untouched:
                commit.delete(skipped_offsets.key(storage_id))  # a reset of the empty queue
                continue
            for kind in PLACE_TYPES:
                await self._remove_rows(removal, storage_id, kind)
        for segment in manager.context.metadata_log.segments:
            listed = log_key(manager.context.metadata_log.instance_id, removal.log_id)
            manager.context.commit.delete(listing_key(segment.segment_id, listed))
        manager.queues.removing.end(removal)

    async def _remove_log(self, removal: QueueRemoval) -> None:
        """Delete the entries of the log with their payloads, and the records of its rules."""
        manager = self._manager
        for scan in manager.context.metadata_log.scan_bounds(removal.log_id):
            start = scan.start
            steps = LogSteps()
            while True:
                asked = steps.entry_count
                rows = await self._store.scan(start, scan.end, limit=asked)
                steps.read(rows)
                for key, value in rows:
                    own: list[int] = []
                    for message_id, envelope in metadata.decode(value):
                        flags, offset, _ = read_head(envelope)
                        if not flags & SHARED:
                            own.append(message_id)
                        elif not removal.is_gone(offset):
                            held = HeldPayloads(message_id, 1, is_shared=True, offset=offset)
                            await self._release(held, may_be_counted=removal.released is not None)
                    commit = manager.context.commit
                    commit.delete_run([*map(payload.key, own)])
                    commit.delete(key)
                await self._commits.room_for_deletes()
                if len(rows) < asked:
                    break
                start = rows[-1][0] + b"\x00"
        for kind in LOG_TYPES:
            await self._remove_rows(removal, removal.name, kind)

    async def _remove_rows(self, removal: QueueRemoval, owner: str, kind: RecordType) -> None:
        """Delete the rows of one type; each with what goes with it in one commit."""
        async for row in scan_prefix(self._store, kind.prefix(owner), kind.rows_per_step):
            for held in kind.held(row):
                if held.offset is None:
                    await self._release(held, may_be_counted=True)
                # of several groups each may have the message
                elif removal.is_gone(held.offset) and removal.releases_now(held.first_id):
                    await self._release(held, may_be_counted=removal.released is not None)
            self._manager.context.commit.delete(row[0])
            await self._commits.room_for_deletes()

    async def _release(self, held: HeldPayloads, *, may_be_counted: bool) -> None:
        commit = self._manager.context.commit
        if not held.is_shared:
            commit.delete_run(payload.key_run(held.first_id, held.message_count))
        elif may_be_counted:
            await self._references.release(commit, held.first_id)
