"""The buckets of one cursor, and the numbers of its claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from config import limits
from queue_manager.claims.attempts import NO_ATTEMPTS, AttemptLog
from queue_manager.claims.claim import AVAILABLE, DONE, IN_FLIGHT, RETURNING, Bucket, Claim, Consumer
from queue_manager.log.payloads import Run, add_to_runs
from queue_manager.log.queue_log import QueueLog
from queue_manager.model import Message
from queue_manager.policy import FOREVER, QueuePolicy
from queue_manager.shard.commit import Commit
from storage.layout import NUMBER_BITS, align_claim_number, bucket_capacity
from storage.records import ClaimState, attempts, claim_state


class Buckets(dict[int, Bucket]):
    """The buckets with something open, or not full, by their first claim number; none if the log is not
    durable.

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
        mixes_payloads = self._log.mixes_payloads
        if count == 1:
            bucket = self._bucket(number)
            claims = [Claim(messages[0], number, bucket, attempts, state, consumer, now_ms)]
            bucket.add_run(claims, 0 if state == DONE else 1, messages, mixes_payloads=mixes_payloads)
            return claims
        claims = []
        while count:
            bucket = self._bucket(number)
            part = messages[: bucket.capacity - len(bucket.claims)]
            made = [
                Claim(message, claim_number, bucket, attempts, state, consumer, now_ms)
                for claim_number, message in enumerate(part, number)
            ]
            bucket.add_run(made, 0 if state == DONE else len(made), part, mixes_payloads=mixes_payloads)
            claims += made
            messages = messages[len(part) :]
            number += len(part)
            count -= len(part)
        return claims

    def make_one(self, message: Message, now_ms: int) -> Claim:
        """Make an available claim, never tried, of a message from anywhere in the log."""
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

    def use_attempt_log(self) -> AttemptLog:
        """Return the log of attempts, which begins with the first that is noted."""
        if self.attempt_log is NO_ATTEMPTS:
            self.attempt_log = AttemptLog()
        return self.attempt_log

    def erase_attempts(self, message_id: int, commit: Commit) -> None:
        """Forget the attempts of a message, and delete their record."""
        self.attempt_log.forget(message_id)
        commit.delete(attempts.key(self.storage_id, message_id))

    # failed claims

    def note_failed(self, bucket: Bucket) -> None:
        """Count a claim of the bucket as ended, and as failed."""
        bucket.ended(1)
        self.failed_count += 1

    def note_revived(self, bucket: Bucket) -> None:
        """Count a failed claim of the bucket as open again."""
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
        """Return the first claim number behind all buckets."""
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
        """Forget a bucket that is closed and written."""
        del self[bucket.first]

    def write(self, commit: Commit, *, is_part: bool) -> tuple[list[Bucket], list[Run]]:
        """Put what changed into the commit; see `BucketRecords.write`."""
        written = self.records.write(commit, is_part=is_part)
        state = claim_state.encode(self._log.policy.bucket_size, self.next_claim)
        if state != self._written_state:
            commit.put(claim_state.key(self.storage_id), state)
            self._written_state = state
        return written


