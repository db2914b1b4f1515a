"""Deleting by scanning: what a deleted queue left, a purged stretch, the log below a queue's head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker import streams
from broker.group_removals import remove_group
from broker.recovery import scan_prefix
from config import limits
from queue_manager.group_removal import GroupRemoval, trim_limit
from queue_manager.queue import Queue
from queue_manager.removal import HeadRemoval, QueueRemoval, RangeRemoval, Removal, StreamTrim
from storage.envelope import HAS_EXPIRES_AT, decode_envelope, read_head
from storage.metadata_log import ScanRange, listing_key, log_key
from storage.records import (
    active,
    attempts,
    claim_state,
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
    passed,
    payload,
    payload_refs,
    producer,
    queue_account,
    scheduled,
    staged_rows,
    taken_ahead,
)

if TYPE_CHECKING:
    from broker.shard import Shard

SHARED_FLAG: Final = 0x10


async def perform(shard: Shard, removal: Removal) -> None:
    """Do one removal. Its deletes go into open commits, a bounded number into each."""
    if isinstance(removal, RangeRemoval):
        await _release_range(shard, removal)
    elif isinstance(removal, StreamTrim):
        await streams.trim(shard, removal.queue)
    elif isinstance(removal, HeadRemoval):
        await _trim_log(shard, removal.queue)
    elif isinstance(removal, GroupRemoval):
        await remove_group(shard, removal)
    else:
        await _remove_queue(shard, removal)


async def _release_range(shard: Shard, removal: RangeRemoval) -> None:
    queue = removal.group.queue
    for scan in shard.manager.log.scan_bounds(queue.log_id, removal.sequence):
        start = scan.start
        while not queue.deleted:
            rows = await shard.store.scan(start, scan.end, limit=limits.REMOVAL_ENTRIES_PER_STEP)
            if not rows:
                break
            found = []
            offset = 0
            for _, value in rows:
                for message_id, envelope in metadata.decode(value):
                    flags, offset, _ = read_head(envelope)
                    if removal.start <= offset < removal.end:
                        found.append((offset, message_id, bool(flags & SHARED_FLAG)))
            shard.manager.release_range(removal, found)
            await shard.commit_room()
            if offset + 1 >= removal.end:
                return
            start = rows[-1][0] + b"\x00"


async def _trim_log(shard: Shard, queue: Queue) -> None:
    """Delete the log entries wholly below the head, and write the head down with the same commit."""
    manager = shard.manager
    head = trim_limit(queue)
    for scan in manager.log.scan_bounds(queue.log_id, queue.head_sequence):
        start = scan.start
        while not queue.deleted:
            rows = await shard.store.scan(start, scan.end, limit=limits.REMOVAL_ENTRIES_PER_STEP)
            if not rows:
                break
            if _trim_rows(shard, queue, scan, rows, head):
                if queue.keeper is not None:
                    queue.keeper.head_written(head)
                return
            await shard.commit_room()
            start = rows[-1][0] + b"\x00"
    if not queue.deleted:
        if queue.keeper is not None:
            queue.keeper.head_written(head)
        manager.head_trimmed(queue, head)


def _trim_rows(
    shard: Shard, queue: Queue, scan: ScanRange, rows: list[tuple[bytes, bytes]], head: int
) -> bool:
    """Trim these entries; whether the head was reached."""
    journal = shard.manager.journal
    for key, value in rows:
        messages = metadata.decode(value)
        last_offset = read_head(messages[-1][1])[1]
        queue.head_sequence = max(queue.head_sequence, scan.sequence(key))
        if last_offset >= head:
            shard.manager.head_trimmed(queue, head)
            return True
        journal.delete(key)
        for _, envelope in messages:
            if envelope[1] & HAS_EXPIRES_AT:
                found = decode_envelope(envelope)
                journal.delete(expiry.key(queue.name, found.expiry_ms, found.offset))
        if last_offset < queue.recovered_end:
            # a crash between releasing and deleting may have left payloads behind
            for message_id, envelope in messages:
                flags, offset, _ = read_head(envelope)
                if not flags & SHARED_FLAG and not queue.has_failed(offset):
                    journal.delete(payload.key(message_id))
    shard.manager.head_trimmed(queue, head)
    return False


async def _remove_queue(shard: Shard, removal: QueueRemoval) -> None:
    manager = shard.manager
    released = removal.released
    for scan in manager.log.scan_bounds(removal.log_id):
        start = scan.start
        while True:
            rows = await shard.store.scan(start, scan.end, limit=limits.REMOVAL_ENTRIES_PER_STEP)
            for key, value in rows:
                for message_id, envelope in metadata.decode(value):
                    flags, offset, _ = read_head(envelope)
                    if not (flags & SHARED_FLAG and removal.is_gone(offset)):
                        await _release_payload(shard, message_id, flags, released is not None)
                manager.journal.delete(key)
            await shard.commit_room()
            if len(rows) < limits.REMOVAL_ENTRIES_PER_STEP:
                break
            start = rows[-1][0] + b"\x00"
    await _remove_scheduled(shard, removal)
    await streams.remove_chunks(shard, removal.name)
    for record in (identified, producer, expiry, queue_account):
        await _remove_all(shard, record.prefix(removal.name))
    await _remove_staged(shard, removal)
    failed_ids: set[int] = set()
    for storage_id in removal.storage_ids:
        await _remove_group_records(shard, removal, storage_id, failed_ids)
    for segment in manager.log.segments:
        listed = log_key(manager.log.instance_id, removal.log_id)
        manager.journal.delete(listing_key(segment.segment_id, listed))
    manager.removed(removal)


async def _remove_scheduled(shard: Shard, removal: QueueRemoval) -> None:
    async for key, value in scan_prefix(
        shard.store, scheduled.prefix(removal.name), limits.REMOVAL_ROWS_PER_STEP
    ):
        flags, _, _ = read_head(value)
        message_id = scheduled.parse_key(key).message_id
        # row and reference go in one commit: whatever row there is still counts
        await _release_payload(shard, message_id, flags, may_be_counted=True)
        shard.manager.journal.delete(key)
        await shard.commit_room()


async def _remove_all(shard: Shard, prefix: bytes) -> None:
    async for key, _ in scan_prefix(shard.store, prefix, limits.REMOVAL_ROWS_PER_STEP):
        shard.manager.journal.delete(key)
        await shard.commit_room()


async def _remove_staged(shard: Shard, removal: QueueRemoval) -> None:
    manager = shard.manager
    prefix = staged_rows.prefix(removal.name)
    async for key, value in scan_prefix(shard.store, prefix, limits.REMOVAL_STAGED_ROWS_PER_STEP):
        for run in staged_rows.decode(value):
            manager.journal.delete_run(payload.key_run(run.first_id, len(run.bodies)))
        manager.journal.delete(key)
        await shard.commit_room()
    for prefix in (epoch.prefix(removal.name), committed_epoch.prefix(removal.name)):
        await _remove_all(shard, prefix)


async def _remove_group_records(
    shard: Shard, removal: QueueRemoval, storage_id: str, failed_ids: set[int]
) -> None:
    journal = shard.manager.journal
    journal.delete(claim_state.key(storage_id))
    journal.delete(group_position.key(storage_id))
    journal.delete(log_cursor.key(storage_id, removal.log_id))
    for record in (attempts, taken_ahead, queue_account, group_removal, passed):
        await _remove_all(shard, record.prefix(storage_id))
    # failed messages, also those redriven since, outlive their log entries; several groups may hold one
    for prefix, read in (
        (active.prefix(storage_id), _active_messages),
        (done.prefix(storage_id), _settled_messages),
        (failed.prefix(storage_id), _settled_messages),
    ):
        async for key, value in scan_prefix(shard.store, prefix, limits.REMOVAL_ENTRIES_PER_STEP):
            for message_id, metadata_bytes in read(value):
                flags, offset, _ = read_head(metadata_bytes)
                if removal.is_gone(offset) and message_id not in failed_ids:
                    failed_ids.add(message_id)
                    await _release_payload(shard, message_id, flags, removal.released is not None)
            shard.manager.journal.delete(key)
            await shard.commit_room()


def _active_messages(value: bytes) -> list[tuple[int, bytes]]:
    available, in_flight = active.decode(value)
    return [(row[0], row[3]) for row in available] + [(row[0], row[5]) for row in in_flight]


def _settled_messages(value: bytes) -> list[tuple[int, bytes]]:
    return [(message.message_id, message.metadata) for message in failed.decode(value)]


async def _release_payload(shard: Shard, message_id: int, flags: int, may_be_counted: bool) -> None:
    if flags & SHARED_FLAG:
        if not may_be_counted:
            return
        left = await shard.references(message_id) - 1
        if left > 0:
            shard.manager.journal.put(payload_refs.key(message_id), payload_refs.encode(left))
            return
        shard.manager.journal.delete(payload_refs.key(message_id))
    shard.manager.journal.delete(payload.key(message_id))
