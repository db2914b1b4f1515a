"""Writing what changed in a group: its buckets, claim counter and place in the log, in one commit.

Rate-limited by `limits.STATE_FLUSH_INTERVAL_MS`: a busy group's claim that is settled before the next
writing never touches an active record. What a crash loses thereby is delivered again, never lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from config import limits
from queue_manager.bucket import Bucket, Run
from queue_manager.model import DONE, FAILED, STALE, Entry
from queue_manager.policy import FOREVER
from queue_manager.retention import Purge, add_to_runs, release_unshared
from storage.records import active, attempts, claim_state, done, failed, group_position, log_cursor

if TYPE_CHECKING:
    from queue_manager.group import Group
    from queue_manager.journal import Journal


def flush(group: Group, journal: Journal, now_ms: int) -> None:
    """Put everything of `group` that changed since the last call into `journal`."""
    queue = group.queue
    keep_done = queue.policy.done_retention_ms != 0
    for bucket in group.dirty_buckets:
        bucket.dirty = False
        _flush_bucket(group, bucket, journal, now_ms, keep_done)
    group.dirty_buckets = []
    for message_id in group.attempts_dirty:
        history = group.attempts_log.get(message_id)
        if history:
            journal.put(attempts.key(group.storage_id, message_id), attempts.encode(history))
    group.attempts_dirty.clear()
    if len(group.attempts_log) > limits.ATTEMPTS_LOGS_PER_GROUP_MAX:
        drop_attempts_of_settled(group)
    group.advance_cursor()
    storage_id = group.storage_id
    journal.put(log_cursor.key(storage_id, queue.log_id), log_cursor.encode(group.cursor_sequence))
    journal.put(claim_state.key(storage_id), claim_state.encode(queue.policy.bucket_size, group.next_claim))
    journal.put(group_position.key(storage_id), group_position.encode(group.position))
    if queue.keeper is not None:
        queue.keeper.group_written(group, journal)
    group.dirty = False
    group.flushed_at_ms = now_ms
    if group.selection is not None:
        group.selection.flush(storage_id, journal)


def _flush_bucket(group: Group, bucket: Bucket, journal: Journal, now_ms: int, keep_done: bool) -> None:
    bucket_id = bucket.bucket_id
    storage_id = group.storage_id
    value = bucket.encode_active()
    if value is not None:
        journal.put(active.key(storage_id, bucket_id), value)
        bucket.active_written = True
    elif bucket.active_written:
        journal.delete(active.key(storage_id, bucket_id))
        bucket.active_written = False
    if not keep_done:
        _release_now(group, bucket, journal)
    value = bucket.encode_settled(DONE)
    if value is not None:
        journal.put(done.key(storage_id, bucket_id), value)
        bucket.done_written = True
        group.mark_purgeable()
    if group.failed_count or bucket.failed_written:
        value = bucket.encode_settled(FAILED)
        if value is not None:
            journal.put(failed.key(storage_id, bucket_id), value)
            bucket.failed_written = True
        elif bucket.failed_written:
            journal.delete(failed.key(storage_id, bucket_id))
            bucket.failed_written = False
    if bucket.is_closed():
        del group.buckets[bucket.first]
        schedule_purge(group, bucket, now_ms)


def _release_now(group: Group, bucket: Bucket, journal: Journal) -> None:
    """With `done_retention: 0`: let go of what is done without ever writing a done record.

    Payloads shared with other queues need their reference count read first, so they take the long way.
    """
    runs: list[Run] = []
    entries = bucket.entries
    for index, entry in enumerate(entries):
        if (
            entry is not None
            and entry.state == DONE
            and not entry.packed
            and not entry.message.template.shared
        ):
            message = entry.message
            add_to_runs(runs, message.offset, message.message_id)
            forget_attempts(group, entry, journal)
            entries[index] = None
    if runs:
        bucket.plain = False
        release_unshared(group, runs, journal)


def forget_attempts(group: Group, entry: Entry, journal: Journal) -> None:
    """Delete the attempts record of a message that is gone, if it had one."""
    message_id = entry.message.message_id
    if group.attempts_log.pop(message_id, None) is not None or entry.attempts > 1:
        group.attempts_dirty.discard(message_id)
        journal.delete(attempts.key(group.storage_id, message_id))


def schedule_purge(group: Group, bucket: Bucket, now_ms: int) -> None:
    """Have the done record of a bucket purged when its retention has passed."""
    retention_ms = group.queue.policy.done_retention_ms
    if retention_ms == FOREVER or not bucket.done_written:
        return
    group.purges.append(Purge.of_bucket(group, bucket, now_ms + retention_ms))
    group.mark_purgeable()


def drop_attempts_of_settled(group: Group) -> None:
    """Keep in memory only the attempt histories of what is still active; the records stay."""
    active_ids = {
        entry.message.message_id
        for bucket in group.buckets.values()
        for entry in bucket.entries
        if entry is not None and entry.state not in (DONE, STALE)
    }
    for message_id in [m for m in group.attempts_log if m not in active_ids]:
        del group.attempts_log[message_id]
