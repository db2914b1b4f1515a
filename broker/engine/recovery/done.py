"""The done and failed records of recovered groups: what is to be purged when, what is gone."""

from __future__ import annotations

from broker.engine.scan import scan_prefix
from config import limits
from queue_manager import recovery
from queue_manager.group import Group
from queue_manager.queue import Queue
from queue_manager.ranges import RangeSet
from queue_manager.retention import Purge
from storage import layout
from storage.records import done, failed
from storage.store import Store


async def recover_done(store: Store, taken: dict[Group, RangeSet]) -> None:
    """Read the done and failed records of the groups that had taken so much when the process started.

    Nothing of these queues is purged before this has run. Groups that are dealt with leave `taken`, so
    that after a StorageError the call may be repeated.
    """
    records = _SettledRecords(store, taken)
    by_queue: dict[Queue, dict[Group, RangeSet]] = {}
    for group, offsets_taken in taken.items():
        by_queue.setdefault(group.queue, {})[group] = offsets_taken
    for queue, groups in by_queue.items():
        found = [await records.read(group) for group in groups]
        # nothing was changed before everything of this queue was read: an error until here may be retried
        for group, settled in zip(groups, found, strict=True):
            settled.apply(group)
        kept = {group: settled.kept for group, settled in zip(groups, found, strict=True)}
        recovery.restore_released(queue, groups, kept)
        for group in groups:
            del taken[group]


class _Settled:
    """What a group's records say: failed records by bucket, offsets whose done records are kept, purges."""

    __slots__ = ("failures", "kept", "purges")

    def __init__(self) -> None:
        self.failures: list[tuple[int, bytes]] = []
        self.kept = RangeSet()
        self.purges: list[Purge] = []

    def apply(self, group: Group) -> None:
        """Tell the group."""
        for bucket_id, value in self.failures:
            recovery.restore_failed(group, bucket_id, value)
        group.purges.extendleft(reversed(self.purges))
        group.mark_purgeable()


class _SettledRecords:
    """Reads the records of groups, leaving out what they know since the start themselves."""

    def __init__(self, store: Store, groups: dict[Group, RangeSet]) -> None:
        self._store = store
        self._open_buckets = {
            group: {bucket.bucket_id for bucket in group.buckets.values()} for group in groups
        }
        self._last_claims = {group: group.next_claim for group in groups}
        self._scheduled = {group: {purge.bucket_id for purge in group.purges} for group in groups}

    async def read(self, group: Group) -> _Settled:
        """Those of one group."""
        settled = _Settled()
        rows = limits.RECOVERY_DONE_ROWS_PER_SCAN
        async for key, value in scan_prefix(self._store, failed.prefix(group.storage_id), rows):
            settled.failures.append((failed.parse_key(key)[1], value))
        async for key, value in scan_prefix(self._store, done.prefix(group.storage_id), rows):
            bucket_id = done.parse_key(key)[1]
            if not self._is_closed(group, bucket_id):
                continue
            purge, offsets = recovery.purge_of_record(group, bucket_id, value)
            for offset in offsets:
                settled.kept.add(offset, offset + 1)
            if purge is not None and bucket_id not in self._scheduled[group]:
                settled.purges.append(purge)
        return settled

    def _is_closed(self, group: Group, bucket_id: int) -> bool:
        """Whether the bucket was full at the start, and is of the group's life since its last reset."""
        number = bucket_id & layout.NUMBER_MASK
        return (
            group.first_claim <= number < self._last_claims[group]
            and bucket_id not in self._open_buckets[group]
        )
