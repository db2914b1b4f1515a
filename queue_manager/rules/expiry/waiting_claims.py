"""Claims that came back, by the time they expire, and which of those that wait are the oldest."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from config import limits
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


class WaitingClaims:
    """A heap; what does not wait any more is passed over."""

    __slots__ = ("_end_again_ms", "_heap", "_length_max", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Cursor, Claim]] = []
        self._length_max = 1_000  # then too many of them do not wait any more
        self._number = 0
        self._end_again_ms = 0

    def add(self, cursor: Cursor, claim: Claim, end_ms: int) -> None:
        """Add a claim that waits and expires at `end_ms`."""
        self._number += 1
        heappush(self._heap, (end_ms, self._number, cursor, claim))
        if len(self._heap) > self._length_max:
            self._heap = [item for item in self._heap if item[3].state == AVAILABLE]
            heapify(self._heap)
            self._length_max = 2 * len(self._heap) + 1_000

    def has_due(self, now_ms: int) -> bool:
        """Return whether some have expired and were not taken yet."""
        return bool(self._heap) and self._heap[0][0] <= now_ms

    def next_ms(self) -> int | None:
        """Return when to take what has expired."""
        return max(self._heap[0][0], self._end_again_ms) if self._heap else None

    def take_due(self, now_ms: int) -> dict[Cursor, list[Claim]]:
        """Take out what has expired, by cursor; nothing so soon after the last time."""
        heap = self._heap
        if now_ms < self._end_again_ms and heap:
            return {}
        # each time all that waits in the group is looked through
        self._end_again_ms = now_ms + len(heap) // limits.EXPIRY_RETURNED_PER_MS
        due: dict[Cursor, list[Claim]] = {}
        while heap and heap[0][0] <= now_ms:
            _, _, cursor, claim = heappop(heap)
            if claim.state == AVAILABLE:
                due.setdefault(cursor, []).append(claim)
        return due
