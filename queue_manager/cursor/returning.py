"""Claims on their way back to their places.

A consumer may hand back tens of thousands at once. Nobody holds them from then on, and nothing is handed out
by their cursor before the last of them is in its place, or what is newer would overtake them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from config import limits
from queue_manager.claims.claim import Claim
from queue_manager.claims.ledger import Claims
from queue_manager.shard.steps import Steps


class Verdict(NamedTuple):
    """What is to become of claims: see `Cursor.requeue`."""

    now_ms: int
    failed: bool
    delay_ms: int | None


class Taker(Protocol):
    """The cursor that claims come back to."""

    def take_back(self, claims: Sequence[Claim], verdict: Verdict) -> None:
        """Put claims in their places, or fail them."""

    def all_back(self, now_ms: int) -> None:
        """The last one is in its place."""


class Returning:
    """What one cursor has yet to put in its place, oldest request first; see `queue_manager.shard.steps`.

    `count`: how many claims it are.
    """

    __slots__ = ("_claims", "_ledger", "_steps", "_taker", "count")

    def __init__(self, taker: Taker, ledger: Claims, steps: Steps) -> None:
        self._taker = taker
        self._ledger = ledger
        self._steps = steps
        self._claims: deque[tuple[Verdict, deque[Claim]]] = deque()
        self.count = 0

    def add(self, claims: Sequence[Claim], verdict: Verdict) -> None:
        """Take claims from their holders; they get their places in steps."""
        parted = self._ledger.part_with(claims)
        if not parted:
            return
        if not self.count:
            self._steps.add(self)
        self._claims.append((verdict, deque(parted)))
        self.count += len(parted)

    def step(self, now_ms: int) -> bool:
        """See `queue_manager.shard.steps.Work`."""
        self._put(limits.RETURNED_PER_STEP_MAX)
        if not self.count:
            self._taker.all_back(now_ms)
        return self.count > 0

    def finish(self) -> None:
        """Put all of them in their places now."""
        while self.count:
            self._put(self.count)

    def drop(self) -> None:
        """They have no places any more."""
        for _, claims in self._claims:
            self._ledger.forget_returning(claims)
        self._claims.clear()
        self.count = 0

    def floor(self) -> int:
        """The lowest of their offsets; there are some."""
        return min(claim.message.offset for _, claims in self._claims for claim in claims)

    def _put(self, count_max: int) -> None:
        if not self._claims:
            return
        verdict, claims = self._claims[0]
        part = list(islice(claims, count_max))
        for _ in part:
            claims.popleft()
        if not claims:
            self._claims.popleft()
        self.count -= len(part)
        self._taker.take_back(part, verdict)
