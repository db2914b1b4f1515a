"""The failures of a cursor, and their reasons: rejected, tried too often, expired, or one too many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol

from queue_manager.claims.claim import Bucket, Claim
from queue_manager.claims.ledger import Claims
from queue_manager.cursor.owning_cursor import H
from queue_manager.cursor.stored_state import StoredState
from queue_manager.log.retention import Retention
from queue_manager.model import Message
from queue_manager.shard.discards import Discards

REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
DELIVERY_LIMIT: Final = "delivery_limit"
MAXLEN: Final = "maxlen"
UNMATCHED: Final = "unmatched"  # no group of the queue wanted it
REPLACED: Final = ""  # a newer message of the same value came: there are no dead letters
RETENTION: Final = ""  # no group came for it in time: there are no dead letters


class DeadLetters(Protocol):
    """Where what is given up goes."""

    def is_wanted(self) -> bool:
        """Return whether it goes to another queue at all."""

    def send(self, group_id: str, message: Message, attempts: int, reason: str, now_ms: int) -> bool:
        """Append a copy there; whether the original may be let go of, which has to be in the same commit."""


@dataclass(eq=False, repr=False, slots=True)
class Failures(Generic[H]):
    """Sends what is given up to the dead letters, or keeps it as failed.

    A failed message has a failed record, and its group keeps the payload by itself: the log need not stand
    for it. Where dead letters are wanted, bodies must be in memory.
    """

    _holder: H
    _retention: Retention[H]
    _claims: Claims
    _stored: StoredState
    _dead_letters: DeadLetters

    @property
    def are_dead_lettered(self) -> bool:
        """Whether what is given up goes to another queue."""
        return self._dead_letters.is_wanted()

    def give_up(self, claim: Claim, reason: str, now_ms: int) -> None:
        """End an available claim: dead-lettered it is done, else kept as failed."""
        if self._send(claim.message, claim.attempts, reason, now_ms):
            claim.finish()
            if claim.bucket is not None:
                self._stored.write_soon()  # with the commit that holds the copy
            return
        self._keep(claim)

    def discard(self, claim: Claim, reason: str, now_ms: int) -> None:
        """Let go of an available claim; only where dead letters are wanted it may be kept as failed."""
        claim.given_up(now_ms)
        if claim.bucket is not None:
            self._stored.write_soon()
        if reason and self._dead_letters.is_wanted():
            self.give_up(claim, reason, now_ms)
        else:
            claim.finish()

    def discard_fresh(
        self,
        messages: list[Message],
        selects: Callable[[Message], bool],
        reason: str,
        now_ms: int,
        budget: Discards | None = None,
    ) -> tuple[list[Message], int]:
        """Discard as `discard`, messages that were not claimed; give those that the cursor is done with, and
        how many were looked at before the budget was spent.

        The others are kept as failed. What `selects` says no to is nothing for the group.
        """
        if not reason or not self._dead_letters.is_wanted():
            if budget is not None:
                budget.spend(len(messages))
            return messages, len(messages)
        done_with: list[Message] = []
        for count, message in enumerate(messages):
            if budget is not None:
                if budget.is_spent:
                    return done_with, count
                budget.spend(1)
            if not selects(message) or self._send(message, 0, reason, now_ms):
                done_with.append(message)
            else:
                self._keep(self._claims.buckets.make_one(message, now_ms))
                self._stored.mark_dirty()
                self._stored.write_soon()
        return done_with, len(messages)

    def _send(self, message: Message, attempts: int, reason: str, now_ms: int) -> bool:
        return self._dead_letters.send(self._holder.group_id, message, attempts, reason, now_ms)

    def _keep(self, claim: Claim) -> None:
        self._claims.fail(claim)
        if claim.bucket is not None:
            self._retention.payloads.keep_failed(self._holder, claim.message.offset)

    def revive(self, bucket: Bucket, claim: Claim, now_ms: int) -> Claim:
        """Give the new claim, never tried, that takes the place of a failed one; it waits nowhere yet."""
        new = self._claims.revive(bucket, claim, now_ms)
        self._retention.payloads.keep_redriven(self._holder, claim.message.offset)
        return new
