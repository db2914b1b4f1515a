"""Consumer groups from outside: found, and made to begin somewhere."""

from __future__ import annotations

from collections.abc import Sequence

from queue_manager.definitions import encode_spec
from queue_manager.door.consuming import Consuming
from queue_manager.errors import GroupNotFound, InvalidArgument, PreconditionFailed
from queue_manager.group import Group
from queue_manager.group_removal import GroupRemoval
from queue_manager.lanes.group import LanedGroup
from queue_manager.lanes.queue import LANE_SHIFT, priority_of
from queue_manager.patterns import MATCH_ALL
from queue_manager.queue import Queue
from queue_manager.ranges import RangeSet
from queue_manager.removal import HeadRemoval
from queue_manager.retention import advance_head
from queue_manager.streams.group import StreamGroup
from queue_manager.streams.start import StreamStart
from queue_manager.streams.stream import Stream
from storage.records import queue_spec
from storage.records.group_removal import RELEASE

Place = tuple[int, int]  # an offset, and a metadata-log sequence at or before its entry (0: not known)


class Administering(Consuming):
    """Find and create groups."""

    def find_group(self, queue: Queue, group_id: str) -> Group:
        """The group of that ID (name, or `name@pattern`); raises GroupNotFound."""
        group = queue.groups.get(group_id)
        if group is None or (isinstance(group, StreamGroup) and group.is_anonymous):
            raise GroupNotFound(f"queue {queue.name!r} has no consumer group {group_id!r}")
        return group

    def past_known(self, queue: Queue, now_ms: int) -> None:
        """After a start it is known now what the queue let go of; groups made meanwhile may begin."""
        queue.released_known = True
        if queue.head_offset > priority_of(queue.head_offset) << LANE_SHIFT:
            self.removals.append(HeadRemoval(queue))  # what a crash kept from being trimmed
        for group in queue.groups.values():
            if group.passed_over is not None:
                group.passed_over.arm()
        for group in [group for group in self.unborn if group.queue is queue]:
            self.unborn.remove(group)
            group.loading = False
            group.released.add_all(queue.released)
            group.pass_over(queue.released)
            group.mark_dirty()
            self.journal.put(queue_spec.key(group.storage_id), encode_spec(queue, group))
            if group.holes is not None:
                queue.note_holes()
            group.mark_dispatch()
            for member in {group, group.lead} if isinstance(group, LanedGroup) else {group}:
                waiting = member.on_loaded
                member.on_loaded = []
                for call in waiting:
                    call(now_ms)

    def create_group(
        self,
        queue: Queue,
        name: str,
        pattern: str,
        places: Sequence[Place] | None = None,
        selector: str = "",
        start: StreamStart | None = None,
    ) -> Group:
        """Make a group that begins at `places`, one for each of `queue.parts()` (None: the oldest message
        kept).

        A group of a stream begins at `start` instead. Raises PreconditionFailed if the group is there,
        InvalidAddress, LimitReached.
        """
        group_id = name if pattern == MATCH_ALL else f"{name}@{pattern}"
        if group_id in queue.groups:
            raise PreconditionFailed(f"queue {queue.name!r} has a consumer group {group_id!r} already")
        if isinstance(queue, Stream) and not name:
            raise InvalidArgument(f"queue {queue.name!r} is a stream: a group needs a name")
        group = self.group(queue, name, pattern, selector)
        if isinstance(group, StreamGroup):
            if start is not None:
                group.seek(start)
        elif places is not None:
            for part, place in zip(queue.parts(), places, strict=True):
                self.begin_at(part.groups[group_id], *place)
        return group

    def begin_at(self, group: Group, position: int, sequence: int = 0) -> None:
        """Have a group that was just made begin at offset `position`; see `create_group`."""
        queue = group.queue
        position = min(max(position, queue.head_offset), queue.tail.next_offset)
        passed = RangeSet()
        passed.add(group.position, position)
        group.position = position
        if queue.keeper is not None:
            queue.keeper.farewell(group)
        group.cursor_sequence = max(group.cursor_sequence, sequence, queue.sequence_at(position) or 0)
        group.released.add_all(passed)
        group.holes = None
        group.pass_over(queue.released)
        if queue.keeper is not None:
            queue.keeper.welcome(group)
        if not queue.durable:
            return
        group.mark_dirty()
        if len(queue.groups) == 1:
            # nobody else wants what it passes over; of several groups the others keep it
            passed.discard_all(queue.released)
            self.let_go(GroupRemoval(queue, group.storage_id, self.removal_number(), RELEASE), passed)

    def removal_number(self) -> int:
        """A number that no message and no other removal gets."""
        number, put = self.message_ids.allocate(1)
        if put is not None:
            self.journal.puts[put[0]] = put[1]
        return number

    def let_go(self, removal: GroupRemoval, free: RangeSet) -> None:
        """Count `free` as let go of from now on, and have the driver do it."""
        queue = removal.queue
        queue.released.add_all(free)
        for group in queue.groups.values():
            free.discard_all(group.failed_offsets)  # these have the payload now
        if not free.starts and not removal.has_rows:
            return
        removal.log_free = free
        queue.group_removals.append(removal)
        self.journal.put(removal.key(), removal.encode())
        self.removals.append(removal)
        if queue.released.starts:
            queue.note_holes()
        if advance_head(queue):
            self.removals.append(HeadRemoval(queue))
