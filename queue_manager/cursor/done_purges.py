"""When the done messages of one cursor go: their records, attempts and payloads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic

from queue_manager.claims.claim import Bucket
from queue_manager.claims.ledger import Claims
from queue_manager.claims.purge import Purge
from queue_manager.claims.unowned import release_noted
from queue_manager.cursor.owning_cursor import H
from queue_manager.log.payloads import Run, runs_of
from queue_manager.log.removals import Row
from queue_manager.log.retention import Retention
from queue_manager.policy import FOREVER
from queue_manager.shard.commit import Commit
from storage.layout import NUMBER_MASK
from storage.records import done


class DonePurges(Generic[H]):
    """Purges of closed buckets, in order of time, and what is due in open ones.

    Implements `queue_manager.shard.context.Purged`.
    """

    __slots__ = ("_claims", "_due", "_holder", "_log", "_retention")

    def __init__(self, retention: Retention[H], holder: H, claims: Claims) -> None:
        self._retention = retention
        self._log = retention.log
        self._holder = holder
        self._claims = claims
        self._due: list[Purge] = []

    def __iter__(self) -> Iterator[Purge]:
        return iter(self._due)

    def __len__(self) -> int:
        return len(self._due)

    def want(self) -> None:
        """Have done records looked for whose retention has passed."""
        self._log.context.purgeable[self] = None

    def schedule(self, bucket: Bucket, now_ms: int) -> None:
        """Schedule the purge of a bucket that is closed."""
        retention_ms = self._log.policy.done_retention_ms
        if retention_ms != FOREVER and bucket.done_written:
            due_ms = now_ms + retention_ms
            self._due.append(Purge.of_bucket(self, bucket, self._claims.buckets.attempt_log, due_ms))

    def release_shared(self, runs: list[Run]) -> None:
        """Let go of payloads that other queues hold too: their reference counts have to be read first."""
        retention = self._retention
        storage_id = self._claims.buckets.storage_id
        if retention.is_known or len(retention.members) < 2:
            release_noted(retention, storage_id, retention.payloads.release(self._holder, runs))
        else:
            retention.note_own_release(storage_id, runs)

    def take_purges(self, now_ms: int, count_max: int) -> tuple[list[Purge], bool]:
        if self._log.deleted:
            return [], False
        taken: list[Purge] = []
        count = 0
        due = self._due
        for purge in due:
            if purge.due_ms > now_ms or count >= count_max:
                break
            count += purge.message_count()
            taken.append(purge)
        del due[: len(taken)]
        retention_ms = self._log.policy.done_retention_ms
        attempt_log = self._claims.buckets.attempt_log
        more = bool(due)
        for bucket in self._claims.buckets.values():
            more |= bucket.done_written
            if retention_ms != FOREVER and bucket.done_written and not bucket.is_unwritten:
                part = Purge.of_open_bucket(self, bucket, attempt_log, retention_ms, now_ms)
                if part is not None:
                    taken.append(part)
        return taken, more

    def apply_purge(self, purge: Purge, references: dict[int, int]) -> None:
        """See `PurgeOwner`; what a removal lets go of is left to that."""
        holder = self._holder
        if holder.is_over():
            return
        claims = self._claims
        commit = self._log.context.commit
        bucket = claims.buckets.get(purge.bucket_id & NUMBER_MASK)
        if bucket is not None:
            # as it is at the end of this commit: what goes must not be left in its active record either
            bucket.want_whole()
            holder.stored.write_soon()
        elif not purge.was_open:
            commit.delete(done.key(claims.buckets.storage_id, purge.bucket_id))
        for message_id in purge.attempt_ids:
            claims.buckets.erase_attempts(message_id, commit)
        self._retention.payloads.release_unshared(holder, purge.items)
        self._retention.payloads.release_shared(holder, purge.shared_items, references)

    def restore(self, purges: list[Purge]) -> None:
        """Take in purges of done records that were written before the start, oldest first."""
        self._due[:0] = purges
        self.want()

    def cancel(self, bucket_id: int) -> None:
        """Cancel the purge of a closed bucket that is opened again."""
        self._due = [purge for purge in self._due if purge.bucket_id != bucket_id]

    def clear(self) -> None:
        """Forget all: the group is gone, and a removal lets go of what it kept."""
        self._due.clear()


class SkippedRows(Generic[H]):
    """The messages passed since the last commit; they are let go of in the next, together with the position.

    Implements `queue_manager.shard.context.Skipping`.
    """

    __slots__ = ("_holder", "_purges", "_retention", "_rows")

    def __init__(self, retention: Retention[H], holder: H, purges: DonePurges[H]) -> None:
        self._retention = retention
        self._holder = holder
        self._purges = purges
        self._rows: list[Row] = []

    def add(self, rows: list[Row]) -> None:
        """Note that the group is done with these."""
        if rows and not self._holder.is_over():
            self._rows += rows
            self._retention.log.context.skipping[self] = None

    def skipped_count(self) -> int:
        return len(self._rows)

    def release_skipped(self, commit: Commit) -> None:
        runs, shared_runs = runs_of(self._rows)
        self._rows = []
        self._retention.payloads.release_unshared(self._holder, runs)
        if shared_runs:
            self._purges.release_shared(shared_runs)
        # the position goes with it, or a restart would skip and release the same messages again
        self._holder.stored.write_soon()

    def clear(self) -> None:
        """Forget all: the group is gone, and a removal lets go of what it kept."""
        self._rows = []
