"""Records to find and delete by scanning; the driver does it, in steps, beside everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queue_manager.group_removal import GroupRemoval

if TYPE_CHECKING:
    from queue_manager.group import Group
    from queue_manager.queue import Queue
    from queue_manager.ranges import RangeSet


class HeadRemoval:
    """Delete the log entries wholly below the queue's head, and record the head."""

    __slots__ = ("queue",)

    def __init__(self, queue: Queue) -> None:
        self.queue = queue


class StreamTrim(HeadRemoval):
    """Delete what lies below the stream's head, payloads and all, and record the head."""

    __slots__ = ()


class RangeRemoval:
    """A group was purged: find the messages with offsets in `[start, end)`, from log entry `sequence` on, and
    give them to `QueueManager.release_range`. Those in `kept` were not purged: they had been claimed.
    """

    __slots__ = ("end", "group", "kept", "sequence", "start")

    def __init__(self, group: Group, start: int, end: int, sequence: int) -> None:
        self.group = group
        self.start = start
        self.end = end
        self.sequence = sequence
        self.kept: RangeSet | None = None


class QueueRemoval:
    """A queue was deleted: its log, the records of its groups and the payloads only it held go.

    `released` are the offsets from `head_offset` on whose payloads it had let go of already; None after a
    restart, when that is not known and shared payloads are left alone.
    """

    __slots__ = ("head_offset", "log_id", "name", "released", "storage_ids")

    def __init__(
        self,
        name: str,
        log_id: str,
        storage_ids: tuple[str, ...],
        head_offset: int,
        released: RangeSet | None,
    ) -> None:
        self.name = name
        self.log_id = log_id
        self.storage_ids = storage_ids
        self.head_offset = head_offset
        self.released = released

    def is_gone(self, offset: int) -> bool:
        """Whether the log no longer stands for the payload at `offset`; as far as is known, True."""
        return self.released is None or offset < self.head_offset or self.released.contains(offset)


Removal = HeadRemoval | RangeRemoval | QueueRemoval | GroupRemoval
