"""Messages that a cursor passed without ever claiming them."""

from __future__ import annotations

from typing import Generic

from queue_manager.cursor.done_purges import DonePurges, H
from queue_manager.log.removals import Row
from queue_manager.log.retention import Retention
from queue_manager.log.runs import runs_of
from queue_manager.shard.commit import Commit


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
