"""The buckets of one cursor, and the numbers of its claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from queue_manager.claims.attempts import NO_ATTEMPTS, Attempt, AttemptLog
from queue_manager.claims.bucket_records import BucketRecords
from queue_manager.claims.claim import AVAILABLE, DONE, IN_FLIGHT, RETURNING, Bucket, Claim, Consumer
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.runs import Run
from queue_manager.model import Message
from queue_manager.policy import QueuePolicy
from queue_manager.shard.commit import Commit
from storage.layout import NUMBER_BITS, align_claim_number, bucket_capacity
from storage.records import ClaimState, attempts, claim_state


class Buckets(dict[int, Bucket]):
    """Those with something open, or not full, by their first claim number; none if the log is not durable.

    `next_claim` is the next claim number; buckets below `first_claim` are those of an earlier life of the
    group. `failed_count` is how many failed messages the cursor keeps, in whatever buckets. `attempt_log` has
    the attempts of its messages that failed.
    """

    __slots__ = (
        "_log",
        "_written_state",
        "attempt_log",
        "capacity",
        "claim_base",
        "failed_count",
        "first_claim",
        "next_claim",
        "records",
        "storage_id",
    )

    def __init__(self, log: QueueLog, storage_id: str, mark_dirty: Callable[[], None]) -> None:
        super().__init__()
        self._log = log
        self.storage_id = storage_id
        self.next_claim = 0
        self.first_claim = 0
        self.capacity = bucket_capacity(log.policy.bucket_size)
        self.claim_base = log.policy.bucket_size << NUMBER_BITS
        self.failed_count = 0
        self.attempt_log = NO_ATTEMPTS
        self.records = BucketRecords(log, storage_id, self, mark_dirty)
        self._written_state = b""

    @property
    def keeps_done(self) -> bool:
        """Whether claims that were done from the first leave a trace."""
        return self._log.durable

    # claims

    def make(
        self, messages: list[Message], attempts: int, state: int, consumer: Consumer | None, now_ms: int
    ) -> list[Claim]:
        """Claims of messages, in order of offsets, with the next numbers."""
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
            if count <= room:
                return claims + made if claims else made
            claims += made
            messages = messages[room:]
            number += room
            count -= room

    def make_one(self, message: Message, now_ms: int) -> Claim:
        """An available claim, never tried, of a message from anywhere in the log."""
        number = self.next_claim
        self.next_claim = number + 1
        bucket = self._bucket(number) if self._log.durable else None
        claim = Claim(message, number, bucket, 0, AVAILABLE, None, now_ms)
        if bucket is not None:
            bucket.add(claim)
        return claim

    def _bucket(self, claim_number: int) -> Bucket:
        first = claim_number - claim_number % self.capacity
        bucket = self.get(first)
        if bucket is None:
            bucket = self[first] = Bucket(self.records.want, first, self.capacity, self.claim_base)
            bucket.skip(claim_number - first)  # claim numbers left out at a change of bucket size
        return bucket

    def open_claims(self) -> Iterator[Claim]:
        """Claims that are available, in flight or on their way back."""
        for bucket in self.values():
            for claim in bucket.claims:
                if claim is not None and claim.state in (AVAILABLE, IN_FLIGHT, RETURNING):
                    yield claim

    # attempts

    def _use_attempt_log(self) -> AttemptLog:
        if self.attempt_log is NO_ATTEMPTS:
            self.attempt_log = AttemptLog()
        return self.attempt_log

    def note_attempt(self, message_id: int, claimed_at_ms: int, consumer_id: str) -> None:
        """Remember an attempt that ended without success."""
        self._use_attempt_log().add(message_id, claimed_at_ms, consumer_id)

    def restore_attempts(self, message_id: int, attempts_before: Sequence[Attempt]) -> None:
        """Take in what was written of a message's attempts before the start."""
        self._use_attempt_log().restore(message_id, attempts_before)

    def erase_attempts(self, message_id: int, commit: Commit) -> None:
        """Forget the attempts of a message, and delete their record."""
        self.attempt_log.forget(message_id)
        commit.delete(attempts.key(self.storage_id, message_id))

    # failed claims

    def note_failed(self, bucket: Bucket) -> None:
        """A claim of it is kept as failed."""
        bucket.ended(1)
        self.failed_count += 1

    def note_revived(self, bucket: Bucket) -> None:
        """A failed claim of it waits again."""
        bucket.revive()
        self.failed_count -= 1

    def begin_failed(self, count: int) -> None:
        """Begin with so many failed messages, which an earlier life of the group left."""
        self.failed_count = count

    # their life

    def restore(self, bucket: Bucket) -> None:
        """Take in a bucket that was written, or opened again."""
        self[bucket.first] = bucket

    def begin_after(self, claim_number: int) -> None:
        """Without claims: give them out from there on, in a bucket of its own."""
        self.next_claim = self.first_claim = -(-claim_number // self.capacity) * self.capacity

    def earlier_gone(self) -> None:
        """Nothing is left of the group's earlier lives."""
        self.first_claim = 0

    def restore_number(self, state: ClaimState) -> None:
        """Take over the next claim number, as it was written."""
        exponent = self._log.policy.bucket_size
        self.next_claim = state.next_claim_number
        if state.bucket_exponent != exponent:
            self.next_claim = align_claim_number(self.next_claim, exponent)

    def restore_first(self, claim_end: int) -> None:
        """After a start: claims below that number are of an earlier life."""
        self.first_claim = max(self.first_claim, claim_end)
        if self.next_claim < claim_end:
            self.begin_after(claim_end)

    def end_number(self) -> int:
        """The first claim number behind all buckets."""
        return -(-self.next_claim // self.capacity) * self.capacity

    def resize(self, policy: QueuePolicy) -> bool:
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

    def close(self, bucket: Bucket) -> None:
        """It is closed and written: forget it."""
        del self[bucket.first]

    def write(self, commit: Commit, *, is_part: bool) -> tuple[list[Bucket], list[Run]]:
        """Put what changed into the commit; see `BucketRecords.write`."""
        written = self.records.write(commit, is_part=is_part)
        state = claim_state.encode(self._log.policy.bucket_size, self.next_claim)
        if state != self._written_state:
            commit.put(claim_state.key(self.storage_id), state)
            self._written_state = state
        return written
