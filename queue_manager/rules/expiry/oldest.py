"""Which claims that came back, or were placed for a consumer, are a cursor's oldest."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from queue_manager.claims.claim import AVAILABLE, Claim
from queue_manager.cursor.cursor import Cursor

Heap = list[tuple[int, int, Claim]]  # offset, a number that is never the same, claim


class Oldest:
    """Heaps by cursor, of cursors that were asked for; what does not wait any more is passed over."""

    __slots__ = ("_heaps", "_lengths_max", "_number")

    def __init__(self) -> None:
        self._heaps: dict[Cursor, Heap] = {}
        self._lengths_max: dict[Cursor, int] = {}  # then too much of a heap does not wait any more
        self._number = 0

    def add(self, cursor: Cursor, claim: Claim) -> None:
        """Add a claim that waits now."""
        heap = self._heaps.get(cursor)
        if heap is None:
            return
        self._number += 1
        heappush(heap, (claim.message.offset, self._number, claim))
        if len(heap) > self._lengths_max[cursor]:
            self.forget(cursor)

    def of(self, cursor: Cursor) -> Heap:
        """Return the cursor's heap; its first claim waits."""
        heap = self._heaps.get(cursor)
        if heap is None:
            self._number += 1
            heap = [(e.message.offset, self._number + i, e) for i, e in enumerate(cursor.waiting())]
            self._number += len(heap)
            heapify(heap)
            self._heaps[cursor] = heap
            self._lengths_max[cursor] = 2 * len(heap) + 1_000
        while heap and heap[0][2].state != AVAILABLE:
            heappop(heap)
        return heap

    def forget(self, cursor: Cursor) -> None:
        """Look at the cursor anew when it is asked for again."""
        self._heaps.pop(cursor, None)
