"""The done and failed records of recovered groups: what is to be purged when, what is gone."""

from __future__ import annotations

from broker.engine.log_steps import scan_prefix
from config import limits
from queue_manager.claims.purge import Purge
from queue_manager.cursor.cursor import Cursor
from queue_manager.log.range_set import RangeSet
from queue_manager.manager import QueueManager
from queue_manager.recovery.buckets import purge_of_record, restore_failed
from queue_manager.recovery.queues import restore_released
from storage import layout
from storage.records import done, failed
from storage.store import Store


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
