"""The claims of one cursor. This is the only code that changes the state of a claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import groupby
from operator import attrgetter

from config import limits
from queue_manager.claims.attempts import AttemptLog
from queue_manager.claims.claim import (
    AVAILABLE,
    DONE,
    FAILED,
    IN_FLIGHT,
    LEGAL_MOVES,
    RETURNING,
    STALE,
    Bucket,
    Claim,
    Consumer,
)
from queue_manager.claims.delays import Delays
from queue_manager.claims.records import BucketRecords
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.runs import Run
from queue_manager.model import Message
from queue_manager.policy import QueuePolicy
from queue_manager.shard.commit import Commit
from storage.layout import NUMBER_BITS, align_claim_number, bucket_capacity
from storage.records import claim_state

Returned = tuple[int, Claim]  # offset, and the claim that came back


class IllegalMove(AssertionError):
    """A claim was to change to a state that its own does not lead to."""


def _expect(claim: Claim, *states: int) -> None:
    if claim.state not in states:
        raise IllegalMove(f"claim {claim.claim_number}: its state is {claim.state}, not one of {states}")


def _move(claim: Claim, state: int) -> None:
    if (claim.state, state) not in LEGAL_MOVES:
        raise IllegalMove(f"claim {claim.claim_number}: from state {claim.state} to {state}")
    claim.state = state


def acknowledge(claims: Iterable[Claim], now_ms: int) -> int:
    """Mark claims, of whatever cursors, done; give how many came too late (nothing changes for those)."""
    late_count = 0
    holder: Consumer | None = None
    in_flight: dict[int, Claim] = {}
    touched: Bucket | None = None
    for claim in claims:
        consumer = claim.consumer
        if claim.state != IN_FLIGHT or consumer is None:
            late_count += 1
            if consumer is not None:
                consumer.came_late()
            continue
        if consumer is not holder:
            holder = consumer
            in_flight = consumer.in_flight
            consumer.group.settled(consumer)
        claim.state = DONE
        claim.at_ms = now_ms
        message = claim.message
        del in_flight[message.offset]
        consumer.bytes_in_flight -= len(message.body)  # type: ignore[arg-type]
        if consumer.pool is not None:
            consumer.pool.released(1)
        bucket = claim.bucket
        if bucket is not None:
            bucket.open_count -= 1
            if bucket is not touched:
                touched = bucket
                if not bucket.is_dirty:
                    bucket.owner.settled(bucket)
    return late_count


class Claims:
    """Who claimed what of one log, in buckets if the log is durable.

    `next_claim` is the next claim number; buckets below `first_claim` are those of an earlier life of the
    group. `returned` is a heap of claims that came back, by offset, so that they return to their place before
    anything newer; `delays` has those that are to wait. `on_change` is called when there is something to
    write.
    """

    __slots__ = (
        "_log",
        "_written_state",
        "attempt_log",
        "buckets",
        "capacity",
        "claim_base",
        "delays",
        "failed_count",
        "first_claim",
        "next_claim",
        "records",
        "redelivered_count",
        "returned",
        "storage_id",
    )

    def __init__(
        self,
        log: QueueLog,
        storage_id: str,
        on_change: Callable[[], None],
        on_due: Callable[[], None],
    ) -> None:
        self._log = log
        self.storage_id = storage_id
        self.next_claim = 0
        self.first_claim = 0
        self.capacity = bucket_capacity(log.policy.bucket_size)
        self.claim_base = log.policy.bucket_size << NUMBER_BITS
        self.buckets: dict[int, Bucket] = {}
        self.returned: list[Returned] = []
        self.attempt_log = AttemptLog(storage_id)
        self.failed_count = 0
        self.redelivered_count = 0
        self.records = BucketRecords(log, storage_id, self, self.attempt_log, on_change)
        self._written_state = b""

        def give_back(claims: list[Claim]) -> None:
            for claim in claims:
                self.give_back(claim)
            on_due()

        self.delays = Delays(log, give_back)

    # claiming

    def claim(self, messages: list[Message], consumer: Consumer, state: int, now_ms: int) -> list[Claim]:
        """First claims of messages, in order of offsets: IN_FLIGHT, or DONE, which leaves no trace but in
        buckets.
        """
        if state == DONE and not self._log.durable:
            return []
        claims = self._make(messages, 1, state, consumer, now_ms)
        if state == IN_FLIGHT:
            consumer.hold(claims)
        return claims

    def enter(self, messages: list[Message], now_ms: int) -> list[Claim]:
        """Claims of messages just taken from the log that nobody has yet: available, never tried."""
        return self._make(messages, 0, AVAILABLE, None, now_ms)

    def enter_one(self, message: Message, now_ms: int) -> Claim:
        """As `enter`, for a message from anywhere in the log."""
        number = self.next_claim
        self.next_claim = number + 1
        bucket = self._bucket(number) if self._log.durable else None
        claim = Claim(message, number, bucket, 0, AVAILABLE, None, now_ms)
        if bucket is not None:
            bucket.mix()
            bucket.add([claim], 1)
            self.records.touch(bucket)
        return claim

    def _make(
        self, messages: list[Message], attempts: int, state: int, consumer: Consumer | None, now_ms: int
    ) -> list[Claim]:
        number = self.next_claim
        count = len(messages)
        self.next_claim = number + count
        if not self._log.durable:
            return [
                Claim(message, claim_number, None, attempts, state, consumer, now_ms)
                for claim_number, message in enumerate(messages, number)
            ]
        claims: list[Claim] = []
        mixes_payloads = self._log.mixes_payloads
        while True:
            bucket = self._bucket(number)
            room = bucket.capacity - len(bucket.claims)
            part = messages if count <= room else messages[:room]
            if count == 1:
                made = [Claim(messages[0], number, bucket, attempts, state, consumer, now_ms)]
            else:
                made = [
                    Claim(message, claim_number, bucket, attempts, state, consumer, now_ms)
                    for claim_number, message in enumerate(part, number)
                ]
            bucket.add_run(made, 0 if state == DONE else len(made), part, mixes_payloads=mixes_payloads)
            if not bucket.is_active_changed or not bucket.is_dirty:
                self.records.touch(bucket)
            if count <= room:
                return claims + made if claims else made
            claims += made
            messages = messages[room:]
            number += room
            count -= room

    def _bucket(self, claim_number: int) -> Bucket:
        first = claim_number - claim_number % self.capacity
        bucket = self.buckets.get(first)
        if bucket is None:
            bucket = self.buckets[first] = Bucket(self.records, first, self.capacity, self.claim_base)
            bucket.skip(claim_number - first)  # claim numbers left out at a change of bucket size
        return bucket

    def claim_again(self, claim: Claim, consumer: Consumer, now_ms: int) -> None:
        """Claim one that came back."""
        _move(claim, IN_FLIGHT)
        claim.attempts = min(claim.attempts + 1, limits.ATTEMPTS_MAX)
        claim.at_ms = now_ms
        claim.deadline_ms = 0
        claim.consumer = consumer
        if claim.bucket is not None:
            self.records.touch(claim.bucket)
        consumer.hold_again(claim)
        if claim.attempts > 1:
            self.redelivered_count += 1

    def extend(self, claim: Claim, deadline_ms: int) -> bool:
        """Give a claim a lease of its own; False if it is no claim any more."""
        consumer = claim.consumer
        if claim.state != IN_FLIGHT or consumer is None:
            return False
        claim.deadline_ms = deadline_ms
        consumer.extend()
        if claim.bucket is not None:
            self.records.touch(claim.bucket)
        return True

    # ending

    def finish(self, claim: Claim) -> None:
        """Be done with a claim, available or in flight."""
        if claim.consumer is not None:
            claim.consumer.release(claim)
        _move(claim, DONE)
        claim.deadline_ms = 0
        bucket = claim.bucket
        if bucket is not None:
            bucket.close_one()
            bucket.owner.settled(bucket)

    def stamp(self, claim: Claim, now_ms: int) -> None:
        """An available claim is given up at this time."""
        claim.at_ms = now_ms
        claim.deadline_ms = 0
        if claim.bucket is not None:
            claim.bucket.mix()

    def sent(self, claims: list[Claim]) -> None:
        """Be done with claims of a `no_ack` consumer that took them."""
        for claim in claims:
            if claim.state == IN_FLIGHT:
                self.finish(claim)

    def drop(self, claims: Iterable[Claim], commit: Commit) -> None:
        """Be done with what waits of these, and forget its attempts: it is purged."""
        for claim in claims:
            if claim.state == AVAILABLE:
                self.finish(claim)
                if claim.bucket is not None:
                    self.records.forget_attempts(claim, commit)

    def drop_gone(self, claims: Iterable[Claim], message_ids: set[int]) -> None:
        """Be done with what waits of these and has no payload any more."""
        for claim in claims:
            if claim.message.message_id in message_ids and claim.state == AVAILABLE:
                self.finish(claim)
        self.forget_ended()

    def fail(self, claim: Claim) -> None:
        """Keep an available claim as a failed one."""
        _move(claim, FAILED)
        if claim.bucket is not None:
            claim.bucket.close_one()
            self.failed_count += 1

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
            self.attempt_log.add(claim.message.message_id, claim.at_ms, holder)
        return new

    def part_with(self, claims: Iterable[Claim]) -> list[Claim]:
        """Take claims that are in flight from their holders; give them: they are on their way back."""
        parted = [claim for claim in claims if claim.state == IN_FLIGHT]
        for claim in parted:
            claim.state = RETURNING
        for consumer, held in groupby(parted, attrgetter("consumer")):
            if consumer is not None:
                consumer.release_many(list(held))
        return parted

    def forget_returning(self, claims: Iterable[Claim]) -> None:
        """Claims on their way back have no places any more."""
        for claim in claims:
            _move(claim, STALE)

    def untry(self, claim: Claim) -> None:
        """The attempt that is just under way does not count."""
        claim.attempts -= 1

    def revive(self, bucket: Bucket, claim: Claim, now_ms: int) -> Claim:
        """Give the new claim, never tried, that takes the place of a failed one; it waits nowhere yet."""
        _expect(claim, FAILED)
        new = self._replace(claim, 0, now_ms)
        bucket.open_one()
        self.failed_count -= 1
        self.attempt_log.erase(claim.message.message_id, self._log.context.commit)
        return new

    def _replace(self, claim: Claim, attempts: int, now_ms: int) -> Claim:
        _move(claim, STALE)
        bucket = claim.bucket
        new = Claim(claim.message, claim.claim_number, bucket, attempts, AVAILABLE, None, now_ms)
        if bucket is not None:
            bucket.replace(new)
            self.records.touch(bucket)
        return new

    def end_in_flight(self, consumer: Consumer, *, stale: bool) -> list[Claim]:
        """End what a consumer holds; its group is gone (`stale`: or goes on elsewhere). Give what it was."""
        held = list(consumer.in_flight.values())
        for claim in held:
            consumer.release(claim)
            _move(claim, STALE if stale else DONE)
        return held

    def retire(self, waiting: Iterable[Claim]) -> None:
        """The group is deleted or reset: what waits is not its any more."""
        in_buckets = (claim for bucket in self.buckets.values() for claim in bucket.claims if claim)
        for claim in (*waiting, *in_buckets):
            if claim.state == AVAILABLE:
                _move(claim, STALE)
        self.delays.clear()

    # what came back

    def give_back(self, claim: Claim) -> None:
        """Have an available claim wait at its place."""
        heappush(self.returned, (claim.message.offset, claim))

    def next_returned(self) -> Claim | None:
        """The first claim that waits at its place; it may have ended since."""
        return self.returned[0][1] if self.returned else None

    def pop_returned(self) -> Claim:
        """Take the first out."""
        return heappop(self.returned)[1]

    def take_returned(self) -> list[Claim]:
        """Take all of them out, in no particular order."""
        returned = self.returned
        self.returned = []
        return [claim for _, claim in returned if claim.state == AVAILABLE]

    def put_returned(self, claims: Iterable[Claim]) -> None:
        """Have all of these wait at their places."""
        self.returned += [(claim.message.offset, claim) for claim in claims]
        heapify(self.returned)

    def forget_ended(self) -> None:
        """Let go of claims that do not wait any more."""
        kept = [item for item in self.returned if item[1].state == AVAILABLE]
        if len(kept) < len(self.returned):
            heapify(kept)
            self.returned = kept

    def waiting(self) -> list[Claim]:
        """What waits at its place or for its time, in no particular order."""
        return [claim for _, claim in self.returned if claim.state == AVAILABLE] + self.delays.claims()

    def drop_returned(self, keeps: Callable[[Message], bool]) -> bool:
        """Forget what came back and `keeps` says no to; give whether that was anything. Of a stream."""
        kept = [item for item in self.returned if keeps(item[1].message)]
        if len(kept) == len(self.returned):
            return False
        for _, claim in self.returned:
            if not keeps(claim.message) and claim.state == AVAILABLE:
                _move(claim, STALE)
        heapify(kept)
        self.returned = kept
        return True

    # buckets

    def restore(self, bucket: Bucket) -> None:
        """Take in a bucket that was written, or opened again."""
        self.buckets[bucket.first] = bucket

    def restore_number(self, next_claim: int) -> None:
        """Go on with this claim number."""
        self.next_claim = next_claim

    def begin_after(self, claim_number: int) -> None:
        """Without claims: give them out from there on, in a bucket of its own."""
        self.next_claim = self.first_claim = -(-claim_number // self.capacity) * self.capacity

    def keep_earlier(self, claim_number: int) -> None:
        """Buckets below that number are not this group's."""
        self.first_claim = claim_number

    def begin_failed(self, count: int) -> None:
        """Begin with so many failed messages, which an earlier life of the group left."""
        self.failed_count = count

    def begin_redelivered(self, count: int) -> None:
        """Count redeliveries from there on."""
        self.redelivered_count = count

    def end_number(self) -> int:
        """The first claim number behind all buckets."""
        return -(-self.next_claim // self.capacity) * self.capacity

    def resize_buckets(self, policy: QueuePolicy) -> bool:
        """Give out claim numbers for buckets of the policy's size (R-24); give whether that is another."""
        exponent = policy.bucket_size
        if exponent << NUMBER_BITS == self.claim_base:
            return False
        self.next_claim = align_claim_number(self.next_claim, exponent)
        self.capacity = bucket_capacity(exponent)
        self.claim_base = exponent << NUMBER_BITS
        return True

    def is_closed(self, bucket: Bucket) -> bool:
        """Every message of it is settled and no claim number will be given out from it any more."""
        return bucket.open_count == 0 and (
            self.next_claim >= bucket.end or self.claim_base != bucket.claim_base
        )

    def active_claims(self) -> Iterator[Claim]:
        """Claims in buckets that are available, in flight or on their way back."""
        for bucket in self.buckets.values():
            for claim in bucket.claims:
                if claim is not None and claim.state in (AVAILABLE, IN_FLIGHT, RETURNING):
                    yield claim

    # writing

    def write(self, commit: Commit) -> tuple[list[Bucket], list[Run]]:
        """Put what changed into the commit; see `BucketRecords.write`."""
        written = self.records.write(commit)
        state = claim_state.encode(self._log.policy.bucket_size, self.next_claim)
        if state != self._written_state:
            commit.put(claim_state.key(self.storage_id), state)
            self._written_state = state
        return written
