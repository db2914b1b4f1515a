"""The retention of a log: its head, what has expired ahead of its groups, what is being removed from it.

The head of a log is the lowest offset that is not let go of (`queue_manager.log.payload_ledger`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

from queue_manager.log.expired import NOTHING_EXPIRED, ExpiredOffsets
from queue_manager.log.members import M, Members, is_failed, others_than
from queue_manager.log.payload_ledger import PayloadLedger
from queue_manager.log.payloads import Run
from queue_manager.log.progress import Progress
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.range_set import RangeSet
from queue_manager.log.removals import GroupRemoval, LogTrim, PendingRemovals
from storage.records import DELETE, RELEASE


class HeadRemoval(LogTrim):
    """Delete the log entries wholly below the head, and record the head."""

    __slots__ = ("retention",)

    def __init__(self, retention: Retention[M]) -> None:
        super().__init__(retention.log)
        self.retention: Retention[M] = retention


class Retention(Generic[M]):
    """Moves the head of one log, and lets go of what lies below.

    `members` are the cursors of the groups, `payloads` what is let go of (`released`: at or above the head),
    `removals` what is being removed. `expired` is what expired ahead of the groups. `is_known` is False after
    a start until the done records have been read. `is_read_ahead`: a
    member may have taken messages beyond its position, which stays behind the others.
    """

    __slots__ = ("_context", "expired", "is_known", "is_read_ahead", "log", "members", "payloads", "removals")

    def __init__(self, log: QueueLog) -> None:
        self.log = log
        self._context = log.context
        self.members: Members[M] = {}
        self.payloads: PayloadLedger[M] = PayloadLedger(log, self.members, self.want_trim)
        self.removals = PendingRemovals(log.context)
        self.expired: ExpiredOffsets = NOTHING_EXPIRED
        self.is_known = True
        self.is_read_ahead = False

    # what is there

    def is_gone(self, offset: int) -> bool:
        """Whether a group that comes to `offset` only now finds nothing there."""
        return self.expired.ranges.contains(offset) or self.payloads.released.contains(offset)

    def kept_count(self) -> int:
        """Messages for groups to come; there is no group."""
        log = self.log
        head = log.head_offset
        if not log.durable:
            places = log.tail.released()
            gone_count = self.expired.count_from(head) + sum(not self.is_gone(place) for place in places)
            return log.tail.next_offset - head - gone_count
        gone = self.payloads.released
        if self.expired.is_used:
            gone = gone.copy()
            gone.add_all(self.expired.ranges_from(head))
        return log.tail.next_offset - head - gone.count_from(head)

    def missing_count(self, progress: Progress) -> int:
        """How many offsets beyond its position a group will not be given, for it had them or they
        are gone.
        """
        if progress.claimed is not None:
            return progress.claimed.count
        if progress.gaps is None:
            return self.expired.count_from(progress.position)
        gone = progress.gaps
        if self.expired.is_used:
            gone = gone.copy()
            gone.add_all(self.expired.ranges)
        return gone.count_from(progress.position)

    def begin_unknown(self) -> None:
        """After a start: what was let go of is known once the done records have been read."""
        self.is_known = False

    def become_known(self) -> None:
        """Note that the done records have been read: let go of what waited for that."""
        self.is_known = True
        for removal in self.removals.take_own():
            member = self.members.get(removal.group_id)
            if member is not None:
                self._release_own(member, removal)

    def _release_own(self, member: M, removal: GroupRemoval) -> None:
        free = removal.row_free
        free.discard_all(self.payloads.released)
        if others := others_than(member, self.members):
            member.progress.released.add_all(free)
            for other in others:
                free = free.intersection(other.progress.released)
        self.release_ranges(removal.storage_id, free)

    def read_ahead(self) -> None:
        """Members may take messages beyond their positions from now on."""
        self.is_read_ahead = True

    def use_expired(self) -> ExpiredOffsets:
        """Return what expired ahead of the groups, to be changed; `write_expired` has to follow."""
        if self.expired is NOTHING_EXPIRED:
            self.expired = ExpiredOffsets()
        return self.expired

    def write_expired(self) -> None:
        """Put what expired since the last call into the open commit."""
        if self.log.durable:
            self.expired.write(self.log.name, self._context.commit)

    # groups

    def welcome(self, member: M) -> None:
        """Take in a group that is made, at the oldest message kept."""
        released = self.payloads.released
        # a sole group does not keep account of what it released: the ledger does
        if len(self.members) == 1:
            for other in self.members.values():
                other.progress.begin_account(released)
        member.progress.begin_account(released)
        member.progress.pass_ranges(released)

    def pass_expired(self, member: M) -> None:
        """Have a group that begins pass the offsets that expired ahead of the groups."""
        position = member.progress.position
        member.progress.released.add_all(self.expired.ranges_from(position))
        member.backlog.pass_to(self.expired.ranges.floor_from(position))

    # removals

    def let_go(self, removal: GroupRemoval, free: RangeSet) -> None:
        """Count `free` as let go of from now on, and have the driver do it."""
        self.payloads.released.add_all(free)
        for member in self.members.values():
            free.discard_all(member.progress.failed)  # these have the payload now
        if not free.starts and not removal.has_rows:
            return
        if self.removals.is_full and not removal.has_rows:
            self.removals.add_to_last(free)
        else:
            self.removals.begin(removal, free)
        if self.payloads.released.starts:
            self.payloads.note_gaps()
        if self.move_head():
            self.want_removal_below_head()

    def release_ranges(self, storage_id: str, free: RangeSet) -> None:
        """Do as `let_go`, for payloads that no group needs any more."""
        number = self._context.new_number()
        self.let_go(GroupRemoval(self.log, storage_id, number, RELEASE), free)

    def note_release(self, storage_id: str, runs: Iterable[Run]) -> GroupRemoval:
        """Note payloads that count as let go of with this commit, and are so with a later one."""
        removal = GroupRemoval(self.log, storage_id, self._context.new_number(), RELEASE)
        self.removals.note(removal, _offsets_of(runs))
        return removal

    def note_own_release(self, storage_id: str, runs: Iterable[Run]) -> None:
        """Note what a group lets go of: the payloads no other group needs go once these are known."""
        self.removals.note_own(self.log, storage_id, _offsets_of(runs))

    def end_noted(self, removal: GroupRemoval) -> bool:
        """End, with the open commit, what was noted; give whether it was still to be done."""
        is_due = self.removals.end_noted(removal)
        if is_due and not self.log.deleted:
            self.want_removal_below_head()  # which waited for it
        return is_due

    def lets_go(self, removal: GroupRemoval, offset: int) -> bool:
        """Whether the payload of a message in a bucket that goes is to go with it."""
        if removal.mode == DELETE:
            return removal.row_free.contains(offset)
        if offset >= removal.head:
            return False
        own = self.members.get(removal.group_id)
        if own is not None:
            own.progress.drop_failed(offset)
        return not is_failed(offset, self.members)

    def removal_done(self, removal: GroupRemoval) -> bool:
        """End a removal that was performed; return whether it was one of this log's."""
        known = self.removals.end(removal)
        if not self.log.deleted:
            self.want_removal_below_head()  # which waited for it
        return known

    def restore_removal(self, removal: GroupRemoval) -> None:
        """Take up a deletion or reset that a crash interrupted."""
        self.removals.restore(removal)
        self.payloads.released.add_all(removal.log_free)
        self.payloads.head_moved()
        self.want_trim()

    # memory

    def release_tail(self, member: M, offsets: Iterable[int]) -> None:
        """In a queue in memory: forget messages that no group is going to look at any more."""
        if self.log.durable:
            return
        others = others_than(member, self.members)
        for offset in offsets:
            if all(other.progress.has_taken(offset) for other in others):
                self.log.tail.release(offset)

    def trim_tail(self, tail_bytes_max: int) -> bool:
        """See `InMemory`: messages that every group is past go, and the oldest of what is durable."""
        log = self.log
        tail = log.tail
        if tail.first_offset == tail.next_offset:
            return False
        if self.members:
            floor = tail.next_offset
            for member in self.members.values():
                floor = min(floor, member.progress.position)
            # a group to come could not read back what is not in the store yet
            tail.drop_before(min(floor, log.durable_offset) if log.durable else floor)
        if log.durable:
            tail.drop_bytes(tail_bytes_max, log.durable_offset)
        else:
            log.begin_at(tail.first_offset)
        return tail.first_offset < tail.next_offset and not log.deleted

    def delete(self) -> None:
        """Look after the log no more: the queue is deleted."""
        self._context.trimmable.pop(self, None)
        self._context.tailed.pop(self, None)

    # the head

    def want_trim(self) -> None:
        """Have the head looked at before the next commit."""
        self._context.trimmable[self] = None

    def advance_head(self) -> None:
        """Move the head past what is released, and have what lies below deleted."""
        if not self.log.deleted and self.move_head() and self.log.durable:
            self.want_removal_below_head()

    def move_head(self) -> bool:
        """Move the head past what is released; give whether it moved."""
        log = self.log
        floor = self.payloads.released.floor_from(log.head_offset)
        if floor == log.head_offset:
            return False
        log.begin_at(floor)
        self.payloads.head_moved()
        for member in self.members.values():
            member.progress.released.drop_before(floor)
            if member.progress.position < floor:
                member.backlog.skip_to(floor)
        return True

    def want_removal_below_head(self) -> None:
        """Have what lies below the head deleted."""
        self._context.removals.append(HeadRemoval(self))

    def head_trimmed(self, head: int) -> None:
        """Write with the open commit that the log is trimmed up to `head`."""
        self.log.write_head(head)
        self.payloads.trimmed(head)

    def head_written(self, head: int) -> None:
        """Nothing is left below `head`: what expired there need not be known any more."""
        if self.expired.is_used:
            for member in self.members.values():
                member.backlog.pass_to(head)
            self.expired.forget_before(head, self.log.name, self._context.commit)


def _offsets_of(runs: Iterable[Run]) -> RangeSet:
    offsets = RangeSet()
    for first_offset, _, count in runs:
        offsets.add(first_offset, first_offset + count)
    return offsets
