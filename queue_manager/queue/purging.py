"""Purging one log of a queue: everything that waits goes, claimed messages stay."""

from __future__ import annotations

from collections.abc import Sequence

from queue_manager.claims.unowned import Unowned
from queue_manager.cursor.cursor import Cursor
from queue_manager.log.removals import RangeRemoval
from queue_manager.log.retention import Retention


class Purging:
    """Drops what waits for the groups of a log, and has the payloads go.

    `_has_ranges`: some go by removals that may not have been performed yet.
    """

    __slots__ = ("_context", "_has_ranges", "_retention")

    def __init__(self, retention: Retention[Cursor]) -> None:
        self._retention = retention
        self._context = retention.log.context
        self._has_ranges = False

    def purge(self) -> None:
        """Drop everything that waits."""
        log = self._retention.log
        members = self._retention.members.values()
        purged = [(cursor, cursor.purge_ready()) for cursor in members]
        is_told = log.mixes_payloads or any(cursor.unfinished() for cursor in members)
        for cursor, range_removal in purged:
            if range_removal is not None:
                self._let_go_of_range(range_removal, cursor, is_told=is_told)
        if not members:
            self._purge_unread()
        if not log.durable:
            self._retention.trim_tail(0)  # or a group made before the next message would be given it
        self._retention.want_trim()

    def _purge_unread(self) -> None:
        """Drop everything of a queue that has no group."""
        log = self._retention.log
        end = log.next_offset
        if log.durable and log.head_offset < end:
            range_removal = RangeRemoval(
                log,
                log.head_offset,
                end,
                log.head_sequence,
                Unowned(self._retention).release,
                self._retention.payloads.released.copy(),
            )
            self._let_go_of_range(range_removal, None, is_told=log.mixes_payloads)
            self._retention.want_removal_below_head()
            log.write_head(end)
        log.drop_before(end)

    def _let_go_of_range(self, range_removal: RangeRemoval, cursor: Cursor | None, *, is_told: bool) -> None:
        """Have the payloads go that no other group needs.

        A crash in between leaves behind what only memory knows of. The head takes that with it, but not
        payloads that other queues may need, nor does it pass what is in flight: then (`is_told`) a record
        tells of them, and a group that begins meanwhile passes them.
        """
        retention = self._retention
        if not is_told or not retention.is_known:
            self._has_ranges = True
            self._context.removals.append(range_removal)
            return
        passed = range_removal.offsets()
        free = passed.copy()
        free.discard_all(retention.payloads.released)
        others = [other for other in self._retention.members.values() if other is not cursor]
        if others and cursor is not None:
            cursor.progress.released.add_all(passed)
        for other in others:
            free = free.intersection(other.progress.released)
        retention.release_ranges(retention.log.name if cursor is None else cursor.storage_id, free)

    def starts(self) -> Sequence[int]:
        """Where ranges begin that were purged, and may not be gone yet: before there was a group those are
        below the head.
        """
        if not self._has_ranges:
            return ()
        log = self._retention.log
        return [r.start for r in self._context.removals if isinstance(r, RangeRemoval) and r.log is log]
