"""The newest entry of every filter log.

Looking one up opens every table of the store, which takes a millisecond and more: far longer than reading
some hundred small entries in order. So the entries are read in order, and only a log that fills a whole
part is left at that point and looked up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator

from broker.engine.log_steps import last_rows, scan_prefix
from config import limits
from queue_manager.claims.purge import Purge
from queue_manager.cursor.cursor import Cursor
from queue_manager.log.range_set import RangeSet
from queue_manager.manager import QueueManager
from queue_manager.recovery.buckets import purge_of_record, restore_failed
from queue_manager.recovery.queues import restore_released
from storage import layout
from storage.encoding import prefix_end
from storage.records import done, failed, filter_log_entry
from storage.records.filter_log_entries import EntryHead, decode_entry_head
from storage.store import Store


async def read_log_ends(store: Store) -> dict[int, EntryHead]:
    """Read what stands before the messages of each log's newest entry; logs without entries are not there."""
    ends: dict[int, EntryHead] = {}
    long_logs: list[int] = []
    async for part in _parts(store, long_logs):
        position = 0
        while position < len(part):
            log = _log_of(part[position])
            position = bisect_left(part, (_end_of(log),), lo=position)
            ends[log] = decode_entry_head(part[position - 1][1])
    for start in range(0, len(long_logs), limits.RECOVERY_LOGS_AT_ONCE):
        logs = long_logs[start : start + limits.RECOVERY_LOGS_AT_ONCE]
        newest = await last_rows(store, [filter_log_entry.prefix(log) for log in logs])
        ends |= {
            log: decode_entry_head(row[1]) for log, row in zip(logs, newest, strict=True) if row is not None
        }
    return ends


async def _parts(store: Store, long_logs: list[int]) -> AsyncIterator[list[tuple[bytes, bytes]]]:
    """Yield the entries in order but for the rest of logs that fill a part; those are added to `long_logs`.

    A part is about as long as a look-up takes where logs are long, and longer where they are short.
    """
    start, end = filter_log_entry.prefix(), prefix_end(filter_log_entry.prefix())
    wanted_bytes = limits.RECOVERY_ENDS_BYTES_MAX
    row_count = limits.RECOVERY_ENDS_ROWS_MIN
    while True:
        part = await store.scan(start, end, limit=row_count)
        yield part
        if len(part) < row_count:
            return
        log = _log_of(part[-1])
        if log == _log_of(part[0]):
            long_logs.append(log)
            start = _end_of(log)
            wanted_bytes = max(wanted_bytes // 2, limits.RECOVERY_ENDS_BYTES_MIN)
        else:
            start = part[-1][0] + b"\x00"
            wanted_bytes = min(wanted_bytes * 2, limits.RECOVERY_ENDS_BYTES_MAX)
        row_bytes = sum([len(key) + len(value) for key, value in part]) // len(part)
        row_count = max(
            limits.RECOVERY_ENDS_ROWS_MIN, min(wanted_bytes // row_bytes, limits.RECOVERY_ENDS_ROWS_MAX)
        )


def _log_of(row: tuple[bytes, bytes]) -> int:
    return filter_log_entry.parse_key(row[0])[0]


def _end_of(log: int) -> bytes:
    """Return a key behind all entries of a log and before those of others."""
    end = prefix_end(filter_log_entry.prefix(log))
    assert end is not None
    return end


async def recover_done(store: Store, manager: QueueManager, taken: dict[Cursor, RangeSet]) -> None:
    """Read the done and failed records of the cursors that had taken so much when the process started.

    Nothing of these queues is purged before this has run. Cursors that are dealt with leave `taken`, so
    that after a StorageError the call may be repeated.
    """
    records = _SettledRecords(store, taken)
    by_log: dict[str, dict[Cursor, RangeSet]] = {}
    for cursor, offsets_taken in taken.items():
        by_log.setdefault(cursor.log.name, {})[cursor] = offsets_taken
    for name, cursors in by_log.items():
        found = [await records.read(cursor) for cursor in cursors]
        # nothing was changed before everything of this log was read: an error until here may be retried
        for cursor, settled in zip(cursors, found, strict=True):
            settled.apply(cursor)
        kept = {cursor: settled.kept for cursor, settled in zip(cursors, found, strict=True)}
        part = manager.queues.part(name)
        if part is not None and part.log is next(iter(cursors)).log:
            restore_released(part, cursors, kept)
        for cursor in cursors:
            del taken[cursor]


class _Settled:
    """The contents of a cursor's records: failed records by bucket, offsets whose done records are kept,
    purges.
    """

    __slots__ = ("failures", "kept", "purges")

    def __init__(self) -> None:
        self.failures: list[tuple[int, bytes]] = []
        self.kept = RangeSet()
        self.purges: list[Purge] = []

    def apply(self, cursor: Cursor) -> None:
        """Tell the cursor."""
        for bucket_id, value in self.failures:
            restore_failed(cursor, bucket_id, value)
        cursor.done_purges.restore(self.purges)


class _SettledRecords:
    """Reads the records of cursors, leaving out what they know since the start themselves."""

    def __init__(self, store: Store, cursors: dict[Cursor, RangeSet]) -> None:
        self._store = store
        self._open_buckets = {
            cursor: {bucket.bucket_id for bucket in cursor.claims.buckets.values()} for cursor in cursors
        }
        self._last_claims = {cursor: cursor.claims.buckets.next_claim for cursor in cursors}
        self._scheduled = {cursor: {purge.bucket_id for purge in cursor.done_purges} for cursor in cursors}

    async def read(self, cursor: Cursor) -> _Settled:
        """Read those of one cursor."""
        settled = _Settled()
        rows = limits.RECOVERY_DONE_ROWS_PER_SCAN
        async for key, value in scan_prefix(self._store, failed.prefix(cursor.storage_id), rows):
            settled.failures.append((failed.parse_key(key)[1], value))
        async for key, value in scan_prefix(self._store, done.prefix(cursor.storage_id), rows):
            bucket_id = done.parse_key(key)[1]
            if not self._is_closed(cursor, bucket_id):
                continue
            purge, offsets = purge_of_record(cursor, bucket_id, value)
            for offset in offsets:
                settled.kept.add(offset, offset + 1)
            if purge is not None and bucket_id not in self._scheduled[cursor]:
                settled.purges.append(purge)
        return settled

    def _is_closed(self, cursor: Cursor, bucket_id: int) -> bool:
        """Return whether the bucket was full at the start, and is of the group's life since its last
        reset.
        """
        number = bucket_id & layout.NUMBER_MASK
        return (
            cursor.claims.buckets.first_claim <= number < self._last_claims[cursor]
            and bucket_id not in self._open_buckets[cursor]
        )
