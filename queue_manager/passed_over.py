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
    """Offsets below a group's position that stay kept until `due_ms` (`FOREVER`: always), for a later reset.

    The group does not count as having let go of them before; failed messages are never among them.
    """

    __slots__ = ("due_ms", "group", "ranges")

    def __init__(self, group: Group, ranges: RangeSet, due_ms: int) -> None:
        self.group = group
        self.ranges = ranges
        self.due_ms = due_ms

    def write(self) -> None:
        """Put its record into the open commit."""
        record = passed.encode(self.due_ms, self.ranges.pairs())
        self.group.queue.manager.journal.put(passed.key(self.group.storage_id), record)

    def arm(self) -> None:
        """Have it end in time."""
        if self.due_ms != FOREVER:
            self.group.queue.manager.timers.set(self, self.due_ms)

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
    retention_ms = queue.policy.done_retention_ms
    held = RangeSet()
    if retention_ms:
        held.add(queue.head_offset, new.position)
        for gone in (queue.released, old.released, new.failed_offsets):
            held.discard_all(gone)
    if held.starts:
        due_ms = FOREVER if retention_ms == FOREVER else now_ms + retention_ms
        new.passed_over = PassedOver(new, held, due_ms)
        new.passed_over.write()
        new.passed_over.arm()
    else:
        queue.manager.journal.delete(passed.key(new.storage_id))
    return held
