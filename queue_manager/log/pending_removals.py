"""Deletions and resets of groups that are not performed to their end yet, in one log."""

from __future__ import annotations

from collections.abc import Iterator

from config import limits
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.range_set import RangeSet
from queue_manager.log.removals import GroupRemoval


class PendingRemovals:
    """Each has a record, until it is done; the driver performs them."""

    __slots__ = ("_log", "_removals")

    def __init__(self, log: QueueLog) -> None:
        self._log = log
        self._removals: tuple[GroupRemoval, ...] = ()

    def __iter__(self) -> Iterator[GroupRemoval]:
        return iter(self._removals)

    def __len__(self) -> int:
        return len(self._removals)

    @property
    def is_full(self) -> bool:
        """Whether no other group may be deleted or reset for now."""
        return len(self._removals) >= limits.GROUP_REMOVALS_PER_QUEUE_MAX

    def begin(self, removal: GroupRemoval, free: RangeSet) -> None:
        """Have a removal performed, with the payloads that `free` tells."""
        removal.log_free.add_all(free)
        self._removals += (removal,)
        context = self._log.context
        context.commit.put(removal.key(), removal.encode())
        context.removals.append(removal)

    def restore(self, removal: GroupRemoval) -> None:
        """Take up one that a crash interrupted."""
        self._removals += (removal,)

    def end(self, removal: GroupRemoval) -> bool:
        """End a removal that was performed; give whether it was one of this log's."""
        self._log.context.commit.delete(removal.key())
        known = removal in self._removals
        if known:
            self._removals = tuple([other for other in self._removals if other is not removal])
        return known

    def first_claim(self, group_id: str) -> int:
        """Return where the claim numbers of a group begin, so that it never meets those of its earlier
        life.
        """
        ends = [removal.claim_end for removal in self._removals if removal.group_id == group_id]
        return max(ends, default=0)

    def lowest_free(self, end: int) -> int:
        """Return the lowest offset, at most `end`, whose payload has yet to be found in the log."""
        starts = [removal.log_free.starts[0] for removal in self._removals if removal.log_free.starts]
        return min([end, *starts])
