"""Work that is too large for one turn of the loop: done in steps, with everybody else's turn in between."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from config import limits


class Work(Protocol):
    """Something that is done in steps, none of which takes long."""

    def step(self, now_ms: int) -> bool:
        """Do a part of it; give whether there is more to do."""


class Steps:
    """Works that have begun. Each has a step in turn, so that a large one does not hold up a small one."""

    __slots__ = ("_works",)

    def __init__(self) -> None:
        self._works: deque[Work] = deque()

    def __len__(self) -> int:
        return len(self._works)

    def add(self, work: Work) -> None:
        """Have the steps of a work taken that is not here yet."""
        self._works.append(work)

    def take(self, now_ms: int) -> None:
        """Take a step of the work whose turn it is, if there is any."""
        if self._works:
            work = self._works.popleft()
            if work.step(now_ms):
                self._works.append(work)


class Budget:
    """How much may be handed out before others have their turn."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = limits.DISPATCHED_PER_TURN_MAX

    @property
    def is_spent(self) -> bool:
        """Whether that is all for this turn."""
        return self.left <= 0

    def renew(self) -> None:
        """Begin a turn."""
        self.left = limits.DISPATCHED_PER_TURN_MAX

    def spend(self, count: int) -> None:
        """Count so much that was handed out."""
        self.left -= count