class BucketRecords:
    """The records of one cursor's buckets on the store: of each what changed is written.

    A bucket has an active, a done and a failed record (`02`, `03`, `04`). While only acknowledgements come,
    none of them is written again: what was settled goes into a small record of its own (`21`). The bucket is
    written as a whole, and those records deleted, when it closes, when there are
    `limits.SETTLEMENTS_PER_BUCKET_MAX` of them, or when done messages are let go of.
    """

    __slots__ = ("_buckets", "_unwritten", "_log", "_storage_id", "_mark_dirty")

    def __init__(
        self, log: QueueLog, storage_id: str, buckets: Buckets, mark_dirty: Callable[[], None]
    ) -> None:
        self._log = log
        self._storage_id = storage_id
        self._buckets = buckets
        self._mark_dirty = mark_dirty
        self._unwritten: list[Bucket] = []

    @property
    def are_many(self) -> bool:
        """Whether so many changed that they should not all wait for the commit to be closed."""
        return len(self._unwritten) >= limits.UNWRITTEN_BUCKETS_MAX

    def want(self, bucket: Bucket) -> None:
        """Something of it changed: have it written with one of the next commits."""
        self._unwritten.append(bucket)
        self._mark_dirty()

    def want_all_whole(self) -> None:
        """Have every bucket written as a whole that is not, or would not be."""
        for bucket in self._buckets.values():
            if bucket.settlement_keys or bucket.is_unwritten:
                bucket.want_whole()

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._unwritten)

    def write(self, commit: Commit, *, is_part: bool = False) -> tuple[list[Bucket], list[Run]]:
        """Put what changed into the commit; give the buckets that are closed now, and the runs that are done
        and not kept: with `done_retention: 0` all, else those of large messages.

        `is_part`: of the buckets where claims only ended, leave what is too much for one turn to later calls.
        A crash makes those claims again, as it does before anything of them is written.
        """
        closed: list[Bucket] = []
        released: list[Run] = []
        unwritten = self._take_part() if is_part else self._unwritten
        if unwritten is self._unwritten:
            self._unwritten = []
        settled: list[int] = []
        attempt_log = self._buckets.attempt_log
        is_full = attempt_log.is_full()
        for bucket in unwritten:
            bucket.write_begins()
            if is_full:
                settled += bucket.settled_message_ids()
            self._write_bucket(bucket, commit, released)
            if self._buckets.is_closed(bucket):
                self._buckets.close(bucket)
                closed.append(bucket)
        attempt_log.write(self._storage_id, commit)
        attempt_log.let_go(settled)
        return closed, released

    def _take_part(self) -> list[Bucket]:
        if len(self._unwritten) <= limits.PART_BUCKETS_MIN:
            return self._unwritten
        room = limits.PART_COST_MAX
        part: list[Bucket] = []
        rest: list[Bucket] = []
        for bucket in self._unwritten:
            if bucket.is_active_changed or bucket.is_whole_wanted:
                part.append(bucket)  # the cursor's position is behind claims that only this bucket tells of
            elif room > 0:
                room -= limits.BUCKET_COST + len(bucket.claims) - bucket.open_count
                part.append(bucket)
            else:
                rest.append(bucket)
        self._unwritten = rest
        return part

    def _write_bucket(self, bucket: Bucket, commit: Commit, released: list[Run]) -> None:
        assert 0 <= bucket.open_count <= bucket.capacity, f"{bucket.open_count} claims are open"
        gone = []
        retention_ms = self._log.policy.done_retention_ms
        if not retention_ms:
            gone = self._release_done(bucket, released, commit, 0)
        elif self._log.has_large and retention_ms != FOREVER:
            gone = self._release_done(bucket, released, commit, limits.DONE_BODY_BYTES_MAX + 1)
        if (
            bucket.is_whole_wanted
            or self._buckets.is_closed(bucket)
            or len(bucket.settlement_keys) >= limits.SETTLEMENTS_PER_BUCKET_MAX
        ):
            bucket.write_whole(self._storage_id, commit)
        else:
            if bucket.is_active_changed or not bucket.open_count:
                bucket.write_active(self._storage_id, commit)
                gone = []  # it is not in there
            bucket.write_settlements(self._storage_id, gone, commit)
        if self._buckets.failed_count or bucket.failed_written:
            bucket.write_failed(self._storage_id, commit)

    def _release_done(
        self, bucket: Bucket, runs: list[Run], commit: Commit, body_bytes_min: int
    ) -> list[int]:
        """Let go of what is done, and so large, without ever writing a done record; give the claim IDs.

        Payloads shared with other queues need their reference count read first, so they take the long way.
        """
        gone: list[int] = []
        for index, claim in enumerate(bucket.claims):
            if (
                claim is not None
                and claim.state == DONE
                and not claim.packed
                and not claim.message.template.shared
                and len(claim.message.body or b"") >= body_bytes_min
            ):
                add_to_runs(runs, claim.message.offset, claim.message.message_id)
                self.forget_attempts(claim, commit)
                bucket.drop(index)
                gone.append(bucket.claim_base | claim.claim_number)
        return gone

    def forget_attempts(self, claim: Claim, commit: Commit) -> None:
        """Delete the attempts record of a message that is gone, if it had one."""
        message_id = claim.message.message_id
        if self._buckets.attempt_log.forget(message_id) or claim.attempts > 1:
            commit.delete(attempts.key(self._storage_id, message_id))
