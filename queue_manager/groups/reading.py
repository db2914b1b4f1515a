"""Where a group gets messages from: the tail in memory, or the store."""

from __future__ import annotations

from heapq import heapify, nsmallest
from typing import TYPE_CHECKING, cast

from config import limits
from queue_manager.groups.state import GroupState
from queue_manager.loads import LogLoad, PayloadLoad
from queue_manager.model import AVAILABLE, DONE, Message
from queue_manager.retention import release_gone

if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    from queue_manager.group import Group


class GroupReading(GroupState):
    """Taking messages in order, and having read back what memory does not hold."""

    __slots__ = ()

    def _fresh_at_hand(self) -> int:
        """Messages beyond `position` that are in memory; asks for more from the store if there are none."""
        tail = self.queue.tail
        position = self.position
        if position >= tail.first_offset:
            if self.loaded:
                self.forget_loaded()
            return tail.next_offset - position
        at_hand = len(self.loaded) - self.loaded_next
        if at_hand < limits.LOADED_LOW_WATER and self.ahead_offset < tail.first_offset:
            self._request_log()
        return at_hand

    def _take(self, count: int) -> list[Message]:
        """The next `count` messages this group wants, `position` moved past them."""
        if self.holes is not None:
            return self._take_between_holes(count)
        if self.wants is None:
            return self._take_unfiltered(count)
        messages: list[Message] = []
        scanned = 0
        wants = self.wants
        while len(messages) < count:
            want = count - len(messages)
            part = self._take_unfiltered(want)
            if not part:
                break
            wanted = [m for m in part if wants(m)]
            if len(wanted) < len(part):
                self._skip_unwanted([m for m in part if not wants(m)])
            messages += wanted
            scanned += len(part)
            if scanned >= limits.PATTERN_SCAN_MESSAGES_MAX:
                self.mark_dispatch()
                break
        if scanned > len(messages):
            self.mark_dirty()
        return messages

    def _skip_unwanted(self, messages: list[Message]) -> None:
        self._skip(messages)
        keeper = self.queue.keeper
        if keeper is not None:
            unknown = [m for m in messages if not keeper.was_given_up(m.offset)]
            keeper.passed(cast("Group", self), unknown)

    def take(self, count: int) -> list[Message]:
        """As `_take`, for others."""
        return self._take(count)

    def selects(self, message: Message) -> bool:
        """Whether the message is one for the group."""
        return self.wants is None or self.wants(message)

    def at_hand(self, count: int) -> list[Message]:
        """The next up to `count` messages in memory, without taking them; asks for more to be read."""
        if not self._fresh_at_hand():
            return []
        if self.position >= self.queue.tail.first_offset:
            return self.queue.tail.slice(self.position, count)
        return self.loaded[self.loaded_next : self.loaded_next + count]

    def pass_by(self, count: int) -> list[Message]:
        """The next `count` messages, wanted or not, `position` moved past them."""
        messages = self._take_unfiltered(count)
        self.mark_dirty()
        return messages

    def pass_to(self, offset: int) -> None:
        """Go on at `offset`, if that is not behind: nothing before it is to be taken any more."""
        if offset <= self.position:
            return
        self.position = offset
        loaded = self.loaded
        if loaded:
            while self.loaded_next < len(loaded) and loaded[self.loaded_next].offset < offset:
                self.loaded_next += 1
            if self.loaded_next == len(loaded):
                self.loaded = []
                self.loaded_next = 0
                self.position = max(offset, self.ahead_offset)
        self.mark_dirty()

    def let_go(self, messages: list[Message]) -> None:
        """Be done, without a record, with messages that were never claimed."""
        if messages:
            self._skip(messages)
            self.mark_dirty()

    def _take_between_holes(self, count: int) -> list[Message]:
        holes = self.holes
        assert holes is not None
        while True:
            self.holes = None
            first = self.position
            messages = self._take(count)
            if self.position < holes.ends[-1]:
                self.holes = holes
            kept = [message for message in messages if not holes.contains(message.offset)]
            if kept or not messages or self.position == first:
                return kept

    def _skip(self, messages: list[Message]) -> None:
        """These are nothing for this group: it lets go of them."""
        if self.queue.durable:
            skipped = self.queue.manager.skipped.setdefault(cast("Group", self), [])
            skipped += [(m.offset, m.message_id, m.template.shared) for m in messages]

    def _take_unfiltered(self, count: int) -> list[Message]:
        tail = self.queue.tail
        position = self.position
        if position >= tail.first_offset:
            if self.loaded:
                self.forget_loaded()
            messages = tail.slice(position, count)
            self.position = position + len(messages)
            return messages
        start = self.loaded_next
        messages = self.loaded[start : start + count]
        if not messages:
            self._request_log()
            return messages
        self.loaded_next = start + len(messages)
        self.position = messages[-1].offset + 1
        if self.loaded_next == len(self.loaded):
            self.loaded = []
            self.loaded_next = 0
            self.position = max(self.position, self.ahead_offset)
        return messages

    def _request_log(self) -> None:
        if self.loading:
            return
        self.loading = True
        offset = max(self.position, self.ahead_offset)
        sequence = max(self.cursor_sequence, self.ahead_sequence)
        self.queue.manager.loads.append(LogLoad(cast("Group", self), sequence, offset))

    def skip_to(self, offset: int) -> None:
        """Go on at `offset`: nothing before it is kept."""
        if self.selection is not None:
            self.selection.taken.move(offset)
        self.position = offset
        self.forget_loaded()
        self.mark_dirty()

    def forget_loaded(self) -> None:
        """Let go of what was read ahead; it is read again when it is wanted."""
        self.loaded = []
        self.loaded_next = 0
        self.ahead_offset = 0
        self.ahead_sequence = 0

    def _request_payloads(self) -> None:
        if self.loading:
            return
        self.loading = True
        entries = [entry for _, entry in nsmallest(limits.LOAD_MESSAGES_MAX, self.returned)]
        self.queue.manager.loads.append(
            PayloadLoad(cast("Group", self), [e.message for e in entries if e.message.body is None])
        )

    def log_loaded(self, load: LogLoad, rows: list[Message], next_offset: int, sequence: int) -> None:
        """Take what a LogLoad read: messages below `next_offset`; the rest continues at `sequence`."""
        self.loading = False
        self.mark_dispatch()
        if self.selection is not None:
            self.selection.log_loaded(load, rows, next_offset, sequence)
            return
        if load.offset > max(self.position, self.ahead_offset):
            return  # what was read before it was forgotten meanwhile
        if self.loaded_next:
            del self.loaded[: self.loaded_next]
            self.loaded_next = 0
        start = load.offset
        for row in rows:
            release_gone(cast("Group", self), start, row.offset)
            start = row.offset + 1
        release_gone(cast("Group", self), start, next_offset)
        self.loaded += [row for row in rows if row.offset >= self.position]
        self.ahead_offset = next_offset
        self.ahead_sequence = sequence
        self.marks.append((next_offset, sequence))
        if not self.loaded and next_offset > self.position:
            # nothing of that stretch is kept any more
            self.position = next_offset
            self.mark_dirty()

    def payloads_loaded(self, load: PayloadLoad, bodies: dict[int, bytes], read_count: int) -> None:
        """Take what a PayloadLoad read of its first `read_count` messages; what is missing is done with."""
        self.loading = False
        gone: set[int] = set()
        for message in load.messages[:read_count]:
            message.body = bodies.get(message.message_id)
            if message.body is None:
                gone.add(message.message_id)
        if gone:
            came_back = [entry for _, entry in self.returned]
            if self.selection is not None:
                came_back += self.selection.drop_gone(gone)
            if self.sticky is not None:
                came_back += self.sticky.drop(cast("Group", self), gone)
            for entry in came_back:
                if entry.message.message_id in gone and entry.state == AVAILABLE:
                    entry.state = DONE
                    if entry.bucket is not None:
                        entry.bucket.open_count -= 1
                        self._mark_bucket(entry.bucket)
            self.returned = [item for item in self.returned if item[1].state == AVAILABLE]
            heapify(self.returned)
        self.mark_dispatch()
