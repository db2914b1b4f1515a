"""Letting go of messages that no group had."""

from __future__ import annotations

from queue_manager.claims.shared_release import release_noted
from queue_manager.log.members import M
from queue_manager.log.payloads import delete_payloads, runs_of
from queue_manager.log.removals import Row
from queue_manager.log.retention import Retention
from queue_manager.shard.commit import Commit


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
