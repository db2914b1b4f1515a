"""Claims of one cursor that came back and wait at their places."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from queue_manager.claims.claim import AVAILABLE, Claim
from queue_manager.model import Message


class Returned:
    """A `heap` by offset, so that they go out before anything newer. Some may have ended since."""

    __slots__ = ("heap",)

    def __init__(self) -> None:
        self.heap: list[tuple[int, Claim]] = []

    def add(self, claim: Claim) -> None:
        """Have an available claim wait at its place."""
        heappush(self.heap, (claim.message.offset, claim))

    def add_all(self, claims: Iterable[Claim]) -> None:
        """Have all of these wait at their places."""
        self.heap += [(claim.message.offset, claim) for claim in claims]
        heapify(self.heap)

    def first(self) -> Claim | None:
        """Return the first in order of offsets."""
        return self.heap[0][1] if self.heap else None

    def pop(self) -> Claim:
        """Take the first out."""
        return heappop(self.heap)[1]

    def take_all(self) -> list[Claim]:
        """Take all of them out, in no particular order."""
        claims = self.available()
        self.heap = []
        return claims

    def take_unless(self, keeps: Callable[[Message], bool]) -> list[Claim]:
        """Take out those that `keeps` says no to."""
        taken = [item for item in self.heap if not keeps(item[1].message)]
        if taken:
            self.heap = [item for item in self.heap if keeps(item[1].message)]
            heapify(self.heap)
        return [claim for _, claim in taken]

    def available(self) -> list[Claim]:
        """Return those that have not ended, in no particular order."""
        return [claim for _, claim in self.heap if claim.state == AVAILABLE]

    def forget_ended(self) -> None:
        """Let go of those that have."""
        kept = [item for item in self.heap if item[1].state == AVAILABLE]
        if len(kept) < len(self.heap):
            heapify(kept)
            self.heap = kept
