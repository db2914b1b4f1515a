"""What the buckets of one cursor have on the store, and how that is kept up to date.

A bucket has an active, a done and a failed record (`02`, `03`, `04`). While only acknowledgements come, none
of them is written again: what was settled goes into a small record of its own (`21`). The bucket is written
as a whole, and those records deleted, when it closes, when there are `limits.SETTLEMENTS_PER_BUCKET_MAX` of
them, or when done messages are let go of.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from config import limits
from queue_manager.claims.attempts import AttemptLog
from queue_manager.claims.claim import DONE, FAILED, Bucket, Claim
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.runs import Run, add_to_runs
from queue_manager.policy import FOREVER
from queue_manager.shard.commit import Commit
from storage.records import active, attempts, done, failed, settlements
from storage.records.bucket_values import packed_claim_id


class OpenBuckets(Protocol):
    """The buckets with something open, or not full."""

    def values(self) -> Collection[Bucket]:
        """All of them."""

    @property
    def attempt_log(self) -> AttemptLog:
        """The attempts of its messages that failed."""

    @property
    def failed_count(self) -> int:
        """How many failed messages the cursor keeps."""

    def is_closed(self, bucket: Bucket) -> bool:
        """Whether every message of it is settled and no claim number will be given out from it any more."""

    def close(self, bucket: Bucket) -> None:
        """It is closed and written: forget it."""


class Stored(Protocol):
    """What the store has of the cursor."""

    def mark_dirty(self) -> None:
        """There is something to write."""


class BucketRecords:
    """Writes of each bucket what changed."""

    __slots__ = ("_buckets", "_unwritten", "_log", "_storage_id", "_stored")

    def __init__(self, log: QueueLog, storage_id: str, buckets: OpenBuckets, stored: Stored) -> None:
        self._log = log
        self._storage_id = storage_id
        self._buckets = buckets
        self._stored = stored
        self._unwritten: list[Bucket] = []

    @property
    def are_many(self) -> bool:
        """Whether so many changed that they should not all wait for the commit to be closed."""
        return len(self._unwritten) >= limits.UNWRITTEN_BUCKETS_MAX

    def touch(self, bucket: Bucket) -> None:
        """Have a bucket written with one of the next commits: claims came into it, or changed."""
        bucket.is_active_changed = True
        self.settled(bucket)

    def settled(self, bucket: Bucket) -> None:
        """As `touch`, where claims only ended."""
        if not bucket.is_unwritten:
            bucket.is_unwritten = True
            self._unwritten.append(bucket)
            self._stored.mark_dirty()

    def want_whole(self, bucket: Bucket) -> None:
        """As `touch`, and have the bucket written as a whole."""
        bucket.is_whole_wanted = True
        self.settled(bucket)

    def want_all_whole(self) -> None:
        """Have every bucket written as a whole that is not."""
        for bucket in self._buckets.values():
            if bucket.settlement_keys:
                self.want_whole(bucket)

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
            bucket.is_unwritten = False
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
            self._write_whole(bucket, commit)
        else:
            if bucket.is_active_changed or not bucket.open_count:
                self._write_active(bucket, commit)
                gone = []  # it is not in there
            self._write_settlements(bucket, gone, commit)
        if self._buckets.failed_count or bucket.failed_written:
            self._write_failed(bucket, commit)

    def _write_whole(self, bucket: Bucket, commit: Commit) -> None:
        self._write_active(bucket, commit)
        key = done.key(self._storage_id, bucket.bucket_id)
        value = bucket.encode_settled(DONE)
        bucket.done_written = _put_or_delete(commit, key, value, is_written=bucket.done_written)
        commit.delete_run(bucket.settlement_keys)
        bucket.note_whole()

    def _write_active(self, bucket: Bucket, commit: Commit) -> None:
        key = active.key(self._storage_id, bucket.bucket_id)
        value = bucket.encode_active()
        bucket.active_written = _put_or_delete(commit, key, value, is_written=bucket.active_written)

    def _write_settlements(self, bucket: Bucket, gone: list[int], commit: Commit) -> None:
        """What is done since the last writing, and what is `gone` of the active record."""
        packed = bucket.pack_done()
        if not packed and not gone:
            return
        if not gone and not bucket.done_written:
            commit.put(done.key(self._storage_id, bucket.bucket_id), done.encode(packed))
            bucket.done_written = True
            return
        first = min([packed_claim_id(element) for element in packed[:1]] + gone[:1])
        key = settlements.key(self._storage_id, bucket.bucket_id, first)
        commit.put(key, settlements.encode(packed, gone))
        bucket.note_settlements(key, has_done=bool(packed))

    def _write_failed(self, bucket: Bucket, commit: Commit) -> None:
        key = failed.key(self._storage_id, bucket.bucket_id)
        value = bucket.encode_settled(FAILED)
        bucket.failed_written = _put_or_delete(commit, key, value, is_written=bucket.failed_written)

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


def _put_or_delete(commit: Commit, key: bytes, value: bytes | None, *, is_written: bool) -> bool:
    """Write a record, or delete one that says nothing any more; give whether it is on the store then."""
    if value is not None:
        commit.put(key, value)
    elif is_written:
        commit.delete(key)
    return value is not None
