"""The messages that a group passed by a reset: kept for `done_retention`, as done ones are."""

from __future__ import annotations

from queue_manager.cursor.cursor import Cursor
from queue_manager.log.members import others_than
from queue_manager.log.range_set import RangeSet
from queue_manager.policy import FOREVER
from storage.records import skipped_offsets


class ResetKeep:
    """Offsets below a cursor's position that stay kept, for a later reset, since `passed_at_ms`.

    Until its queue's done retention ends the group does not count as having let go of them; failed messages
    are never among them.
    """

    __slots__ = ("_context", "_cursor", "passed_at_ms", "ranges")

    def __init__(self, cursor: Cursor, ranges: RangeSet, passed_at_ms: int) -> None:
        self._cursor = cursor
        self._context = cursor.log.context
        self.ranges = ranges
        self.passed_at_ms = passed_at_ms

    def write(self) -> None:
        """Put its record into the open commit."""
        record = skipped_offsets.encode(self.passed_at_ms, self.ranges.pairs())
        self._context.commit.put(skipped_offsets.key(self._cursor.storage_id), record)

    def arm(self) -> None:
        """Have it end in time."""
        retention_ms = self._cursor.log.policy.done_retention_ms
        if retention_ms != FOREVER:
            self._context.timers.set(self, self.passed_at_ms + retention_ms)

    def end(self) -> None:
        """Keep nothing any more: the group is gone, or was reset again."""
        self._context.timers.forget(self)

    def on_timer(self, now_ms: int) -> None:
        """Let go of what no other group needs."""
        cursor = self._cursor
        if cursor.is_over():
            return
        retention = cursor.retention
        cursor.keep(None)
        self._context.commit.delete(skipped_offsets.key(cursor.storage_id))
        ranges = self.ranges
        ranges.drop_before(cursor.log.head_offset)
        cursor.progress.released.add_all(ranges)
        for other in others_than(cursor, retention.members):
            ranges = ranges.intersection(other.progress.released)
        ranges.discard_all(retention.payloads.released)
        retention.release_ranges(cursor.storage_id, ranges)


def keep_passed(old: Cursor, new: Cursor, now_ms: int) -> RangeSet:
    """Keep what `new`, which takes the place of `old`, begins behind and `old` had not let go of; give it."""
    log = new.log
    held = RangeSet()
    if log.policy.done_retention_ms:
        held.add(log.head_offset, new.position)
        for gone in (new.retention.payloads.released, old.progress.released, new.progress.failed):
            held.discard_all(gone)
    if held.starts:
        keep = ResetKeep(new, held, now_ms)
        keep.write()
        keep.arm()
        new.keep(keep)
    else:
        log.context.commit.delete(skipped_offsets.key(new.storage_id))
    return held
