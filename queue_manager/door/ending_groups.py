"""Consumer groups reset and deleted."""

from __future__ import annotations

from collections.abc import Sequence

from config import limits
from queue_manager import group_records
from queue_manager.definitions import encode_spec
from queue_manager.door.administering import Administering, Place
from queue_manager.errors import PreconditionFailed
from queue_manager.group import Group
from queue_manager.group_removal import GroupRemoval, begin_after
from queue_manager.groups.settling import release_claim
from queue_manager.lanes.group import LanedGroup
from queue_manager.model import AVAILABLE, DONE, IN_FLIGHT, STALE, Message
from queue_manager.passed_over import pass_over
from queue_manager.queue import Queue
from queue_manager.ranges import RangeSet
from queue_manager.streams.group import StreamGroup
from queue_manager.streams.start import StreamStart
from storage.records import claim_state, group_position, log_cursor, passed, queue_meta, queue_spec
from storage.records.group_removal import DELETE, RESET


class EndingGroups(Administering):
    """Reset and delete groups."""

    def delete_group(self, queue: Queue, group_id: str, now_ms: int, *, force: bool = False) -> None:
        """Remove a group: its consumers are cancelled, its claims end, what only it kept goes.

        Of the queue's last group what it had not done stays with the queue. Raises GroupNotFound, and
        PreconditionFailed while it is used, unless `force`, or while the queue's past is still being read.
        """
        lead = self._idle_group(queue, group_id, force)
        if lead.sticky is not None:
            lead.sticky.dissolve()
        ended: list[tuple[Group, GroupRemoval | None, list[Message]]] = []
        for part in queue.parts():
            group = part.groups[group_id]
            unfinished = _unfinished(group)
            ended.append((group, self._begin_removal(group, DELETE, now_ms), unfinished))
            del part.groups[group_id]
        for group, _, _ in ended:
            self._retire(group)
        told = f"queue {queue.name!r}"
        for consumer in [*lead.consumers, *lead.draining]:
            was_active = consumer.active
            consumer.active = False
            for entry in list(consumer.in_flight.values()):
                release_claim(entry)
                entry.state = DONE
            if was_active:
                consumer.sink.cancelled(consumer, f"consumer group {group_id!r} of {told} was deleted")
        for group, removal, unfinished in ended:
            group.consumers = []
            group.draining = []
            if not queue.durable:
                group.queue.trim_tail(0)
            else:
                self._forget_records(group)
                if removal is not None:
                    self._let_go_of_all(group, removal, unfinished)

    def _forget_records(self, group: Group) -> None:
        journal = self.journal
        queue = group.queue
        storage_id = group.storage_id
        journal.delete(claim_state.key(storage_id))
        journal.delete(group_position.key(storage_id))
        journal.delete(log_cursor.key(storage_id, queue.log_id))
        journal.delete(passed.key(storage_id))
        if group.group_id:
            journal.delete(queue_spec.key(storage_id))
        else:
            journal.put(queue_spec.key(storage_id), encode_spec(queue))

    def _let_go_of_all(self, group: Group, removal: GroupRemoval, unfinished: list[Message]) -> None:
        queue = group.queue
        others = list(queue.groups.values())
        if others:
            free = _common(others)
        else:
            free = group.taken()
            free.drop_before(queue.head_offset)
            for message in unfinished:
                free.discard(message.offset, message.offset + 1)
            if queue.keeper is not None:
                queue.keeper.inherit(unfinished)
            # it may not be written yet, and no group will tell any more
            self.journal.put(
                queue_meta.key(queue.name), queue_meta.encode(queue.head_offset, queue.head_sequence)
            )
        free.discard_all(queue.released)
        free.discard_all(group.failed_offsets)
        gone = queue.released.copy()
        gone.add(0, queue.head_offset)
        removal.row_free = group.failed_offsets.intersection(gone)
        for other in others:
            removal.row_free.discard_all(other.failed_offsets)
        self.let_go(removal, free)

    def reset_group(
        self,
        group: Group,
        places: Sequence[Place],
        now_ms: int,
        *,
        start: StreamStart | None = None,
        force: bool = False,
    ) -> Group:
        """Have a group go on at `places`, one for each part of its queue, as if it had done everything before
        them and nothing from there.

        What is not kept any more stays away; failed messages before a place stay failed. Gives the group
        that takes its place; its consumers stay, their claims end. A group of a stream goes on at `start`.
        Raises PreconditionFailed as `delete_group` does.
        """
        queue = group.queue
        self._idle_group(queue, group.group_id, force)
        if isinstance(group, StreamGroup):
            if start is not None:
                group.seek(start)
            return group
        if group.sticky is not None:
            group.sticky.dissolve()
        news = [
            self._replace(part.groups[group.group_id], place, now_ms)
            for part, place in zip(queue.parts(), places, strict=True)
        ]
        lead = news[0]
        if isinstance(lead, LanedGroup):
            lead.join(news)
        self._move_consumers(group, lead)
        for old in group.parts():
            waiting = old.on_loaded
            old.on_loaded = []
            for call in waiting:
                call(now_ms)
        return lead

    def _replace(self, old: Group, place: Place, now_ms: int) -> Group:
        queue = old.queue
        position = min(max(place[0], queue.head_offset), queue.tail.next_offset)
        removal = self._begin_removal(old, RESET, now_ms)
        new = queue.new_group(
            old.name, old.pattern, position, max(place[1], queue.head_sequence), old.selector
        )
        new.cursor_sequence = max(new.cursor_sequence, queue.sequence_at(position) or 0)
        new.spec_written = True
        new.redelivered_count = old.redelivered_count
        queue.groups[old.group_id] = new
        self._retire(old)
        if removal is not None:
            self._divide(old, new, removal, now_ms)
            new.mark_dirty()
        else:
            begin_after(new, old.next_claim)
        if queue.keeper is not None:
            queue.keeper.welcome(new)
        return new

    def _divide(self, old: Group, new: Group, removal: GroupRemoval, now_ms: int) -> None:
        """What of the old group's messages comes again in the new one, what is let go of now or later."""
        queue = old.queue
        position = new.position
        begin_after(new, old.next_claim)
        removal.claim_end = new.first_claim
        removal.failed_below = position
        again = old.failed_offsets.copy()
        again.drop_before(position)
        new.failed_offsets = old.failed_offsets.copy()
        new.failed_offsets.discard_all(again)
        new.failed_count = old.failed_count - again.count()
        for start, end in again.pairs():
            queue.keep_again(start, end)
        behind = RangeSet()
        behind.add(queue.head_offset, position)
        behind.discard_all(pass_over(old, new, now_ms))
        new.released = queue.released.copy()
        new.released.add_all(behind)
        new.pass_over(queue.released)
        others = [group for group in queue.groups.values() if group is not new]
        free = behind.intersection(_common(others)) if others else behind
        free.discard_all(queue.released)
        self.let_go(removal, free)

    def _move_consumers(self, old: Group, new: Group) -> None:
        """Have the consumers of a group that was reset go on in the one that took its place."""
        for consumer in [*old.consumers, *old.draining]:
            held = list(consumer.in_flight.values())
            for entry in held:
                release_claim(entry)
                entry.state = STALE
            if held:
                consumer.sink.revoked(consumer, held)
            consumer.group = new
        consumers = old.consumers
        new.draining += [consumer for consumer in old.draining if consumer.active]
        old.consumers = []
        old.draining = []
        for consumer in consumers:
            new.add(consumer)
        new.active_consumer = old.active_consumer

    def _idle_group(self, queue: Queue, group_id: str, force: bool) -> Group:
        group = self.find_group(queue, group_id)
        for part in queue.parts():
            if not part.released_known:
                raise PreconditionFailed(f"what queue {queue.name!r} keeps is still being read")
            if len(part.group_removals) >= limits.GROUP_REMOVALS_PER_QUEUE_MAX:
                raise PreconditionFailed(
                    f"queue {queue.name!r} is still letting go of what earlier groups kept"
                )
        if not force:
            if group.consumers:
                raise PreconditionFailed(f"consumer group {group_id!r} has consumers")
            if group.in_flight_count():
                raise PreconditionFailed(f"consumer group {group_id!r} has messages in flight")
        return group

    def _begin_removal(self, group: Group, mode: int, now_ms: int) -> GroupRemoval | None:
        """Write down what the group has, for its buckets to be complete on the store; None if it has none."""
        queue = group.queue
        if not queue.durable or isinstance(group, StreamGroup):
            return None
        if group.dirty:
            group_records.flush(group, self.journal, now_ms)
        removal = GroupRemoval(queue, group.storage_id, self.removal_number(), mode)
        capacity = group.capacity
        removal.claim_end = -(-group.next_claim // capacity) * capacity
        return removal

    def _retire(self, group: Group) -> None:
        group.removed = True
        for groups in (self.dispatchable, self.dirty_groups, self.consuming, self.purgeable):
            groups.pop(group, None)
        self.skipped.pop(group, None)
        if group in self.unborn:
            self.unborn.remove(group)
        waiting = [entry for _, entry in group.returned]
        waiting += [
            entry for bucket in group.buckets.values() for entry in bucket.entries if entry is not None
        ]
        if group.selection is not None:
            waiting += group.selection.waiting.values()
        for entry in (*waiting, *group.delayed()):
            if entry.state == AVAILABLE:
                entry.state = STALE
        if group.queue.keeper is not None:
            group.queue.keeper.farewell(group)
        group.purges.clear()
        group.forget_loaded()
        if group.delays is not None:
            group.delays.clear()
        if group.passed_over is not None:
            self.timers.forget(group.passed_over)
        if group.selection is not None:
            self.timers.forget(group.selection)
            group.selection.taken.erase(group.storage_id, self.journal)


def _common(groups: list[Group]) -> RangeSet:
    """The offsets that all of them have let go of."""
    common = groups[0].released.copy()
    for group in groups[1:]:
        common = common.intersection(group.released)
    return common


def _unfinished(group: Group) -> list[Message]:
    """The messages below the group's position that wait again or are in flight."""
    return [
        entry.message
        for bucket in group.buckets.values()
        for entry in bucket.entries
        if entry is not None and entry.state in (AVAILABLE, IN_FLIGHT)
    ]
