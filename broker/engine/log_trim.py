"""Going through a queue's log to delete: below its head, and stretches that a group was purged of."""

from __future__ import annotations

from broker.engine.deleting import Deleting
from broker.engine.log_steps import FittingSteps
from queue_manager.log.members import is_failed
from queue_manager.log.removals import RangeRemoval
from queue_manager.log.retention import HeadRemoval
from storage.envelope import HAS_EXPIRES_AT, SHARED, decode_envelope, expires_at_ms, read_head
from storage.metadata_log import ScanRange
from storage.records import expiry, metadata, payload


async def release_range(at: Deleting, removal: RangeRemoval) -> None:
    """Find the messages a group was purged of."""
    log = removal.log
    async for _, rows in at.entries(log.log_id, removal.sequence, FittingSteps()):
        if log.deleted:
            return
        found = []
        offset = 0
        for _, value in rows:
            for message_id, envelope in metadata.decode(value):
                flags, offset, _ = read_head(envelope)
                if removal.start <= offset < removal.end:
                    found.append((offset, message_id, bool(flags & SHARED)))
        removal.found(found)
        await at.commits.room_for_deletes()
        if offset + 1 >= removal.end:
            return


async def trim_log(at: Deleting, removal: HeadRemoval) -> None:
    """Delete the log entries wholly below the head, and write the head down with the same commit."""
    retention = removal.retention
    log = removal.log
    head = retention.removals.lowest_free(retention.log.head_offset)
    async for scan, rows in at.entries(log.log_id, log.head_sequence, FittingSteps()):
        if log.deleted:
            return
        if _trim_rows(at, removal, scan, rows, head):
            retention.head_written(head)
            return
        await at.commits.room_for_deletes()
    if not log.deleted:
        retention.head_written(head)
        retention.head_trimmed(head)


def _trim_rows(
    at: Deleting, removal: HeadRemoval, scan: ScanRange, rows: list[tuple[bytes, bytes]], head: int
) -> bool:
    """Trim these entries; whether the head was reached."""
    log = removal.log
    retention = removal.retention
    commit = at.commit
    for key, value in rows:
        messages = metadata.decode(value)
        last_offset = read_head(messages[-1][1])[1]
        log.begin_reading_at(scan.sequence(key))
        if last_offset >= head:
            retention.head_trimmed(head)
            return True
        commit.delete(key)
        for _, envelope in messages:
            if envelope[1] & HAS_EXPIRES_AT:
                offset, received_at_ms, template = decode_envelope(envelope)
                commit.delete(expiry.key(log.name, expires_at_ms(template, received_at_ms), offset))
        if last_offset < log.recovered_end:
            # a crash between releasing and deleting may have left payloads behind
            for message_id, envelope in messages:
                flags, offset, _ = read_head(envelope)
                if not flags & SHARED and not is_failed(offset, retention.members):
                    commit.delete(payload.key(message_id))
    retention.head_trimmed(head)
    return False
