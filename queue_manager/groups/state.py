"""What one consumer group knows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from queue_manager.bucket import Bucket
from queue_manager.consumer import Consumer
from queue_manager.filters import parse_selector
from queue_manager.model import AVAILABLE, IN_FLIGHT, Entry, Message
from queue_manager.patterns import MATCH_ALL, compile_pattern
from queue_manager.ranges import RangeSet
from queue_manager.sticky.message_groups import MessageGroups
from queue_manager.views import View
from storage.layout import NUMBER_BITS, align_claim_number, bucket_capacity

if TYPE_CHECKING:
    from queue_manager.delays import Delays
    from queue_manager.group import Group
    from queue_manager.passed_over import PassedOver
    from queue_manager.queue import Queue
    from queue_manager.retention import Purge
    from queue_manager.selection import Selection


class GroupState:
    """The state of one (group, pattern) pair.

    `position` is the first offset not yet looked at; `cursor_sequence` a metadata-log sequence at or before
    the entry that holds it. `loaded` has been read back from the store: what is kept of the offsets from
    `position` to `ahead_offset`, where reading goes on at `ahead_sequence`. `marks` are the pairs of offset
    and sequence at which loads ended, for the cursor to advance to as the position does. `failed_offsets`
    are those whose payload this group keeps though the log does not stand for it any more: failed messages,
    and redriven ones below the queue's head. `holes` are offsets beyond the position that were let go of
    before the group began there. `front_seen` is what the keeper saw when it had the front read: the
    position, when the message there was received, and until when not to look again (ms). `removed`: it was
    deleted, or a reset replaced it.
    """

    __slots__ = (
        "_turn",
        "ahead_offset",
        "ahead_sequence",
        "active_consumer",
        "attempts_dirty",
        "attempts_log",
        "buckets",
        "capacity",
        "claim_base",
        "consumers",
        "cursor_sequence",
        "delays",
        "dirty",
        "dirty_buckets",
        "draining",
        "failed_count",
        "failed_offsets",
        "first_claim",
        "flushed_at_ms",
        "front_seen",
        "group_id",
        "holes",
        "is_ranked",
        "loaded",
        "loaded_next",
        "loading",
        "marks",
        "matches",
        "name",
        "next_claim",
        "on_loaded",
        "passed_over",
        "pattern",
        "position",
        "purges",
        "queue",
        "redelivered_count",
        "released",
        "removed",
        "returned",
        "selection",
        "selector",
        "spec_written",
        "sticky",
        "storage_id",
        "wants",
    )

    def __init__(
        self,
        queue: Queue,
        name: str,
        pattern: str,
        position: int,
        cursor_sequence: int,
        selector: str = "",
    ) -> None:
        self.queue = queue
        self.name = name  # "" is the default group
        self.pattern = pattern
        self.selector = selector
        self.matches: Callable[[str], bool] | None = (
            None if pattern == MATCH_ALL else compile_pattern(pattern)
        )
        self.wants: Callable[[Message], bool] | None = None  # None: everything
        if self.matches is not None or selector:
            self.wants = _condition(queue, pattern, selector)
        self.group_id = name if pattern == MATCH_ALL else f"{name}@{pattern}"
        self.storage_id = f"{queue.name}\x1f{self.group_id}" if self.group_id else queue.name
        self.position = position
        self.cursor_sequence = cursor_sequence
        self.next_claim = 0
        self.first_claim = 0  # buckets below are those of an earlier life of the group
        self.capacity = 10**queue.policy.bucket_size
        self.claim_base = queue.policy.bucket_size << 60
        self.buckets: dict[int, Bucket] = {}
        self.consumers: list[Consumer] = []
        self.is_ranked = False  # not every consumer with credit may have messages
        self.active_consumer: Consumer | None = None  # the one, where the policy wants a single one
        self.draining: list[Consumer] = []  # cancelled, or pulling one by one; they may hold claims
        self._turn = 0
        self.returned: list[tuple[int, Entry]] = []
        self.delays: Delays | None = None
        self.loaded: list[Message] = []
        self.loaded_next = 0
        self.ahead_offset = 0
        self.ahead_sequence = 0
        self.marks: deque[tuple[int, int]] = deque()
        self.loading = False
        self.on_loaded: list[Callable[[int], None]] = []
        self.dirty = False
        self.dirty_buckets: list[Bucket] = []
        self.attempts_log: dict[int, list[tuple[int, str]]] = {}
        self.attempts_dirty: set[int] = set()
        self.flushed_at_ms = 0
        self.purges: deque[Purge] = deque()
        self.released = RangeSet()
        self.failed_count = 0
        self.failed_offsets = RangeSet()
        self.redelivered_count = 0
        self.spec_written = False
        self.removed = False
        self.holes: RangeSet | None = None
        self.passed_over: PassedOver | None = None
        self.front_seen: tuple[int, int, int] | None = None
        self.selection: Selection | None = None  # while consumers have filters, and until that is drained
        self.sticky: MessageGroups | None = None
        if queue.policy.binds_keys():
            self.sticky = MessageGroups(cast("Group", self))

    def binds_keys(self) -> bool:
        """Whether keys should be bound to consumers: not while messages are taken out of order."""
        return self.selection is None and self.queue.policy.binds_keys()

    def apply_message_groups(self) -> None:
        """Bind keys to consumers, or do so no longer."""
        wanted = self.binds_keys()
        if wanted and self.sticky is None:
            self.sticky = MessageGroups(cast("Group", self))
            self.sticky.adopt()
        elif not wanted and self.sticky is not None:
            self.sticky.dissolve()
            self.sticky = None
            self.mark_dispatch()

    def pass_over(self, gone: RangeSet) -> None:
        """Never hand out these offsets, which nobody keeps, though memory or log may still have them."""
        if not gone.ends or gone.ends[-1] <= self.position:
            return
        if self.selection is not None:
            self.selection.pass_ranges(gone)
        else:
            holes = gone.copy()
            holes.drop_before(self.position)
            self.holes = holes

    def resize_buckets(self) -> None:
        """Give out claim numbers for buckets of the size the queue's policy now says (R-24)."""
        exponent = self.queue.policy.bucket_size
        if exponent << NUMBER_BITS != self.claim_base:
            self.next_claim = align_claim_number(self.next_claim, exponent)
            self.capacity = bucket_capacity(exponent)
            self.claim_base = exponent << NUMBER_BITS
            self.mark_dirty()

    def ready_count(self) -> int:
        """Messages waiting for a claim (with a pattern: at most so many)."""
        queue = self.queue
        count = queue.tail.next_offset - self.position + len(self.returned)
        if self.selection is not None:
            return count + self.selection.ready_count()
        if self.sticky is not None:
            count += self.sticky.placed_in.get(cast("Group", self), 0)
        if self.holes is None:
            return count if queue.keeper is None else count - queue.keeper.ahead_count(self.position)
        return count - self._passed_over().count_from(self.position)

    def _passed_over(self) -> RangeSet:
        """What it will find gone: before it began, or given up since."""
        assert self.holes is not None
        keeper = self.queue.keeper
        if keeper is None or keeper.ahead is None:
            return self.holes
        gone = self.holes.copy()
        gone.add_all(keeper.ahead.ranges)
        return gone

    def unmatched_count(self) -> int:
        """Of the messages that wait, those no consumer's filter wants, as far as all were asked."""
        return 0 if self.selection is None else self.selection.unmatched_count()

    def taken(self) -> RangeSet:
        """The offsets it has claimed or passed over."""
        taken = RangeSet() if self.selection is None else self.selection.taken.ranges()
        taken.add(0, self.position)
        return taken

    def has_taken(self, offset: int) -> bool:
        """Whether the message at `offset` was claimed or passed over."""
        return offset < self.position or (
            self.selection is not None and self.selection.taken.contains(offset)
        )

    def delayed_count(self) -> int:
        """Messages that came back and wait for their next attempt."""
        return 0 if self.delays is None else len(self.delays)

    def delayed(self) -> list[Entry]:
        """Those messages."""
        return [] if self.delays is None else self.delays.entries()

    def in_flight_count(self) -> int:
        """Messages claimed and not settled."""
        return sum(len(c.in_flight) for c in self.consumers) + sum(len(c.in_flight) for c in self.draining)

    def floor(self) -> int:
        """The lowest offset this group has not done with."""
        floor = self.position
        for bucket in self.buckets.values():
            for entry in bucket.entries:
                if entry is not None and entry.state in (AVAILABLE, IN_FLIGHT):
                    floor = min(floor, entry.message.offset)
        return floor

    def mark_purgeable(self) -> None:
        """Have the sweep look for done records whose retention has passed."""
        self.queue.manager.purgeable[cast("Group", self)] = None

    def mark_dispatch(self) -> None:
        """Have the manager dispatch this group before it returns to its caller."""
        self.queue.manager.dispatchable[cast("Group", self)] = None

    def advance_cursor(self) -> None:
        """Move `cursor_sequence` up to the position."""
        sequence = self.queue.sequence_at(self.position) or 0
        marks = self.marks
        while marks and marks[0][0] <= self.position:
            sequence = max(sequence, marks.popleft()[1])
        self.cursor_sequence = max(self.cursor_sequence, sequence)

    def mark_dirty(self) -> None:
        """Have position and claim counter written with one of the next commits, if the queue is kept."""
        if not self.dirty and self.queue.durable and not (self.queue.deleted or self.removed):
            self.dirty = True
            self.queue.manager.dirty_groups[cast("Group", self)] = None

    def flush_soon(self) -> None:
        """Have what changed written with the open commit."""
        self.flushed_at_ms = 0

    def touch(self, bucket: Bucket) -> None:
        """Have a bucket written with one of the next commits."""
        self._mark_bucket(bucket)

    def _mark_bucket(self, bucket: Bucket) -> None:
        if not bucket.dirty:
            bucket.dirty = True
            self.dirty_buckets.append(bucket)
            if not self.dirty:
                self.mark_dirty()


def _condition(queue: Queue, pattern: str, selector: str) -> Callable[[Message], bool]:
    """What a message must be like for a group with a pattern or a selector of its own."""
    matches = compile_pattern(pattern)
    parsed = parse_selector(selector)
    if parsed is None:
        return lambda message: matches(queue.routing_key(message.template.topic))
    view = View("", parsed, 0)
    return lambda message: (
        matches(queue.routing_key(message.template.topic))
        and view.wants(queue, message, 1, queue.manager.fields)
    )
