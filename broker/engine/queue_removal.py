"""Deleting what a deleted queue left: its log, the records of its groups, the payloads only it held."""

from __future__ import annotations

from broker.engine.commit_loop import CommitLoop
from broker.engine.payload_references import SHARED_FLAG, PayloadReferences
from broker.engine.scan import scan_prefix
from config import limits
from queue_manager.log.removals import QueueRemoval
from queue_manager.manager import QueueManager
from storage.envelope import read_head
from storage.metadata_log import listing_key, log_key
from storage.records import (
    active,
    attempts,
    claim_state,
    claimed_bitmap,
    committed_epoch,
    done,
    epoch,
    expiry,
    failed,
    group_position,
    group_removal,
    identified,
    log_cursor,
    metadata,
    payload,
    producer,
    queue_account,
    scheduled,
    settlements,
    skipped_offsets,
    staged_rows,
    stream_chunk,
)
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
        manager = self._manager
        released = removal.released
        for scan in manager.context.metadata_log.scan_bounds(removal.log_id):
            start = scan.start
            while True:
                rows = await self._store.scan(start, scan.end, limit=limits.REMOVAL_ENTRIES_PER_STEP)
                for key, value in rows:
                    for message_id, envelope in metadata.decode(value):
                        flags, offset, _ = read_head(envelope)
                        if not (flags & SHARED_FLAG and removal.is_gone(offset)):
                            await self._release_payload(message_id, flags, released is not None)
                    manager.context.commit.delete(key)
                await self._commits.room_for_deletes()
                if len(rows) < limits.REMOVAL_ENTRIES_PER_STEP:
                    break
                start = rows[-1][0] + b"\x00"
        await self._remove_scheduled(removal)
        for record in (stream_chunk, identified, producer, expiry, queue_account):
            await self._remove_all(record.prefix(removal.name))
        await self._remove_staged(removal)
        failed_ids: set[int] = set()
        for storage_id in removal.storage_ids:
            await self._remove_group_records(removal, storage_id, failed_ids)
        for segment in manager.context.metadata_log.segments:
            listed = log_key(manager.context.metadata_log.instance_id, removal.log_id)
            manager.context.commit.delete(listing_key(segment.segment_id, listed))
        manager.queues.removed(removal)

    async def _remove_scheduled(self, removal: QueueRemoval) -> None:
        async for key, value in scan_prefix(
            self._store, scheduled.prefix(removal.name), limits.REMOVAL_ROWS_PER_STEP
        ):
            flags, _, _ = read_head(value)
            message_id = scheduled.parse_key(key).message_id
            # row and reference go in one commit: whatever row there is still counts
            await self._release_payload(message_id, flags, may_be_counted=True)
            self._manager.context.commit.delete(key)
            await self._commits.room_for_deletes()

    async def _remove_all(self, prefix: bytes) -> None:
        async for key, _ in scan_prefix(self._store, prefix, limits.REMOVAL_ROWS_PER_STEP):
            self._manager.context.commit.delete(key)
            await self._commits.room_for_deletes()

    async def _remove_staged(self, removal: QueueRemoval) -> None:
        manager = self._manager
        prefix = staged_rows.prefix(removal.name)
        async for key, value in scan_prefix(self._store, prefix, limits.REMOVAL_STAGED_ROWS_PER_STEP):
            for run in staged_rows.decode(value):
                manager.context.commit.delete_run(payload.key_run(run.first_id, len(run.bodies)))
            manager.context.commit.delete(key)
            await self._commits.room_for_deletes()
        for prefix in (epoch.prefix(removal.name), committed_epoch.prefix(removal.name)):
            await self._remove_all(prefix)

    async def _remove_group_records(
        self, removal: QueueRemoval, storage_id: str, failed_ids: set[int]
    ) -> None:
        commit = self._manager.context.commit
        commit.delete(claim_state.key(storage_id))
        commit.delete(group_position.key(storage_id))
        commit.delete(log_cursor.key(storage_id, removal.log_id))
        for record in (attempts, claimed_bitmap, queue_account, group_removal, skipped_offsets):
            await self._remove_all(record.prefix(storage_id))
        # failed messages, also those redriven since, outlive their log entries; several groups may hold one
        for prefix, read in (
            (active.prefix(storage_id), _active_messages),
            (done.prefix(storage_id), _settled_messages),
            (settlements.prefix(storage_id), _newly_settled_messages),
            (failed.prefix(storage_id), _settled_messages),
        ):
            async for key, value in scan_prefix(self._store, prefix, limits.REMOVAL_ENTRIES_PER_STEP):
                for message_id, metadata_bytes in read(value):
                    flags, offset, _ = read_head(metadata_bytes)
                    if removal.is_gone(offset) and message_id not in failed_ids:
                        failed_ids.add(message_id)
                        await self._release_payload(message_id, flags, removal.released is not None)
                self._manager.context.commit.delete(key)
                await self._commits.room_for_deletes()

    async def _release_payload(self, message_id: int, flags: int, may_be_counted: bool) -> None:
        if flags & SHARED_FLAG:
            if may_be_counted:
                await self._references.release(self._manager.context.commit, message_id)
        else:
            self._manager.context.commit.delete(payload.key(message_id))


def _active_messages(value: bytes) -> list[tuple[int, bytes]]:
    available, in_flight = active.decode(value)
    return [(row[0], row[3]) for row in available] + [(row[0], row[5]) for row in in_flight]


def _settled_messages(value: bytes) -> list[tuple[int, bytes]]:
    return [(message.message_id, message.metadata) for message in failed.decode(value)]


def _newly_settled_messages(value: bytes) -> list[tuple[int, bytes]]:
    return [(message.message_id, message.metadata) for message in settlements.decode(value).done]
