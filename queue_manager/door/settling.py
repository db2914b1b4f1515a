"""What becomes of claims."""

from __future__ import annotations

from collections.abc import Iterable

from queue_manager.door.state import ManagerState
from queue_manager.errors import (
    GroupNotFound,
    InvalidAddress,
)
from queue_manager.group import Group
from queue_manager.model import DONE, IN_FLIGHT, Entry
from queue_manager.queue import Queue


class Settling(ManagerState):
    """Ack, requeue, reject, extend."""

    def ack(self, entries: Iterable[Entry], now_ms: int) -> int:
        """Mark claims done; give how many of them came too late (nothing changes for those)."""
        stale = 0
        touched: Group | None = None
        for entry in entries:
            if entry.state != IN_FLIGHT:
                stale += 1
                if entry.consumer is not None:
                    entry.consumer.came_late()
                continue
            entry.state = DONE
            entry.claimed_at_ms = now_ms
            message = entry.message
            consumer = entry.consumer
            if consumer is not None:
                del consumer.in_flight[message.offset]
                consumer.bytes_in_flight -= len(message.body)  # type: ignore[arg-type]
                pool = consumer.pool
                if pool is not None:
                    pool.in_flight -= 1
                    for other in pool.consumers:
                        self.dispatchable[other.group] = None
            bucket = entry.bucket
            group = entry.group
            if bucket is not None:
                bucket.open_count -= 1
                if not bucket.dirty:
                    bucket.dirty = True
                    group.dirty_buckets.append(bucket)
                    if not group.dirty:
                        group.mark_dirty()
            if group is not touched:
                touched = group
                self.dispatchable[group] = None
        self.stale_settle_count += stale
        return stale

    def requeue(self, entries: Iterable[Entry], now_ms: int, *, delay_ms: int | None = None) -> int:
        """Return claims to their place in the queue (nack) after `delay_ms`; give how many came too late.

        None: after the back-off of the queue's retry policy, if it has one.
        """
        return self._give_back(entries, now_ms, failed=False, delay_ms=delay_ms)

    def reject(self, entries: Iterable[Entry], now_ms: int) -> int:
        """Fail claims for good; give how many came too late."""
        return self._give_back(entries, now_ms, failed=True)

    def _give_back(
        self, entries: Iterable[Entry], now_ms: int, *, failed: bool, delay_ms: int | None = None
    ) -> int:
        stale = 0
        by_group: dict[Group, list[Entry]] = {}
        for entry in entries:
            if entry.state == IN_FLIGHT:
                by_group.setdefault(entry.group, []).append(entry)
            else:
                stale += 1
                if entry.consumer is not None:
                    entry.consumer.came_late()
        for group, group_entries in by_group.items():
            group.give_back(group_entries, now_ms, failed=failed, delay_ms=delay_ms)
        self.stale_settle_count += stale
        return stale

    def extend(self, entry: Entry, lease_ms: int, now_ms: int) -> bool:
        """Give a claim a new lease from now; False if it is no claim any more."""
        consumer = entry.consumer
        if entry.state != IN_FLIGHT or consumer is None:
            return False
        entry.lease_deadline_ms = now_ms + lease_ms
        consumer.extended = True
        if consumer.late_held >= 0:
            consumer.forgive()
        if entry.bucket is not None:
            entry.group.touch(entry.bucket)
        return True

    def find_claim(self, queue: Queue, group_id: str, offset: int) -> Entry:
        """The claim a `$ack` names; raises GroupNotFound, or InvalidAddress when there is no such claim."""
        group = queue.groups.get(group_id)
        if group is None:
            raise GroupNotFound(f"queue {queue.name!r} has no consumer group {group_id!r}")
        entry = group.find_claim(offset)
        if entry is None:
            raise InvalidAddress(f"message {queue.name}:{offset} is not in flight in group {group_id!r}")
        return entry
