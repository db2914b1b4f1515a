"""Who has let go of which message of a log, and so what is still kept.

A payload is deleted once every group of its queue has released its offset; a payload that several queues
share has a reference count record, which the last of them deletes with it. The head of a log is the lowest
offset not released.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from queue_manager.log.expired import ExpiredOffsets
from queue_manager.log.progress import Progress
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.ranges import RangeSet
from queue_manager.log.removals import GroupRemoval, LogTrim
from queue_manager.log.runs import Run, add_to_runs
from storage.records import group_removal, payload, payload_refs, queue_meta, released_offsets


class Ahead(Protocol):
    """What of this log a group has yet to be given."""

    def skip_to(self, offset: int) -> None:
        """Go on at `offset`: nothing before it is kept."""

    def pass_to(self, offset: int) -> None:
        """Go on at `offset`, if that is not behind and messages are claimed in order."""


class Stored(Protocol):
    """What of a group is on the store."""

    def write_soon(self) -> None:
        """Have what changed written with the open commit."""


class Member(Protocol):
    """A group's cursor in this log."""

    @property
    def group_id(self) -> str: ...

    @property
    def progress(self) -> Progress: ...

    @property
    def backlog(self) -> Ahead:
        """What it has yet to be given."""

    @property
    def stored(self) -> Stored:
        """What of it is on the store."""

    def has_consumers(self) -> bool:
        """Whether anybody consumes in the group."""


M = TypeVar("M", bound=Member)


class HeadRemoval(LogTrim):
    """Delete the log entries wholly below the head, and record the head."""

    __slots__ = ("retention",)

    def __init__(self, retention: Retention[M]) -> None:
        super().__init__(retention.log)
        self.retention: Retention[M] = retention


