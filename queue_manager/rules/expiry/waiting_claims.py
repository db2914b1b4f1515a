"""Claims that came back, by the time they expire."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from config import limits
from queue_manager.claims.claim import AVAILABLE, Claim
from queue_manager.cursor.cursor import Cursor


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
