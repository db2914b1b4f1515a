"""Claims that come back: to their places, to wait for their next attempt, or to fail.

A consumer may hand back tens of thousands at once. Nobody holds them from then on, and nothing is handed out
by their cursor before the last of them is in its place, or what is newer would overtake them. So that no
commit has all of it to write, each takes a part, and the next part waits until that is in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic

from config import limits
from queue_manager.claims.claim import IN_FLIGHT, RETURNING, Bucket, Claim, Verdict
from queue_manager.claims.ledger import Claims
from queue_manager.cursor import backoff
from queue_manager.cursor.failures import DELIVERY_LIMIT, REJECTED, Failures
from queue_manager.cursor.owning_cursor import H
from queue_manager.cursor.stored_state import StoredState
from queue_manager.log.queue_log import QueueLog
from queue_manager.model import Message
from queue_manager.shard.steps import Steps


@dataclass(eq=False, repr=False, slots=True)
class Returning(Generic[H]):
    """Puts claims back; of very many what has yet to be put, oldest request first, a step at a time.

    See `queue_manager.shard.steps`. `count`: how many are not in their places.
    Implements `queue_manager.shard.steps.Work`.
    """

    _cursor: H
    _log: QueueLog
    _claims: Claims
    _failures: Failures[H]
    _stored: StoredState
    _waiting: list[tuple[Verdict, deque[Claim]]] = field(default_factory=list, init=False)
    count: int = field(default=0, init=False)
    _put_count: int = field(default=0, init=False)  # since the state of the cursor was written
    _is_paused: bool = field(default=False, init=False)
    _steps: Steps = field(init=False)

    def __post_init__(self) -> None:
        self._steps = self._log.context.steps

    def requeue(self, claims: Sequence[Claim], verdict: Verdict) -> None:
        """Return claims to their original place, or fail them (by the verdict, or attempts used up).

        Claims that are not in flight (any more) are passed over. Of very many only the first are there at
        once.
        """
        if verdict.is_spared and not self._log.policy.quorum:
            verdict = verdict._replace(is_spared=False)
        is_much = len(claims) > limits.RETURNED_PER_STEP_MAX
        if is_much:
            claims = self._claims.part_with(claims)
        count = 0
        for part in self._parts_within_budget(len(claims)):
            self._put_back(claims[count : count + part], verdict)
            count += part
        if count < len(claims):
            rest = claims[count:]
            self._put_off(rest if is_much else self._claims.part_with(rest), verdict)
        self._cursor.want_dispatch()

    def unclaim(self, claim: Claim, now_ms: int, *, delay_ms: int = 0) -> None:
        """Put a claim back after `delay_ms`, as if it had not been made."""
        claim.untried()
        new = self._claims.put_back(claim, now_ms, tried=False)
        self._place(new, new.message.body, now_ms + delay_ms if delay_ms else 0)

    def revive(self, bucket: Bucket, claim: Claim, now_ms: int) -> Claim:
        """Make a failed claim available again, as if it had never been tried; give the new one."""
        new = self._failures.revive(bucket, claim, now_ms)
        self._place(new, claim.message.body)
        return new

    def enter(self, messages: Iterable[Message]) -> list[Claim]:
        """Have messages wait at their places that no claim was made of; gives their claims."""
        entered = []
        for message in messages:
            claim = self._claims.buckets.make_one(message, message.received_at_ms)
            self._place(claim, message.body)
            entered.append(claim)
        return entered

    def _place(self, new: Claim, body: bytes | None, due_ms: int = 0) -> None:
        if due_ms:
            self._claims.delay(new, due_ms)
        else:
            self._claims.returned.add(new)
        self._cursor.came_back(new, body)
        self._cursor.want_dispatch()

    def _put_back(self, claims: Sequence[Claim], verdict: Verdict) -> None:
        now_ms = verdict.now_ms
        policy = self._log.policy
        wait_ms = verdict.delay_ms or 0
        backs_off = verdict.delay_ms is None and backoff.applies(policy, is_spared=verdict.is_spared)
        for claim in claims:
            if claim.state not in (IN_FLIGHT, RETURNING):
                continue
            new = self._claims.put_back(claim, now_ms)
            attempts = claim.attempts
            if policy.quorum:
                attempts = self._counted(claim, is_spared=verdict.is_spared)
            if verdict.failed:
                self._failures.give_up(new, REJECTED, now_ms)
            elif policy.attempts_max and attempts >= policy.attempts_max:
                self._failures.give_up(new, DELIVERY_LIMIT, now_ms)
            else:
                if backs_off:
                    wait_ms = backoff.delay_ms(policy, claim.message.message_id, attempts)
                if wait_ms:
                    self._claims.delay(new, now_ms + wait_ms)
                else:
                    self._claims.returned.add(new)
                self._cursor.came_back(new, claim.message.body)

    def _counted(self, claim: Claim, *, is_spared: bool) -> int:
        """Return how many attempts at the message count, with the one that ends now unless it is spared."""
        buckets = self._claims.buckets
        if is_spared:
            buckets.use_attempt_log().spare(claim.message.message_id)
        return claim.attempts - buckets.attempt_log.spared(claim.message.message_id)

    # very many

    def _parts_within_budget(self, count: int) -> Iterator[int]:
        """Return how many to put back at a time: as many as one turn may have, fewer where it is dead
        letters.
        """
        most = min(count, limits.RETURNED_PER_STEP_MAX)
        if not self._failures.are_dead_lettered:
            yield most
            return
        discards = self._log.context.discards
        while most > 0:
            yield min(most, limits.RETURNED_PER_LOOK)
            most -= limits.RETURNED_PER_LOOK
            if discards.is_spent:
                return

    def _put_off(self, claims: Sequence[Claim], verdict: Verdict) -> None:
        """Have claims that nobody holds any more get their places in steps."""
        if not claims:
            return
        if not self.count and not self._is_paused:
            self._steps.add(self)
        self._waiting.append((verdict, deque(claims)))
        self.count += len(claims)

    def step(self, now_ms: int) -> bool:
        for part in self._parts_within_budget(self.count):
            self._go_on(part)
        if not self.count:
            self._cursor.all_back(now_ms)
        elif self._put_count >= limits.RETURNED_PER_COMMIT_MAX and self._stored.is_dirty:
            self._is_paused = True
            self._stored.write_soon()
        return self.count > 0 and not self._is_paused

    def written(self) -> None:
        """Go on: what was put back is in a commit."""
        self._put_count = 0
        if self._is_paused:
            self._is_paused = False
            if self.count:
                self._steps.add(self)

    def finish(self) -> None:
        """Put all of them in their places now."""
        while self.count:
            self._go_on(self.count)

    def _go_on(self, count_max: int) -> None:
        if not self._waiting:
            return
        verdict, claims = self._waiting[0]
        part = list(islice(claims, count_max))
        for _ in part:
            claims.popleft()
        if not claims:
            self._waiting.pop(0)
        self.count -= len(part)
        self._put_count += len(part)
        self._put_back(part, verdict)

    def drop(self) -> None:
        """Drop those that have no places any more."""
        for _, claims in self._waiting:
            self._claims.forget_returning(claims)
        self._waiting.clear()
        self.count = 0

    def messages(self) -> list[Message]:
        """Return what they are claims of."""
        return [claim.message for _, claims in self._waiting for claim in claims]

    def floor(self) -> int:
        """Return the lowest of their offsets; there are some."""
        return min(claim.message.offset for _, claims in self._waiting for claim in claims)
