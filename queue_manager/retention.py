"""Letting go of what every group is done with: done records, payloads, log entries.

A payload is deleted once every group of its queue has released its offset; a payload that several queues
share has a reference count record, which the last of them deletes with it. The head of a queue's log is the
lowest offset not released.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from queue_manager.bucket import Run
from queue_manager.model import DONE
from queue_manager.ranges import RangeSet
from storage.envelope import read_head
from storage.layout import NUMBER_MASK
from storage.records import attempts, done, payload, payload_refs

if TYPE_CHECKING:
    from queue_manager.bucket import Bucket
    from queue_manager.group import Group
    from queue_manager.journal import Journal
    from queue_manager.queue import Queue

_SHARED_FLAG: Final = 0x10
_MESSAGE_ID: Final = struct.Struct("<Q").unpack_from
_ENVELOPE_AT: Final = 30
_ATTEMPTS: Final = struct.Struct("<H").unpack_from
_ATTEMPTS_AT: Final = 24


NO_BUCKET: Final = -1  # a purge that only releases payloads


class Purge:
    """A done record that goes at `due_ms`.

    `items` are runs of payloads of this queue alone, `shared_items` of those that other queues hold too,
    `attempt_ids` the messages with an attempts record. `bucket` is still in use: its record stays, without
    them.
    """

    __slots__ = ("attempt_ids", "bucket", "bucket_id", "due_ms", "group", "items", "shared_items")

    def __init__(self, group: Group, bucket_id: int, due_ms: int) -> None:
        self.group = group
        self.bucket_id = bucket_id
        self.due_ms = due_ms
        self.items: list[Run] = []
        self.shared_items: list[Run] = []
        self.attempt_ids: list[int] = []
        self.bucket: Bucket | None = None

    @classmethod
    def of_bucket(cls, group: Group, bucket: Bucket, due_ms: int) -> Purge:
        """The purge of a closed bucket."""
        if bucket.plain:
            purge = cls(group, bucket.bucket_id, due_ms)
            purge.items = bucket.runs
            return purge
        packed = [entry.packed for entry in bucket.entries if entry is not None and entry.state == DONE]
        return cls.of_packed(group, bucket.bucket_id, packed, due_ms)

    @classmethod
    def of_open_bucket(cls, group: Group, bucket: Bucket, retention_ms: int, now_ms: int) -> Purge | None:
        """What is due already in a bucket still in use, taken out of it; None if nothing is."""
        entries = bucket.entries
        due = [
            index
            for index, entry in enumerate(entries)
            if entry is not None
            and entry.state == DONE
            and entry.packed
            and entry.claimed_at_ms + retention_ms <= now_ms
        ]
        if not due:
            return None
        packed = []
        for index in due:
            entry = entries[index]
            assert entry is not None
            bucket.plain = False
            packed.append(entry.packed)
            entries[index] = None
        purge = cls.of_packed(group, bucket.bucket_id, packed, now_ms)
        purge.bucket = bucket
        return purge

    @classmethod
    def of_packed(cls, group: Group, bucket_id: int, packed: list[bytes], due_ms: int) -> Purge:
        """The purge of the elements of a done record."""
        purge = cls(group, bucket_id, due_ms)
        for element in packed:
            message_id: int = _MESSAGE_ID(element, 0)[0]
            flags, offset, _ = read_head(element[_ENVELOPE_AT : _ENVELOPE_AT + 18])
            add_to_runs(purge.shared_items if flags & _SHARED_FLAG else purge.items, offset, message_id)
            if _ATTEMPTS(element, _ATTEMPTS_AT)[0] > 1 or message_id in group.attempts_log:
                purge.attempt_ids.append(message_id)
        return purge

    def message_count(self) -> int:
        """How many messages it lets go of."""
        return sum(count for _, _, count in self.items) + sum(count for _, _, count in self.shared_items)

    def apply(self, journal: Journal, references: dict[int, int]) -> None:
        """Write the purge. `references` holds the stored counts of all `shared_items`; they are updated."""
        group = self.group
        storage_id = group.storage_id
        if self.bucket_id != NO_BUCKET:
            # as the bucket is now: more may have been done since the purge was taken
            # (or opened again, by a redrive)
            bucket = self.bucket or group.buckets.get(self.bucket_id & NUMBER_MASK)
            remaining = None if bucket is None else bucket.encode_settled(DONE)
            if remaining is None:
                journal.delete(done.key(storage_id, self.bucket_id))
            else:
                journal.put(done.key(storage_id, self.bucket_id), remaining)
        for message_id in self.attempt_ids:
            group.attempts_log.pop(message_id, None)
            journal.delete(attempts.key(storage_id, message_id))
        release_unshared(group, self.items, journal)
        release_shared(group, self.shared_items, journal, references)


def add_to_runs(runs: list[Run], offset: int, message_id: int) -> None:
    """Add one message to runs of consecutive offsets and IDs."""
    if runs:
        first_offset, first_id, count = runs[-1]
        if offset == first_offset + count and message_id == first_id + count:
            runs[-1] = (first_offset, first_id, count + 1)
            return
    runs.append((offset, message_id, 1))


def _deletable(group: Group, runs: list[Run]) -> list[Run]:
    """Of what `group` releases, what nobody else needs and nobody let go of before.

    All of it is remembered as released.
    """
    queue = group.queue
    if queue.groups.get(group.group_id) is not group:
        return runs  # purged when there was no group
    others = [other for other in queue.groups.values() if other is not group]
    deletable: list[Run] = []
    for run in runs:
        first_offset, first_id, count = run
        end = first_offset + count
        known = first_offset < queue.head_offset or queue.released.overlaps(first_offset, end)
        if not others and not known:
            queue.released.add(first_offset, end)
            deletable.append(run)
            continue
        if group.failed_offsets.starts and first_offset < queue.head_offset:
            _release_redriven(group, others, run, deletable)
        first_kept = max(first_offset, queue.head_offset)
        if others:
            group.released.add(first_kept, end)
        for offset in range(first_kept, end):
            if known and queue.released.contains(offset):
                continue
            if all(other.released.contains(offset) for other in others):
                queue.released.add(offset, offset + 1)
                if not any(other.failed_offsets.contains(offset) for other in others):
                    add_to_runs(deletable, offset, first_id + offset - first_offset)
    return deletable


def _release_redriven(group: Group, others: list[Group], run: Run, deletable: list[Run]) -> None:
    """The part of `run` below the head: redriven messages, which only failed records or this group kept."""
    first_offset, first_id, count = run
    for offset in range(first_offset, min(first_offset + count, group.queue.head_offset)):
        if group.failed_offsets.contains(offset):
            group.failed_offsets.discard(offset, offset + 1)
            if not any(other.failed_offsets.contains(offset) for other in others):
                add_to_runs(deletable, offset, first_id + offset - first_offset)


def release_unshared(group: Group, runs: list[Run], journal: Journal) -> None:
    """Delete payloads that only this queue holds, as far as no other group of it needs them."""
    for _, first_id, count in _deletable(group, runs):
        journal.delete_run(payload.key_run(first_id, count))
    group.queue.manager.trimmable[group.queue] = None


def release_shared(group: Group, runs: list[Run], journal: Journal, references: dict[int, int]) -> None:
    """Take back this queue's references to payloads; the last reference takes the payload with it."""
    for _, first_id, count in _deletable(group, runs):
        for message_id in range(first_id, first_id + count):
            left = references.get(message_id, 1) - 1
            references[message_id] = left
            if left > 0:
                journal.put(payload_refs.key(message_id), payload_refs.encode(left))
            else:
                journal.delete(payload_refs.key(message_id))
                journal.delete(payload.key(message_id))
    group.queue.manager.trimmable[group.queue] = None


def release_gone(group: Group, start: int, end: int) -> None:
    """The offsets `start` to `end` have no payload any more: `group` will never ask for them."""
    queue = group.queue
    start = max(start, queue.head_offset)
    if start >= end or queue.deleted or group.removed:
        return
    others = [other for other in queue.groups.values() if other is not group]
    if others:
        group.released.add(start, end)
        gone = RangeSet()
        gone.add(start, end)
        for other in others:
            gone = gone.intersection(other.released)
        queue.released.add_all(gone)
    else:
        queue.released.add(start, end)
    queue.manager.trimmable[queue] = None


def advance_head(queue: Queue) -> bool:
    """Move the queue's head past what is released; whether it moved."""
    floor = queue.released.floor_from(queue.head_offset)
    if floor == queue.head_offset:
        return False
    queue.head_offset = floor
    queue.released.drop_before(floor)
    for group in queue.groups.values():
        group.released.drop_before(floor)
        if group.position < floor:
            group.skip_to(floor)
    return True