class Retention(Generic[M]):
    """The ledger of one log: what is released, what has expired ahead of the groups, what is being removed.

    `members` are the cursors by group ID. `released` are offsets at or above the head whose payloads are
    gone; `is_known` is False after a start until the done records have been read. `removals` are not
    performed to their end yet.
    """

    __slots__ = (
        "_expired",
        "_gaps",
        "expired_at_start",
        "is_known",
        "log",
        "members",
        "released",
        "removals",
    )

    def __init__(self, log: QueueLog, *, is_known: bool = True) -> None:
        self.log = log
        self.members: dict[str, M] = {}
        self.released = RangeSet()
        self.is_known = is_known
        self.removals: list[GroupRemoval] = []
        self.expired_at_start = RangeSet()
        self._gaps = RangeSet()  # of `released`, what is written down
        self._expired: ExpiredOffsets | None = None

    # what is there

    def is_gone(self, offset: int) -> bool:
        """Whether a group that comes to `offset` only now finds nothing there."""
        if self._expired is not None and self._expired.contains(offset):
            return True
        return self.released.contains(offset)

    def kept_count(self) -> int:
        """Messages for groups to come; there is no group."""
        log = self.log
        head = log.head_offset
        if not log.durable:
            places = log.tail.released()
            gone_count = self.expired_count(head) + sum(not self.is_gone(place) for place in places)
            return log.tail.next_offset - head - gone_count
        gone = self.released
        if self._expired is not None:
            gone = gone.copy()
            gone.add_all(self._expired.ranges_from(head))
        return log.tail.next_offset - head - gone.count_from(head)

    def is_failed(self, offset: int) -> bool:
        """Whether a group keeps the message at `offset` as failed."""
        return any(member.progress.failed.contains(offset) for member in self.members.values())

    def others(self, member: M) -> list[M]:
        """The other members."""
        return [other for other in self.members.values() if other is not member]

    def released_by_all(self, members: Iterable[M]) -> RangeSet:
        """The offsets that all of them, at least one, have let go of."""
        common: RangeSet | None = None
        for member in members:
            released = member.progress.released
            common = released.copy() if common is None else common.intersection(released)
        assert common is not None
        return common

    # members

    def welcome(self, member: M) -> None:
        """A group is made, at the oldest message kept."""
        # a sole group does not keep account of what it released: the ledger does
        if len(self.members) == 1:
            for other in self.members.values():
                other.progress.begin_released(self.released)
        member.progress.begin_released(self.released)
        member.progress.pass_ranges(self.released)

    def pass_expired(self, member: M) -> None:
        """What expired ahead of the groups is nothing for a group that begins."""
        if self._expired is not None:
            position = member.progress.position
            member.progress.released.add_all(self._expired.ranges_from(position))
            member.backlog.pass_to(self._expired.floor_from(position))

    # expired ahead of the groups

    def expired_count(self, offset: int) -> int:
        """How many messages at or above `offset` have expired."""
        return 0 if self._expired is None else self._expired.count_from(offset)

    def expired_from(self, offset: int) -> RangeSet:
        """The offsets at or above `offset` that have expired."""
        return RangeSet() if self._expired is None else self._expired.ranges_from(offset)

    def has_expired(self, offset: int) -> bool:
        """Whether the message at `offset` expired ahead of the groups."""
        return self._expired is not None and self._expired.contains(offset)

    @property
    def expires_ahead(self) -> bool:
        """Whether any message did."""
        return self._expired is not None

    def expired_floor(self, offset: int) -> int:
        """The lowest offset at or above `offset` that has not expired."""
        return offset if self._expired is None else self._expired.floor_from(offset)

    def expire(self, offset: int) -> None:
        """Every group lets go of `offset` when it comes there; `write_expired` has to follow."""
        if self._expired is None:
            self._expired = ExpiredOffsets()
        self._expired.add(offset)

    def unexpire(self, offset: int) -> None:
        """Take `expire` back; `write_expired` has to follow."""
        if self._expired is not None:
            self._expired.discard(offset)

    def write_expired(self) -> None:
        """Put what expired since the last call into the open commit."""
        if self._expired is not None and self.log.durable:
            self._expired.write(self.log.name, self.log.context.commit)

    def restore_expired(self, part: int, ranges: list[tuple[int, int]]) -> None:
        """Take in what had expired before the start."""
        if self._expired is None:
            self._expired = ExpiredOffsets()
        self._expired.restore(part, ranges)
        self.expired_at_start = self._expired.ranges.copy()

    def missing_count(self, progress: Progress) -> int:
        """How many offsets beyond its position a group will not be given, for it had them or they
        are gone.
        """
        if progress.claimed is not None:
            return progress.claimed.count
        if progress.gaps is None:
            return self.expired_count(progress.position)
        gone = progress.gaps
        if self._expired is not None:
            gone = gone.copy()
            gone.add_all(self._expired.ranges)
        return gone.count_from(progress.position)

    def release_tail(self, member: M, offsets: Iterable[int]) -> None:
        """In a queue in memory: forget messages that no group is going to look at any more."""
        if self.log.durable:
            return
        others = self.others(member)
        for offset in offsets:
            if all(other.progress.has_taken(offset) for other in others):
                self.log.tail.release(offset)

    # releasing

    def release(self, start: int, end: int) -> None:
        """Nothing stands for these offsets any more."""
        self.released.add(start, end)

    def release_all(self, ranges: RangeSet) -> None:
        """As `release`."""
        self.released.add_all(ranges)

    def begin_unknown(self) -> None:
        """After a start: what was let go of is known once the done records have been read."""
        self.is_known = False

    def note_known(self) -> None:
        """The done records have been read: it is known what was let go of."""
        self.is_known = True

    def want_trim(self) -> None:
        """Have the head looked at before the next commit."""
        self.log.context.trimmable[self] = None

    def release_unshared(self, member: M, runs: list[Run]) -> None:
        """Delete payloads that only this queue holds, as far as no other group of it needs them."""
        self.delete_payloads(self._deletable(member, runs))

    def release_shared(self, member: M, runs: list[Run], references: dict[int, int]) -> None:
        """Take back this queue's references to payloads; the last reference takes the payload with it."""
        self.take_references(self._deletable(member, runs), references)

    def delete_payloads(self, runs: list[Run]) -> None:
        """Delete payloads that only this queue holds."""
        commit = self.log.context.commit
        for _, first_id, count in runs:
            commit.delete_run(payload.key_run(first_id, count))
        self.want_trim()

    def take_references(self, runs: list[Run], references: dict[int, int]) -> None:
        """Take back references to payloads, whose stored counts are `references`."""
        commit = self.log.context.commit
        for _, first_id, count in runs:
            for message_id in range(first_id, first_id + count):
                left = references.get(message_id, 1) - 1
                references[message_id] = left
                if left > 0:
                    commit.put(payload_refs.key(message_id), payload_refs.encode(left))
                else:
                    commit.delete(payload_refs.key(message_id))
                    commit.delete(payload.key(message_id))
        self.want_trim()

    def _deletable(self, member: M, runs: list[Run]) -> list[Run]:
        """Of what `member` releases, what no other group needs and was not let go of before.

        All of it is remembered as released.
        """
        if self.members.get(member.group_id) is not member:
            return runs  # purged when there was no group
        others = self.others(member)
        progress = member.progress
        head_offset = self.log.head_offset
        deletable: list[Run] = []
        for run in runs:
            first_offset, first_id, count = run
            end = first_offset + count
            known = first_offset < head_offset or self.released.overlaps(first_offset, end)
            if not others and not known:
                self.released.add(first_offset, end)
                deletable.append(run)
                continue
            if progress.failed.starts and first_offset < head_offset:
                self._release_redriven(progress, others, run, deletable)
            first_kept = max(first_offset, head_offset)
            if others:
                progress.released.add(first_kept, end)
            for offset in range(first_kept, end):
                if known and self.released.contains(offset):
                    continue
                if all(other.progress.released.contains(offset) for other in others):
                    self.released.add(offset, offset + 1)
                    if not any(other.progress.failed.contains(offset) for other in others):
                        add_to_runs(deletable, offset, first_id + offset - first_offset)
        return deletable

    def _release_redriven(self, progress: Progress, others: list[M], run: Run, deletable: list[Run]) -> None:
        """The part of `run` below the head: redriven messages, which only failed records or this
        group kept.
        """
        first_offset, first_id, count = run
        for offset in range(first_offset, min(first_offset + count, self.log.head_offset)):
            if progress.failed.contains(offset):
                progress.drop_failed(offset)
                if not any(other.progress.failed.contains(offset) for other in others):
                    add_to_runs(deletable, offset, first_id + offset - first_offset)

    def release_gone(self, member: M, start: int, end: int) -> None:
        """The offsets `start` to `end` have no payload any more: `member` will never ask for them."""
        start = max(start, self.log.head_offset)
        if start >= end or self.log.deleted:
            return
        others = self.others(member)
        if others:
            member.progress.released.add(start, end)
            gone = RangeSet()
            gone.add(start, end)
            for other in others:
                gone = gone.intersection(other.progress.released)
            self.released.add_all(gone)
        else:
            self.released.add(start, end)
        self.want_trim()

    def keep_failed(self, member: M, offset: int) -> None:
        """`member` keeps a message by itself, for it failed: the log need not stand for it on its account."""
        member.progress.keep_failed(offset)
        if offset < self.log.head_offset:
            return  # only this group had it
        others = self.others(member)
        if others:
            member.progress.released.add(offset, offset + 1)
        if all(other.progress.released.contains(offset) for other in others):
            self.released.add(offset, offset + 1)
            self.want_trim()

    def keep_redriven(self, member: M, offset: int) -> None:
        """A failed message of `member` waits again: the log stands for its payload, but for those below the
        head, which the group goes on keeping by itself.
        """
        if offset >= self.log.head_offset:
            member.progress.drop_failed(offset)
            member.progress.released.discard(offset, offset + 1)
            self.keep_again(offset, offset + 1)

    def keep_again(self, start: int, end: int) -> None:
        """Offsets that were let go of stand in the log for their payloads again."""
        self.released.discard(start, end)
        if self._gaps.overlaps(start, end):
            self._gaps.discard(start, end)
            self._write_gaps()

    def let_go(self, removal: GroupRemoval, free: RangeSet) -> None:
        """Count `free` as let go of from now on, and have the driver do it."""
        self.released.add_all(free)
        for member in self.members.values():
            free.discard_all(member.progress.failed)  # these have the payload now
        if not free.starts and not removal.has_rows:
            return
        context = self.log.context
        removal.free(free)
        self.removals.append(removal)
        context.commit.put(removal.key(), removal.encode())
        context.removals.append(removal)
        if self.released.starts:
            self.note_gaps()
        if self.move_head():
            context.removals.append(HeadRemoval(self))

    def release_ranges(self, storage_id: str, free: RangeSet) -> None:
        """As `let_go`, for payloads that no group needs any more."""
        number = self.log.context.new_number()
        self.let_go(GroupRemoval(self.log, storage_id, number, group_removal.RELEASE), free)

    def lets_go(self, removal: GroupRemoval, offset: int) -> bool:
        """Whether the payload of a message in a bucket that goes is to go with it."""
        if removal.mode == group_removal.DELETE:
            return removal.row_free.contains(offset)
        if offset >= removal.head:
            return False
        own = self.members.get(removal.group_id)
        if own is not None:
            own.progress.drop_failed(offset)
        return not self.is_failed(offset)

    def removal_done(self, removal: GroupRemoval) -> bool:
        """A removal was performed to its end; give whether it was one of this log's."""
        context = self.log.context
        context.commit.delete(removal.key())
        known = removal in self.removals
        if known:
            self.removals.remove(removal)
        if not self.log.deleted:
            context.removals.append(HeadRemoval(self))  # waited for it
        return known

    def restore_removal(self, removal: GroupRemoval) -> None:
        """Take up a deletion or reset that a crash interrupted."""
        self.removals.append(removal)
        self.released.add_all(removal.log_free)
        self.released.drop_before(self.log.head_offset)
        self.want_trim()

    def first_claim(self, group_id: str) -> int:
        """Where the claim numbers of a group begin, so that it never meets those of its earlier life."""
        ends = [removal.claim_end for removal in self.removals if removal.group_id == group_id]
        return max(ends, default=0)

    # gaps that no group will be able to tell of after a restart

    def note_gaps(self) -> None:
        """Write down what was let go of beyond the head."""
        self._gaps = self.released.copy()
        self._write_gaps()
        for member in self.members.values():
            member.stored.write_soon()  # what failed is on the store by then

    def _write_gaps(self) -> None:
        commit = self.log.context.commit
        if self._gaps.starts:
            commit.put(released_offsets.key(self.log.name), released_offsets.encode(self._gaps.pairs()))
        else:
            commit.delete(released_offsets.key(self.log.name))

    def restore_gaps(self, ranges: list[tuple[int, int]]) -> None:
        """Take in what was written down before the start."""
        self._gaps.add_pairs(ranges)
        self.released.add_all(self._gaps)
        self.released.drop_before(self.log.head_offset)
        self.want_trim()

    # memory

    def trim_tail(self, tail_bytes_max: int) -> bool:
        """See `InMemory`: messages that every group is past go, and the oldest of what is durable."""
        log = self.log
        tail = log.tail
        if not len(tail):
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
            log.move_head(tail.first_offset)
        return len(tail) > 0 and not log.deleted

    def delete(self) -> None:
        """The queue is deleted."""
        context = self.log.context
        context.trimmable.pop(self, None)
        context.tailed.pop(self, None)

    # the head

    def advance_head(self) -> None:
        """Move the head past what is released, and have what lies below deleted."""
        if not self.log.deleted and self.move_head() and self.log.durable:
            self.log.context.removals.append(HeadRemoval(self))

    def move_head(self) -> bool:
        """Move the head past what is released; give whether it moved."""
        log = self.log
        floor = self.released.floor_from(log.head_offset)
        if floor == log.head_offset:
            return False
        log.move_head(floor)
        self.released.drop_before(floor)
        for member in self.members.values():
            member.progress.released.drop_before(floor)
            if member.progress.position < floor:
                member.backlog.skip_to(floor)
        return True

    def want_removal_below_head(self) -> None:
        """Have what lies below the head deleted."""
        self.log.context.removals.append(HeadRemoval(self))

    def write_head(self) -> None:
        """Put the head into the open commit."""
        log = self.log
        log.context.commit.put(
            queue_meta.key(log.name), queue_meta.encode(log.head_offset, log.head_sequence)
        )

    def trim_limit(self) -> int:
        """The offset the log must be kept from: below, no payloads have to be looked up any more."""
        starts = [removal.log_free.starts[0] for removal in self.removals if removal.log_free.starts]
        return min([self.log.head_offset, *starts])

    def head_trimmed(self, head: int) -> None:
        """The log is trimmed up to `head`; that is written with the open commit."""
        log = self.log
        log.context.commit.put(queue_meta.key(log.name), queue_meta.encode(head, log.head_sequence))
        if self._gaps.ends and self._gaps.ends[-1] <= head:
            self._gaps = RangeSet()
            log.context.commit.delete(released_offsets.key(log.name))

    def head_written(self, head: int) -> None:
        """Nothing is left below `head`: what expired there need not be known any more."""
        if self._expired is not None:
            for member in self.members.values():
                member.backlog.pass_to(head)
            self._expired.forget_before(head, self.log.name, self.log.context.commit)
