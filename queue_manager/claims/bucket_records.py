"""What the buckets of one cursor have on the store, and how that is kept up to date.

A bucket has an active, a done and a failed record (`02`, `03`, `04`). While only acknowledgements come, none
of them is written again: what was settled goes into a small record of its own (`21`). The bucket is written
as a whole, and those records deleted, when it closes, when there are `limits.SETTLEMENTS_PER_BUCKET_MAX` of
them, or when done messages are let go of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from config import limits
from queue_manager.claims.attempts import AttemptLog
from queue_manager.claims.claim import DONE, Bucket, Claim
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.runs import Run, add_to_runs
from queue_manager.policy import FOREVER
from queue_manager.shard.commit import Commit
from storage.records import attempts


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


class BucketRecords:
    """Writes of each bucket what changed."""

    __slots__ = ("_buckets", "_unwritten", "_log", "_storage_id", "_mark_dirty")

    def __init__(
        self, log: QueueLog, storage_id: str, buckets: OpenBuckets, mark_dirty: Callable[[], None]
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
        """Have every bucket written as a whole that is not."""
        for bucket in self._buckets.values():
            if bucket.settlement_keys:
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
