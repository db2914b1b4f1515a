"""Removals: parts of a log that are to be found by scanning and deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field

from config import limits
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.range_set import RangeSet
from queue_manager.shard.commit import Commit
from queue_manager.shard.context import Context, Removal
from storage import layout
from storage.records import (
    RELEASE,
    GroupRemovalKey,
    PendingGroupRemoval,
    PendingRemoval,
    Released,
)
from storage.records import group_removal as record
from storage.records import removal as queue_record

Row = tuple[int, int, bool]  # offset, message ID, whether other queues may have the payload, too


class LogTrim(Removal):
    """Delete what lies below the head of a log, and record the head."""

    __slots__ = ("log",)

    def __init__(self, log: QueueLog) -> None:
        self.log = log


class StreamTrim(LogTrim):
    """Delete what lies below a stream's head: log entries, payloads, chunks."""

    __slots__ = ()


@dataclass(eq=False, slots=True)
class RangeRemoval(Removal):
    """Messages were purged: find those with offsets in `[start, end)`, from log entry `sequence` on, and
    `release` them. Those in `kept` were not purged: they had been claimed.
    """

    log: QueueLog
    start: int
    end: int
    sequence: int
    release: Callable[[list[Row]], None]
    kept: RangeSet | None = None

    def found(self, rows: list[Row]) -> None:
        """Take messages of the range."""
        kept = self.kept
        self.release(rows if kept is None else [row for row in rows if not kept.contains(row[0])])

    def offsets(self) -> RangeSet:
        """Return the offsets that were purged."""
        purged = RangeSet()
        purged.add(self.start, self.end)
        if self.kept is not None:
            purged.discard_all(self.kept)
        return purged


