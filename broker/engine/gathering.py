"""The moment between two commits of a store that is far away."""

from __future__ import annotations

from collections.abc import Callable

from config import limits


class Gathering:
    """How long a commit waits for more.

    Publishers who are told that a commit is durable publish again at once. A commit that began before they
    have done so would have them wait for two requests to the store; so does one with acknowledgements alone.
    """

    __slots__ = ("_expected", "_monotonic", "_until")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until = 0.0
        self._expected = 0

    def told(self, waiter_count: int, write_s: float) -> None:
        """Note that so many are told of a commit, whose writing took so long."""
        share_s = write_s / limits.COMMIT_GATHER_DIVISOR
        self._until = self._monotonic() + min(share_s, limits.COMMIT_GATHER_MS_MAX / 1000)
        self._expected = waiter_count

    def rest_s(self, waiter_count: int) -> float:
        """Return how long the open commit, for which so many wait, should still be left open."""
        if waiter_count >= self._expected:
            return 0.0
        return max(0.0, self._until - self._monotonic())
