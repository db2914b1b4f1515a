"""Letting go of messages that no group had."""

from __future__ import annotations

from queue_manager.claims.purge import NO_BUCKET, Purge
from queue_manager.log.members import M
from queue_manager.log.payloads import delete_payloads, runs_of, take_references
from queue_manager.log.removals import Row
from queue_manager.log.retention import Retention
from queue_manager.shard.commit import Commit


class Unowned:
    """Messages of a log without groups that were dropped, or expired, and have yet to go.

    Implements `shard.context.Skipping`, `shard.context.Purged` and `PurgeOwner`.
    """

    __slots__ = ("_purges", "_retention", "_rows")

    def __init__(self, retention: Retention[M]) -> None:
        self._retention: Retention[M] = retention
        self._rows: list[Row] = []
        self._purges: list[Purge] = []

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
        if shared_runs:
            self._purges.append(Purge(self, NO_BUCKET, 0, shared_runs))
            self._retention.log.context.purgeable[self] = None

    def take_purges(self, now_ms: int, count_max: int) -> tuple[list[Purge], bool]:
        purges = self._purges
        self._purges = []
        return purges, False

    def apply_purge(self, purge: Purge, references: dict[int, int]) -> None:
        take_references(self._retention.log.context.commit, purge.shared_items, references)
        self._retention.want_trim()