@dataclass(eq=False, slots=True)
class QueueRemoval(Removal):
    """A log was deleted with its queue: its entries, the records of its groups and the payloads only it held
    go.

    `released` are the offsets from `head_offset` on whose payloads were let go of already; None when that is
    not known, and shared payloads are left alone. `let_go` are the IDs of shared payloads that only records
    of the groups told of, which several may do, and that were let go of; None as `released`. `is_untouched`:
    there was never anything in it, so its groups' places are all there is to delete.
    """

    name: str
    log_id: str
    storage_ids: tuple[str, ...]
    head_offset: int
    released: RangeSet | None
    let_go: RangeSet | None
    _: KW_ONLY
    is_untouched: bool = False

    @classmethod
    def restored(cls, log_id: str, pending: PendingRemoval) -> QueueRemoval:
        """Make one that a process before has begun with."""
        released = let_go = None
        head_offset = 0
        if pending.released is not None:
            head_offset, released = pending.released.head_offset, RangeSet()
            released.add_pairs(pending.released.ranges)
            if pending.released.let_go is not None:
                let_go = RangeSet()
                let_go.add_pairs(pending.released.let_go)
        return cls(pending.queue_name, log_id, pending.queue_ids, head_offset, released, let_go)

    def write(self, commit: Commit) -> None:
        """Put what a start has to know to go on with it into `commit`."""
        known = None
        if self.released is not None:
            let_go = None if self.let_go is None or not self._is_let_go_written() else self.let_go.pairs()
            known = Released(self.head_offset, self.released.pairs(), let_go)
        commit.put(queue_record.key(self.log_id), queue_record.encode(self.name, self.storage_ids, known))

    def note_let_go(self, message_ids: list[int], commit: Commit) -> None:
        """Note shared payloads let go of with `commit`; records of other groups may tell of them, too."""
        if self.let_go is None:
            return
        self._note(message_ids, commit, is_told=len(self.storage_ids) > 1)

    def note_let_go_before(self, message_ids: list[int], commit: Commit) -> None:
        """Note as `note_let_go`, for a group removed before the queue: any record may tell of them."""
        if self.let_go is not None:
            self._note(message_ids, commit, is_told=True)

    def _note(self, message_ids: list[int], commit: Commit, *, is_told: bool) -> None:
        assert self.let_go is not None
        is_written = self._is_let_go_written() and is_told and message_ids
        for message_id in message_ids:
            self.let_go.add(message_id, message_id + 1)
        if is_written:
            self.write(commit)

    def _is_let_go_written(self) -> bool:
        return self.let_go is not None and len(self.let_go.starts) <= limits.REMOVAL_LET_GO_RANGES_MAX

    def keep(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Keep the payloads of ranges that count as let go of."""
        if self.released is None:
            return
        for start, end in ranges:
            if start < self.head_offset:  # the head does not wait for them
                self.released.add(start, self.head_offset)
                self.head_offset = start
            self.released.discard(start, end)

    def is_gone(self, offset: int) -> bool:
        """Whether the log no longer stands for the payload at `offset`; as far as is known, True."""
        return self.released is None or offset < self.head_offset or self.released.contains(offset)

    def is_let_go(self, message_id: int) -> bool:
        """Whether a shared payload that records of the groups tell of was let go of; if that is not known, it
        counts as let go of.
        """
        return self.released is None or self.let_go is None or self.let_go.contains(message_id)

    def add_storage_id(self, storage_id: str) -> None:
        """Remove the records of this group, too."""
        if storage_id not in self.storage_ids:
            self.storage_ids = (*self.storage_ids, storage_id)


@dataclass(eq=False, slots=True)
class GroupRemoval(Removal):
    """The rest of the work when a group was deleted or reset, or began behind the oldest message.

    The change itself takes effect at once; the payloads that only this group kept, and its old buckets, are
    found by scanning. A record tells what is left, so that a crash in between is finished at the next start
    (`PendingGroupRemoval`, which explains `mode`, `failed_below` and `head`).

    `log_free` are offsets whose payloads go, found in the log; `row_free` those found in the group's buckets
    below claim number `claim_end`. `of_queue`: the queue was deleted before this was done.
    """

    log: QueueLog
    storage_id: str
    number: int
    mode: int
    _: KW_ONLY
    claim_end: int = 0
    failed_below: int = 0
    head: int = -1  # that of the log
    group_id: str = field(init=False)
    log_free: RangeSet = field(default_factory=RangeSet, init=False)
    row_free: RangeSet = field(default_factory=RangeSet, init=False)
    of_queue: QueueRemoval | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.group_id = layout.split_group_queue_id(self.storage_id)[1]
        if self.head < 0:
            self.head = self.log.head_offset

    @classmethod
    def restored(cls, log: QueueLog, key: GroupRemovalKey, pending: PendingGroupRemoval) -> GroupRemoval:
        """As its record tells it after a start."""
        removal = cls(
            log,
            key.queue_id,
            key.number,
            pending.mode,
            claim_end=pending.claim_end,
            failed_below=pending.failed_below,
            head=pending.head,
        )
        removal.log_free.add_pairs(pending.log_ranges)
        removal.row_free.add_pairs(pending.row_ranges)
        return removal

    def reset_at(self, claim_end: int, failed_below: int) -> None:
        """Have the group go on with claims from `claim_end` on; what failed below `failed_below` stays."""
        self.claim_end = claim_end
        self.failed_below = failed_below

    def key(self) -> bytes:
        """Return the key of its record."""
        return record.key(self.storage_id, self.number)

    def encode(self) -> bytes:
        """Return the value of its record: what is left to do."""
        return record.encode(
            self.log.log_id,
            self.mode,
            self.claim_end,
            self.failed_below,
            self.head,
            self.log_free.pairs(),
            self.row_free.pairs(),
        )

    @property
    def has_rows(self) -> bool:
        """Whether buckets of the group have to go."""
        return self.mode != RELEASE

    def keeps_failed(self, offset: int) -> bool:
        """Whether the group's failed message at `offset` stays."""
        return offset < self.failed_below


class PendingRemovals:
    """Deletions and resets of groups that are not performed to their end yet, in one log.

    Each has a record, until it is done; the driver performs them. Of those `noted`, memory knows the
    messages: the log is searched for them only after a crash. `_own` are what groups let go of, by their
    storage IDs, while it is not known whether other groups need it.
    """

    __slots__ = ("_context", "_noted", "_own", "_removals")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._removals: tuple[GroupRemoval, ...] = ()
        self._noted: dict[GroupRemoval, None] = {}
        self._own: dict[str, GroupRemoval] = {}

    def __iter__(self) -> Iterator[GroupRemoval]:
        return iter(self._removals)

    def __len__(self) -> int:
        return len(self._removals)

    @property
    def is_full(self) -> bool:
        """Whether no other group may be deleted or reset for now."""
        return len(self._removals) >= limits.GROUP_REMOVALS_PER_QUEUE_MAX

    def begin(self, removal: GroupRemoval, free: RangeSet) -> None:
        """Have a removal performed, with the payloads that `free` tells."""
        removal.log_free.add_all(free)
        self._removals += (removal,)
        self._context.commit.put(removal.key(), removal.encode())
        self._context.removals.append(removal)

    def add_to_last(self, free: RangeSet) -> None:
        """Have payloads let go of by the last of many removals, which is not begun yet."""
        last = self._removals[-1]
        last.log_free.add_all(free)
        self._context.commit.put(last.key(), last.encode())

    def note(self, removal: GroupRemoval, free: RangeSet) -> None:
        """Note what is let go of soon, but not with this commit, and is to be so after a crash, too."""
        removal.log_free.add_all(free)
        self._noted[removal] = None
        self._context.commit.put(removal.key(), removal.encode())

    def end_noted(self, removal: GroupRemoval) -> bool:
        """End one that was noted; give whether it was still to be done."""
        if removal not in self._noted:
            return False
        del self._noted[removal]
        self._context.commit.delete(removal.key())
        return True

    def take_noted(self) -> list[GroupRemoval]:
        """Return all that are noted, which the caller does now."""
        return [removal for removal in list(self._noted) if self.end_noted(removal)]

    def note_own(self, log: QueueLog, storage_id: str, offsets: RangeSet) -> None:
        """Note what a group let go of before it is known whether others need it: a crash may come first."""
        removal = self._own.get(storage_id)
        if removal is None:
            removal = GroupRemoval(log, storage_id, self._context.new_number(), RELEASE)
            self._own[storage_id] = removal
        removal.row_free.add_all(offsets)
        self._context.commit.put(removal.key(), removal.encode())

    def own_of(self, storage_id: str) -> RangeSet:
        """Return what is noted of a group by `note_own`."""
        removal = self._own.get(storage_id)
        return RangeSet() if removal is None else removal.row_free

    def take_own(self) -> list[GroupRemoval]:
        """Return all that `note_own` noted, which the caller does with the open commit."""
        own, self._own = list(self._own.values()), {}
        for removal in own:
            self._context.commit.delete(removal.key())
        return own

    def restore(self, removal: GroupRemoval) -> None:
        """Take up one that a crash interrupted."""
        if removal.mode == RELEASE and removal.row_free.starts:
            self._own[removal.storage_id] = removal
        else:
            self._removals += (removal,)

    def end(self, removal: GroupRemoval) -> bool:
        """End a removal that was performed; give whether it was one of this log's."""
        self._context.commit.delete(removal.key())
        known = removal in self._removals
        if known:
            self._removals = tuple([other for other in self._removals if other is not removal])
        return known

    def first_claim(self, group_id: str) -> int:
        """Return where the claim numbers of a group begin, so that it never meets those of its earlier
        life.
        """
        ends = [removal.claim_end for removal in self._removals if removal.group_id == group_id]
        return max(ends, default=0)

    def lowest_free(self, end: int) -> int:
        """Return the lowest offset, at most `end`, whose payload has yet to be found in the log."""
        pending = (*self._removals, *self._noted)
        starts = [removal.log_free.starts[0] for removal in pending if removal.log_free.starts]
        return min([end, *starts])
