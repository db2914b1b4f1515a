"""Deleting what a deleted queue left: its log, the records of its groups, the payloads only it held."""

from __future__ import annotations

from broker.engine.deleting import Deleting
from broker.engine.log_steps import FittingSteps, scan_prefix
from queue_manager.log.removals import QueueRemoval
from queue_manager.queue.queue_record_types import LOG_TYPES, PLACE_TYPES
from queue_manager.shard.record_types import RecordType
from storage.envelope import SHARED, read_head
from storage.metadata_log import listing_key, log_key
from storage.records import (
    claim_state,
    group_position,
    log_cursor,
    metadata,
    payload,
    payload_keys,
    skipped_offsets,
)


async def remove_queue(at: Deleting, removal: QueueRemoval) -> None:
    """Do it to the end; a repetition finds what was left."""
    if not removal.is_untouched:
        await _remove_log(at, removal)
    manager = at.manager
    for storage_id in removal.storage_ids:
        commit = at.commit
        commit.delete(claim_state.key(storage_id))
        commit.delete(group_position.key(storage_id))
        commit.delete(log_cursor.key(storage_id, removal.log_id))
        if removal.is_untouched:
            commit.delete(skipped_offsets.key(storage_id))  # a reset of the empty queue
            continue
        for kind in PLACE_TYPES:
            await _remove_rows(at, removal, storage_id, kind)
    metadata_log = manager.context.metadata_log
    listed = log_key(metadata_log.instance_id, removal.log_id)
    for segment in metadata_log.segments:
        at.commit.delete(listing_key(segment.segment_id, listed))
    manager.queues.removing.end(removal)


async def _remove_log(at: Deleting, removal: QueueRemoval) -> None:
    """Delete the entries of the log with their payloads, and the records of its rules."""
    async for _, rows in at.entries(removal.log_id, 0, FittingSteps()):
        for key, value in rows:
            own: list[bytes] = []
            shared: list[int] = []
            for message_id, envelope in metadata.decode(value):
                flags, offset, _ = read_head(envelope)
                if not flags & SHARED:
                    own.append(payload.key(message_id))
                elif not removal.is_gone(offset):
                    shared.append(message_id)
            async with at.letting_go(own, shared) as commit:
                commit.delete(key)
        await at.commits.room_for_deletes()
    for kind in LOG_TYPES:
        await _remove_rows(at, removal, removal.name, kind)


async def _remove_rows(at: Deleting, removal: QueueRemoval, owner: str, kind: RecordType) -> None:
    """Delete the rows of one type; each with what goes with it in one commit."""
    async for row in scan_prefix(at.store, kind.record.prefix(owner), kind.rows_per_step):
        own: list[bytes] = []
        shared: list[int] = []
        let_go: list[int] = []
        for held in kind.held(row):
            if held.offset is not None:
                if not removal.is_gone(held.offset):
                    continue  # the log stood for it
                if held.is_shared:
                    if removal.is_let_go(held.first_id):
                        continue  # a record of another group did
                    let_go.append(held.first_id)
            if held.is_shared:
                shared.append(held.first_id)
            else:
                own += payload_keys(held.first_id, held.message_count)
        async with at.letting_go(own, shared) as commit:
            commit.delete(row[0])
            removal.note_let_go(let_go, commit)
        await at.commits.room_for_deletes()
