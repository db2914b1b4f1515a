"""Claims of one cursor that came back and have to wait before they may be made again."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from config import limits
from queue_manager.claims.claim import AVAILABLE, Claim
from queue_manager.log.queue_log import QueueLog


class Delays:
    """Claims by due time, in `heap`; each is AVAILABLE, with the time in `deadline_ms`.

    Payloads the store has are let go of beyond `limits.DELAYED_BYTES_PER_GROUP_MAX`; they are read back when
    they are due. `come_due` is given what need not wait any more.
    """

    __slots__ = ("_body_bytes", "_come_due", "_log", "_timers", "heap")

    def __init__(self, log: QueueLog, come_due: Callable[[list[Claim]], None]) -> None:
        self._log = log
        self._timers = log.context.timers
        self._come_due = come_due
        self.heap: list[tuple[int, int, Claim]] = []
        self._body_bytes = 0

    def __len__(self) -> int:
        return len(self.heap)

    def add(self, claim: Claim, due_ms: int) -> None:
        """Have `claim` wait until `due_ms`."""
        claim.wait_until(due_ms)
        message = claim.message
        if (
            message.body
            and self._body_bytes + len(message.body) > limits.DELAYED_BYTES_PER_GROUP_MAX
            and self._log.durable
            and message.offset < self._log.durable_offset
        ):
            claim.forget_body()
        else:
            self._body_bytes += len(message.body or b"")
        heappush(self.heap, (due_ms, claim.claim_number, claim))
        self._timers.set(self, self.heap[0][0])

    def is_full(self) -> bool:
        """So much waits that the group has to stop claiming what it has not seen yet."""
        return (
            len(self.heap) >= limits.DELAYED_MESSAGES_PER_GROUP_MAX
            or self._body_bytes >= limits.EPHEMERAL_BYTES_PER_QUEUE_MAX
        )

    def on_timer(self, now_ms: int) -> None:
        """Give back what is due."""
        heap = self.heap
        if self._log.deleted:
            return
        due: list[Claim] = []
        while heap and heap[0][0] <= now_ms:
            _, _, claim = heappop(heap)
            self._body_bytes -= len(claim.message.body or b"")
            claim.wait_until(0)
            if claim.state == AVAILABLE:
                due.append(claim)
        if heap:
            self._timers.set(self, heap[0][0])
        self._come_due(due)

    def forget_ended(self) -> None:
        """Let go of claims that do not wait any more."""
        kept = [item for item in self.heap if item[2].state == AVAILABLE]
        if len(kept) < len(self.heap):
            heapify(kept)
            self.heap = kept
            self._body_bytes = sum(len(claim.message.body or b"") for _, _, claim in kept)

    def claims(self) -> list[Claim]:
        """Return the claims that wait, in no particular order."""
        return [claim for _, _, claim in self.heap if claim.state == AVAILABLE]

    def clear(self) -> list[Claim]:
        """Forget everything; give what waited."""
        claims = self.claims()
        self.heap = []
        self._body_bytes = 0
        self._timers.forget(self)
        return claims


class _NoDelays(Delays):
    """None: nothing is ever added, and no timer is set."""

    __slots__ = ()

    def __init__(self) -> None:
        self.heap = []
        self._body_bytes = 0

    def clear(self) -> list[Claim]:
        return []


NOTHING_DELAYED: Final = _NoDelays()
"""The delays of cursors while nothing is delayed."""
