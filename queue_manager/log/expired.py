"""Offsets of one log that expired before every consumer group had come to them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from queue_manager.log.range_set import RangeSet
from queue_manager.shard.commit import Commit
from storage.records import queue_account
from storage.records.special_codecs import EXPIRED, EXPIRED_OFFSETS, PART_OFFSETS


class ExpiredOffsets:
    """A set of offsets; a group whose position is at or below one has let go of it.

    Stored in parts of `PART_OFFSETS`; a part is written whenever it changes. `at_start` are
    those that were written before the start.
    """

    __slots__ = ("_changed", "_count", "_written", "at_start", "ranges")

    def __init__(self) -> None:
        self.ranges = RangeSet()
        self.at_start = RangeSet()
        self._changed: set[int] = set()
        self._written: set[int] = set()
        self._count: tuple[int, int] | None = None  # (offset, offsets from there on)

    @property
    def is_used(self) -> bool:
        """Whether any message of the log ever expired so."""
        return self is not NOTHING_EXPIRED

    def add(self, offset: int) -> None:
        """Note an offset; `write` has to follow."""
        self.ranges.add(offset, offset + 1)
        self._changed.add(offset // PART_OFFSETS)
        self._count = None

    def discard(self, offset: int) -> None:
        """Count an offset as expired no more; `write` has to follow."""
        self.ranges.discard(offset, offset + 1)
        self._changed.add(offset // PART_OFFSETS)
        self._count = None

    def count_from(self, offset: int) -> int:
        """Return how many there are at or above `offset`."""
        if not self.ranges.starts:
            return 0
        if self._count is None or self._count[0] != offset:
            starts, ends = self.ranges.starts, self.ranges.ends
            count = sum(
                ends[index] - max(starts[index], offset) for index in range(_first(ends, offset), len(ends))
            )
            self._count = (offset, count)
        return self._count[1]

    def ranges_from(self, offset: int) -> RangeSet:
        """Return those at or above `offset`."""
        kept = self.ranges.copy()
        kept.drop_before(offset)
        return kept

    def write(self, log_name: str, commit: Commit) -> None:
        """Put what changed into the open commit."""
        for part in self._changed:
            base = part * PART_OFFSETS
            starts, ends = self.ranges.starts, self.ranges.ends
            found = []
            for index in range(_first(ends, base), len(starts)):
                if starts[index] >= base + PART_OFFSETS:
                    break
                found.append((max(starts[index], base) - base, min(ends[index], base + PART_OFFSETS) - base))
            commit.put(queue_account.key(log_name, EXPIRED, part), EXPIRED_OFFSETS.encode(found))
            self._written.add(part)
        self._changed.clear()

    def restore(self, part: int, ranges: list[tuple[int, int]]) -> None:
        """Take in a part that was written."""
        base = part * PART_OFFSETS
        for start, end in ranges:
            self.ranges.add(base + start, base + end)
        self._written.add(part)
        self._count = None
        self.at_start = self.ranges.copy()

    def forget_before(self, offset: int, log_name: str, commit: Commit) -> None:
        """Forget offsets below `offset`, which no group will come to."""
        self.ranges.drop_before(offset)
        for part in [part for part in self._written if part * PART_OFFSETS < offset]:
            base = part * PART_OFFSETS
            if not self.ranges.overlaps(base, base + PART_OFFSETS):
                self._written.discard(part)
                commit.delete(queue_account.key(log_name, EXPIRED, part))
        self._count = None


NOTHING_EXPIRED: Final = ExpiredOffsets()
"""The expired offsets of logs in which nothing expired so; it stays empty."""


def _first(ends: Sequence[int], offset: int) -> int:
    """Return the index of the first range that ends after `offset`."""
    return bisect_left(ends, offset + 1)
