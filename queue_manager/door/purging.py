"""Queues purged."""

from __future__ import annotations

from config import limits
from queue_manager.door.administering import Administering
from queue_manager.group import Group
from queue_manager.group_removal import GroupRemoval
from queue_manager.patterns import MATCH_ALL
from queue_manager.queue import Queue
from queue_manager.ranges import RangeSet
from queue_manager.removal import HeadRemoval, RangeRemoval
from queue_manager.streams.stream import Stream
from storage.records import queue_meta
from storage.records.group_removal import RELEASE


class Purging(Administering):
    """Drop what waits."""

    def purge(self, queue: Queue, now_ms: int) -> int:
        """Drop every waiting message of every group; claimed ones stay. Give how many it were."""
        count = queue.waiting_count()
        if queue.stage is not None:
            count += queue.stage.purge()
        if isinstance(queue, Stream):
            queue.cut(queue.tail.next_offset)
            return count
        for part in queue.parts():
            for group in part.groups.values():
                if removal := group.purge_ready():
                    self._let_go_of_range(removal)
            if not part.groups:
                self._purge_unread(part)
            self.trimmable[part] = None
        return count

    def _purge_unread(self, queue: Queue) -> None:
        """Drop everything of a queue that has no group."""
        end = queue.tail.next_offset
        nobody = Group(queue, "", MATCH_ALL, queue.head_offset, queue.head_sequence)
        if queue.durable and queue.head_offset < end:
            removal = RangeRemoval(nobody, queue.head_offset, end, queue.head_sequence)
            removal.kept = queue.released.copy()
            self._let_go_of_range(removal)
            self.removals.append(HeadRemoval(queue))
            self.journal.put(queue_meta.key(queue.name), queue_meta.encode(end, queue.head_sequence))
        queue.head_offset = end
        queue.tail.drop_before(end)
        if queue.keeper is not None:
            queue.keeper.purged(None)

    def _let_go_of_range(self, removal: RangeRemoval) -> None:
        """Have the payloads go that no other group needs.

        A crash in between leaves behind what only memory knows of. The head takes that with it, but not
        payloads that other queues may need: of those a record tells.
        """
        group = removal.group
        queue = group.queue
        is_busy = len(queue.group_removals) >= limits.GROUP_REMOVALS_PER_QUEUE_MAX
        if not queue.mixes_payloads or not queue.released_known or is_busy:
            self.removals.append(removal)
            return
        passed = RangeSet()
        passed.add(removal.start, removal.end)
        if removal.kept is not None:
            passed.discard_all(removal.kept)
        free = passed.copy()
        free.discard_all(queue.released)
        others = [other for other in queue.groups.values() if other is not group]
        if others:
            group.released.add_all(passed)
        for other in others:
            free = free.intersection(other.released)
        self.let_go(GroupRemoval(queue, group.storage_id, self.removal_number(), RELEASE), free)
