"""Payloads that other queues hold, too, let go of soon after the commit that tells so."""

from __future__ import annotations

from queue_manager.claims.purge import NO_BUCKET, Purge
from queue_manager.log.members import M
from queue_manager.log.payloads import Run, take_references
from queue_manager.log.retention import Retention


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
