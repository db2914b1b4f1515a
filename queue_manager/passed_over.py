"""What a group passed over by a reset is kept for `done_retention`, as what it did is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queue_manager.group_removal import GroupRemoval
from queue_manager.policy import FOREVER
from queue_manager.ranges import RangeSet
from storage.records import passed
from storage.records.group_removal import RELEASE

if TYPE_CHECKING:
    from queue_manager.group import Group


class PassedOver:
    """Offsets below a group's position that stay kept, for a later reset, since `passed_at_ms`.

    Until its queue's done retention ends the group does not count as having let go of them; failed messages
    are never among them.
    """

    __slots__ = ("group", "passed_at_ms", "ranges")

    def __init__(self, group: Group, ranges: RangeSet, passed_at_ms: int) -> None:
        self.group = group
        self.ranges = ranges
        self.passed_at_ms = passed_at_ms

    def write(self) -> None:
        """Put its record into the open commit."""
        record = passed.encode(self.passed_at_ms, self.ranges.pairs())
        self.group.queue.manager.journal.put(passed.key(self.group.storage_id), record)

    def arm(self) -> None:
        """Have it end in time."""
        queue = self.group.queue
        retention_ms = queue.policy.done_retention_ms
        if retention_ms != FOREVER:
            queue.manager.timers.set(self, self.passed_at_ms + retention_ms)

    def on_timer(self, now_ms: int) -> None:
        """Let go of what no other group needs."""
        group = self.group
        queue = group.queue
        if queue.deleted or group.removed or group.passed_over is not self:
            return
        manager = queue.manager
        group.passed_over = None
        manager.journal.delete(passed.key(group.storage_id))
        ranges = self.ranges
        ranges.drop_before(queue.head_offset)
        group.released.add_all(ranges)
        for other in queue.groups.values():
            if other is not group:
                ranges = ranges.intersection(other.released)
        ranges.discard_all(queue.released)
        removal = GroupRemoval(queue, group.storage_id, manager.removal_number(), RELEASE)
        manager.let_go(removal, ranges)


def pass_over(old: Group, new: Group, now_ms: int) -> RangeSet:
    """Keep what `new`, which takes the place of `old`, begins behind and `old` had not let go of; give it."""
    queue = new.queue
    held = RangeSet()
    if queue.policy.done_retention_ms:
        held.add(queue.head_offset, new.position)
        for gone in (queue.released, old.released, new.failed_offsets):
            held.discard_all(gone)
    if held.starts:
        new.passed_over = PassedOver(new, held, now_ms)
        new.passed_over.write()
        new.passed_over.arm()
    else:
        queue.manager.journal.delete(passed.key(new.storage_id))
    return held
