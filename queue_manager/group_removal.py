"""What is left to do when a consumer group was deleted or reset, or began behind the oldest message.

The change itself takes effect at once; the payloads that only this group kept, and its old buckets, are found
by scanning, in steps that the driver takes. A record tells what is left, so that a crash in between is
finished at the next start (`storage.records.group_removal`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queue_manager.ranges import RangeSet
from storage import layout
from storage.records import group_removal as record
from storage.records.group_removal import PendingGroupRemoval

if TYPE_CHECKING:
    from queue_manager.group import Group
    from queue_manager.queue import Queue


class GroupRemoval:
    """One deletion, reset or late beginning of the group that keeps its records under `storage_id`.

    `log_free` are offsets whose payloads go, found in the queue's log; `row_free` those found in the group's
    buckets below claim number `claim_end`. `failed_below` and `head`: see the record, which has the rest.
    """

    __slots__ = (
        "claim_end",
        "failed_below",
        "group_id",
        "head",
        "log_free",
        "mode",
        "number",
        "queue",
        "row_free",
        "storage_id",
    )

    def __init__(self, queue: Queue, storage_id: str, number: int, mode: int) -> None:
        self.queue = queue
        self.storage_id = storage_id
        self.group_id = layout.split_group_queue_id(storage_id)[1]
        self.number = number
        self.mode = mode
        self.claim_end = 0
        self.failed_below = 0
        self.head = queue.head_offset
        self.log_free = RangeSet()
        self.row_free = RangeSet()

    @classmethod
    def restored(cls, queue: Queue, key: record.Key, pending: PendingGroupRemoval) -> GroupRemoval:
        """As its record tells it after a start."""
        removal = cls(queue, key.queue_id, key.number, pending.mode)
        removal.claim_end = pending.claim_end
        removal.failed_below = pending.failed_below
        removal.head = pending.head
        for ranges, pairs in (
            (removal.log_free, pending.log_ranges),
            (removal.row_free, pending.row_ranges),
        ):
            for start, end in pairs:
                ranges.add(start, end)
        return removal

    def key(self) -> bytes:
        """The key of its record."""
        return record.key(self.storage_id, self.number)

    def encode(self) -> bytes:
        """The value of its record: what is left to do."""
        return record.encode(
            PendingGroupRemoval(
                self.queue.log_id,
                self.mode,
                self.claim_end,
                self.failed_below,
                self.head,
                self.log_free.pairs(),
                self.row_free.pairs(),
            )
        )

    @property
    def has_rows(self) -> bool:
        """Whether buckets of the group have to go."""
        return self.mode != record.RELEASE

    def keeps_failed(self, offset: int) -> bool:
        """Whether the group's failed message at `offset` stays."""
        return offset < self.failed_below

    def lets_go(self, offset: int) -> bool:
        """Whether the payload of a message in a row that goes is to go with it."""
        if self.mode == record.DELETE:
            return self.row_free.contains(offset)
        if offset >= self.head:
            return False
        groups = self.queue.groups
        own = groups.get(self.group_id)
        if own is not None:
            own.failed_offsets.discard(offset, offset + 1)
        return not any(group.failed_offsets.contains(offset) for group in groups.values())


def first_claim(queue: Queue, group_id: str) -> int:
    """Where the claim numbers of a group begin, so that it never meets those of its earlier life."""
    ends = [removal.claim_end for removal in queue.group_removals if removal.group_id == group_id]
    return max(ends, default=0)


def trim_limit(queue: Queue) -> int:
    """The offset the queue's log must be kept from: below, nobody has to look up payloads any more."""
    starts = [removal.log_free.starts[0] for removal in queue.group_removals if removal.log_free.starts]
    return min([queue.head_offset, *starts])


def begin_after(group: Group, number: int) -> None:
    """Have a group without claims give them out from `number` on."""
    capacity = group.capacity
    group.next_claim = group.first_claim = -(-number // capacity) * capacity
