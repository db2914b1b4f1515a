"""A set of offsets as sorted, merged ranges: small as long as most of it is contiguous."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final

_NONE: Final = array("Q")  # what all empty sets share: most sets stay empty, and nothing changes it


class RangeSet:
    """Half-open ranges `[start, end)`, disjoint, in order; each costs 16 bytes."""

    __slots__ = ("ends", "starts")

    def __init__(self, starts: array[int] = _NONE, ends: array[int] = _NONE) -> None:
        self.starts = starts
        self.ends = ends

    def copy(self) -> RangeSet:
        """Return an independent set with the same offsets."""
        return RangeSet(self.starts[:], self.ends[:]) if self.starts else RangeSet()

    def add(self, start: int, end: int) -> None:
        """Add every offset in `[start, end)`."""
        if start >= end:
            return
        if not self.starts:
            self.starts = array("Q", (start,))
            self.ends = array("Q", (end,))
            return
        low = bisect_left(self.ends, start)
        high = bisect_right(self.starts, end)
        if low < high:
            start = min(start, self.starts[low])
            end = max(end, self.ends[high - 1])
        self.starts[low:high] = array("Q", (start,))
        self.ends[low:high] = array("Q", (end,))

    def add_pairs(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Add every offset of ranges `(start, end)`."""
        for start, end in pairs:
            self.add(start, end)

    def add_all(self, other: RangeSet) -> None:
        """Add every offset of another set."""
        for start, end in zip(other.starts, other.ends, strict=True):
            self.add(start, end)

    def discard(self, start: int, end: int) -> None:
        """Take every offset in `[start, end)` out, where it is in."""
        if start >= end:
            return
        low = bisect_right(self.ends, start)
        high = bisect_left(self.starts, end)
        if low >= high:
            return
        starts = array("Q")
        ends = array("Q")
        if self.starts[low] < start:
            starts.append(self.starts[low])
            ends.append(start)
        if self.ends[high - 1] > end:
            starts.append(end)
            ends.append(self.ends[high - 1])
        self.starts[low:high] = starts
        self.ends[low:high] = ends

    def discard_all(self, other: RangeSet) -> None:
        """Take every offset of another set out."""
        for start, end in zip(other.starts, other.ends, strict=True):
            self.discard(start, end)

    def pairs(self) -> list[tuple[int, int]]:
        """Return the ranges, in order."""
        return list(zip(self.starts, self.ends, strict=True))

    def count(self) -> int:
        """Return how many offsets are in the set."""
        return sum(self.ends) - sum(self.starts)

    def count_from(self, offset: int) -> int:
        """Return how many offsets at or above `offset` are in the set."""
        index = bisect_right(self.ends, offset)
        if index == len(self.starts):
            return 0
        return sum(self.ends[index:]) - sum(self.starts[index:]) - max(0, offset - self.starts[index])

    def contains(self, offset: int) -> bool:
        """Return whether `offset` is in the set."""
        index = bisect_right(self.starts, offset) - 1
        return index >= 0 and offset < self.ends[index]

    def overlaps(self, start: int, end: int) -> bool:
        """Return whether any offset of `[start, end)` is in the set."""
        index = bisect_right(self.ends, start)
        return index < len(self.starts) and self.starts[index] < end

    def intersection(self, other: RangeSet) -> RangeSet:
        """Return the offsets both sets have."""
        result = RangeSet()
        i = j = 0
        while i < len(self.starts) and j < len(other.starts):
            result.add(max(self.starts[i], other.starts[j]), min(self.ends[i], other.ends[j]))
            if self.ends[i] < other.ends[j]:
                i += 1
            else:
                j += 1
        return result

    def complement(self, start: int, end: int) -> RangeSet:
        """Return the offsets of `[start, end)` that are not in the set."""
        result = RangeSet()
        for range_start, range_end in zip(self.starts, self.ends, strict=True):
            result.add(start, min(range_start, end))
            start = max(start, range_end)
        result.add(start, end)
        return result

    def floor_from(self, offset: int) -> int:
        """Return the lowest offset >= `offset` that is not in the set."""
        index = bisect_right(self.starts, offset) - 1
        if index >= 0 and offset < self.ends[index]:
            return self.ends[index]
        return offset

    def drop_before(self, offset: int) -> None:
        """Forget everything below `offset`."""
        if not self.starts:
            return
        index = bisect_right(self.ends, offset)
        del self.starts[:index]
        del self.ends[:index]
        if self.starts and self.starts[0] < offset:
            self.starts[0] = offset
