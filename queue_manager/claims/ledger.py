"""The claims of one cursor: made, ended, put back, and waiting at their places again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import groupby
from operator import attrgetter

from queue_manager.claims.claim import (
    AVAILABLE,
    DONE,
    FAILED,
    IN_FLIGHT,
    RETURNING,
    STALE,
    Bucket,
    Claim,
    Consumer,
    IllegalMove,
    Pool,
)
from queue_manager.claims.cursor_buckets import Buckets
from queue_manager.claims.delays import NOTHING_DELAYED, Delays
from queue_manager.log.queue_log import QueueLog
from queue_manager.model import Message
from queue_manager.shard.commit import Commit


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


def _expect(claim: Claim, *states: int) -> None:
    if claim.state not in states:
        raise IllegalMove(f"claim {claim.claim_number}: its state is {claim.state}, not one of {states}")


def acknowledge(claims: Iterable[Claim], now_ms: int) -> int:
    """Mark claims, of whatever cursors, done; give how many came too late (nothing changes for those)."""
    late_count = pooled_count = ended_count = body_bytes = 0
    holder: Consumer | None = None
    in_flight: dict[int, Claim] = {}
    pool: Pool | None = None
    bucket: Bucket | None = None
    for claim in claims:
        consumer = claim.consumer
        if claim.state != IN_FLIGHT or consumer is None:
            late_count += 1
            if consumer is not None:
                consumer.came_late()
            continue
        if consumer is not holder:
            if holder is not None:
                holder.acknowledged(body_bytes)
                body_bytes = 0
            holder = consumer
            in_flight = consumer.in_flight
            if consumer.pool is not pool:
                if pool is not None:
                    pool.released(pooled_count)
                pool = consumer.pool
                pooled_count = 0
            consumer.group.settled(consumer)
        if claim.bucket is not bucket:
            if bucket is not None:
                bucket.ended(ended_count)
            bucket = claim.bucket
            ended_count = 0
        claim.state = DONE  # as `Claim.move` and the like, without their calls
        claim.at_ms = now_ms
        message = claim.message
        del in_flight[message.offset]
        body_bytes += len(message.body)  # type: ignore[arg-type]
        pooled_count += 1
        ended_count += 1
    if holder is not None:
        holder.acknowledged(body_bytes)
    if bucket is not None:
        bucket.ended(ended_count)
    if pool is not None:
        pool.released(pooled_count)
    return late_count


class Claims:
    """The claims of one log by consumer, each with its number and place in `buckets`.

    `returned` has claims that came back, `delays` those that are to wait for their next attempt.
    `want_dispatch` has the group hand out messages.
    """

    __slots__ = ("_log", "_want_dispatch", "buckets", "delays", "redelivered_count", "returned")

    def __init__(self, log: QueueLog, buckets: Buckets, want_dispatch: Callable[[], None]) -> None:
        self._log = log
        self._want_dispatch = want_dispatch
        self.buckets = buckets
        self.returned = Returned()
        self.delays: Delays = NOTHING_DELAYED
        self.redelivered_count = 0

    def follow_on(self, old: Claims) -> None:
        """Take the place of another: with its count, and numbers behind its own."""
        self.redelivered_count = old.redelivered_count
        self.buckets.begin_after(old.buckets.next_claim)

    # claiming

    def claim(self, messages: list[Message], consumer: Consumer, state: int, now_ms: int) -> list[Claim]:
        """First claims of messages, in order of offsets: IN_FLIGHT, or DONE, which leaves no trace but in
        buckets.
        """
        if state == DONE and not self.buckets.keeps_done:
            return []
        claims = self.buckets.make(messages, 1, state, consumer, now_ms)
        if state == IN_FLIGHT:
            consumer.hold(claims)
        return claims

    def enter(self, messages: list[Message], now_ms: int) -> list[Claim]:
        """Claims of messages just taken from the log that nobody has yet: available, never tried."""
        return self.buckets.make(messages, 0, AVAILABLE, None, now_ms)

    def claim_again(self, claim: Claim, consumer: Consumer, now_ms: int) -> None:
        """Claim one that came back."""
        claim.taken_again(consumer, now_ms)
        if claim.attempts > 1:
            self.redelivered_count += 1

    # ending

    def sent(self, claims: list[Claim]) -> None:
        """Be done with claims of a `no_ack` consumer that took them."""
        for claim in claims:
            if claim.state == IN_FLIGHT:
                claim.finish()

    def drop(self, claims: Iterable[Claim], commit: Commit) -> None:
        """Be done with what waits of these, and forget its attempts: it is purged."""
        for claim in claims:
            if claim.state == AVAILABLE:
                claim.finish()
                if claim.bucket is not None:
                    self.buckets.records.forget_attempts(claim, commit)

    def drop_gone(self, claims: Iterable[Claim], message_ids: set[int]) -> None:
        """Be done with what waits of these and has no payload any more."""
        for claim in claims:
            if claim.message.message_id in message_ids and claim.state == AVAILABLE:
                claim.finish()
        self.returned.forget_ended()

    def fail(self, claim: Claim) -> None:
        """Keep an available claim as a failed one."""
        claim.move(FAILED)
        if claim.bucket is not None:
            self.buckets.note_failed(claim.bucket)

    def put_back(self, claim: Claim, now_ms: int, *, tried: bool = True) -> Claim:
        """End a claim that is in flight, or on its way back; give the new one that takes its place.

        `tried`: the attempt counts as one that ended without success.
        """
        _expect(claim, IN_FLIGHT, RETURNING)
        consumer = claim.consumer
        if consumer is not None and claim.state == IN_FLIGHT:
            consumer.release(claim)
        new = self._replace(claim, claim.attempts, now_ms)
        if tried and claim.bucket is not None:
            holder = "" if consumer is None else consumer.consumer_id
            self.buckets.use_attempt_log().add(claim.message.message_id, claim.at_ms, holder)
        return new

    def part_with(self, claims: Iterable[Claim]) -> list[Claim]:
        """Take claims that are in flight from their holders; give them: they are on their way back."""
        parted = [claim for claim in claims if claim.state == IN_FLIGHT]
        for claim in parted:
            claim.move(RETURNING)
        for consumer, held in groupby(parted, attrgetter("consumer")):
            if consumer is not None:
                consumer.release_many(list(held))
        return parted

    def forget_returning(self, claims: Iterable[Claim]) -> None:
        """Claims on their way back have no places any more."""
        for claim in claims:
            claim.move(STALE)

    def revive(self, bucket: Bucket, claim: Claim, now_ms: int) -> Claim:
        """Give the new claim, never tried, that takes the place of a failed one; it waits nowhere yet."""
        _expect(claim, FAILED)
        new = self._replace(claim, 0, now_ms)
        self.buckets.note_revived(bucket)
        self.buckets.erase_attempts(claim.message.message_id, self._log.context.commit)
        return new

    def _replace(self, claim: Claim, attempts: int, now_ms: int) -> Claim:
        claim.move(STALE)
        bucket = claim.bucket
        new = Claim(claim.message, claim.claim_number, bucket, attempts, AVAILABLE, None, now_ms)
        if bucket is not None:
            bucket.replace(new)
        return new

    def end_in_flight(self, consumer: Consumer, *, stale: bool) -> list[Claim]:
        """End what a consumer holds; its group is gone (`stale`: or goes on elsewhere). Give what it was."""
        held = list(consumer.in_flight.values())
        for claim in held:
            consumer.release(claim)
            claim.move(STALE if stale else DONE)
        return held

    def retire(self, waiting: Iterable[Claim]) -> None:
        """Take from the group, which is deleted or reset, all claims that wait."""
        in_buckets = (claim for bucket in self.buckets.values() for claim in bucket.claims if claim)
        for claim in (*waiting, *in_buckets):
            if claim.state == AVAILABLE:
                claim.move(STALE)
        self.delays.clear()

    # what waits

    def delay(self, claim: Claim, due_ms: int) -> None:
        """Have an available claim wait for its next attempt."""
        if self.delays is NOTHING_DELAYED:
            self.delays = Delays(self._log, self._come_due)
        self.delays.add(claim, due_ms)

    def _come_due(self, claims: list[Claim]) -> None:
        for claim in claims:
            self.returned.add(claim)
        if not len(self.delays):
            self.delays = NOTHING_DELAYED
        self._want_dispatch()

    def waiting(self) -> list[Claim]:
        """Return the claims that wait at their place or for their time, in no particular order."""
        return self.returned.available() + self.delays.claims()

    def drop_unwanted(self, wants: Callable[[Message], bool]) -> bool:
        """Forget what came back and `wants` says no to; give whether that was anything. Of a stream."""
        dropped = self.returned.take_unless(wants)
        for claim in dropped:
            if claim.state == AVAILABLE:
                claim.move(STALE)
        return bool(dropped)
