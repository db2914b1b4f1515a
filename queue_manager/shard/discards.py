"""Discards: queues give up what expired or is too much, one queue after the other, so much in a turn.

A message that is given up may be dead-lettered to queues that then have too much themselves. None of that is
done one within the other: who has something to give up meanwhile waits, and goes on with a step where the
turn's budget is spent. So one publish costs everybody else no more than that, wherever dead letters lead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from config import limits
from queue_manager.shard.steps import Steps


class Discarding(Protocol):
    """The rules of a log."""

    def give_up(self, now_ms: int) -> None:
        """Give up what has expired or is too much, until the budget is spent; ask for more by `put_off`."""


class Discards:
    """The logs with messages to give up, and how many of these went in this turn (`spent`).

    Implements `queue_manager.shard.steps.Work`.
    """

    __slots__ = ("_has_ended", "_has_step", "_is_busy", "_steps", "_waiting", "spent")

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._waiting: dict[Discarding, None] = {}
        self.spent = 0
        self._is_busy = False
        self._has_step = False
        self._has_ended = False

    @property
    def is_spent(self) -> bool:
        """Whether that is all for this turn."""
        return self.spent >= limits.DISCARDED_PER_TURN_MAX

    def renew(self) -> None:
        """Begin another turn."""
        self.spent = 0

    def spend(self, cost: int) -> None:
        """Count so many messages that were let go of; each dead letter in a queue counts as
        `DEAD_LETTER_COST`.
        """
        self.spent += cost

    def give_up(self, owner: Discarding, now_ms: int, published_count: int = 0) -> None:
        """Have `owner` give up what it has to: now, or when its turn comes.

        `published_count`: for so many messages that were just published it may give up as many, whatever was
        spent before; not for dead letters, that come while others give up.
        """
        if self._is_busy:
            self._waiting[owner] = None
            return
        own = published_count * (2 * limits.DEAD_LETTER_COST + 1)
        self.spent = min(self.spent, limits.DISCARDED_PER_TURN_MAX - own)
        if self.is_spent:
            self.put_off(owner)
            return
        self._is_busy = True
        try:
            owner.give_up(now_ms)
        finally:
            self._is_busy = False
        if self._waiting:
            self._go_on(now_ms)

    def dead_letters(self, target_count: int, append: Callable[[], None], now_ms: int) -> None:
        """Call what appends a dead letter to so many queues; what that makes too much goes afterwards."""
        self.spent += target_count * limits.DEAD_LETTER_COST
        if self._is_busy:
            append()
            return
        self._is_busy = True
        try:
            append()
        finally:
            self._is_busy = False
        if self._waiting:
            self._go_on(now_ms)

    def put_off(self, owner: Discarding) -> None:
        """Let `owner` go on with a step: the budget is spent."""
        if self._has_ended:
            return
        self._waiting[owner] = None
        if not self._has_step:
            self._has_step = True
            self._steps.add(self)

    def is_put_off(self, owner: Discarding) -> bool:
        """Return whether it goes on later."""
        return owner in self._waiting

    def forget(self, owner: Discarding) -> None:
        """Forget one that gives up nothing any more."""
        self._waiting.pop(owner, None)

    def end(self) -> None:
        """End: what is left is given up after the next start."""
        self._waiting.clear()
        self._has_ended = True

    def step(self, now_ms: int) -> bool:
        self.spent = 0
        self._go_on(now_ms)
        self._has_step = bool(self._waiting)
        return self._has_step

    def _go_on(self, now_ms: int) -> None:
        """Have those give up something that wait for it, until the budget is spent."""
        waiting = self._waiting
        self._is_busy = True
        try:
            while waiting and not self.is_spent:
                owner = next(iter(waiting))
                del waiting[owner]
                owner.give_up(now_ms)
        finally:
            self._is_busy = False
        if waiting:
            self.put_off(next(iter(waiting)))
