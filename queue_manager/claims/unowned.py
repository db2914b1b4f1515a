"""Letting go of messages that no group had, and of payloads that other queues hold, too."""

from __future__ import annotations

from queue_manager.claims.purge import NO_BUCKET, Purge
from queue_manager.log.members import M
from queue_manager.log.payloads import Run, delete_payloads, runs_of, take_references
from queue_manager.log.removals import Row
from queue_manager.log.retention import Retention
from queue_manager.shard.commit import Commit


def release_noted(retention: Retention[M], storage_id: str, runs: list[Run]) -> None:
    """Take references back as soon as their counts were read; a record tells of it until then, or a crash in
    between would keep the payloads for ever.
    """
    if runs:
        release = SharedRelease(retention, storage_id, runs)
        retention.log.context.purgeable[release] = None


class SharedRelease:
    """References to payloads that are to be taken back, once.

    Implements `shard.context.Purged` and `PurgeOwner`.
    """

    __slots__ = ("_noted", "_retention", "_runs")

    def __init__(self, retention: Retention[M], storage_id: str, runs: list[Run]) -> None:
        self._retention = retention
        self._runs = runs
        self._noted = retention.note_release(storage_id, runs)

    def take_purges(self, now_ms: int, count_max: int) -> tuple[list[Purge], bool]:
        if count_max <= 0:
            return [], True
        return [Purge(self, NO_BUCKET, 0, self._runs)], False

    def apply_purge(self, purge: Purge, references: dict[int, int]) -> None:
        if self._retention.end_noted(self._noted):
            take_references(self._retention.log.context.commit, purge.shared_items, references)


class Unowned:
    """Messages of a log without groups that were dropped, or expired, and have yet to go.

    Implements `shard.context.Skipping`.
    """

    __slots__ = ("_retention", "_rows")

    def __init__(self, retention: Retention[M]) -> None:
        self._retention: Retention[M] = retention
        self._rows: list[Row] = []

    def release(self, rows: list[Row]) -> None:
        """Let go of these with the open commit."""
        log = self._retention.log
        if rows and not log.deleted:
            self._rows += rows
            log.context.skipping[self] = None

    def skipped_count(self) -> int:
        return len(self._rows)

    def release_skipped(self, commit: Commit) -> None:
        runs, shared_runs = runs_of(self._rows)
        self._rows = []
        delete_payloads(commit, runs)
        self._retention.want_trim()
        release_noted(self._retention, self._retention.log.name, shared_runs)
