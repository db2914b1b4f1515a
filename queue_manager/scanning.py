"""Looking for what the views of a group want, in memory and in the store."""

from __future__ import annotations

from bisect import bisect_left
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from config import limits
from queue_manager.loads import LogLoad, PayloadLoad
from queue_manager.model import AVAILABLE, Entry, Message
from queue_manager.retention import release_gone
from queue_manager.tail import RELEASED
from queue_manager.taken import Taken
from queue_manager.views import View, Views

if TYPE_CHECKING:
    from queue_manager.consumer import Consumer
    from queue_manager.group import Group

OFFSET_END: Final = 1 << 63  # beyond every offset


class Scanning:
    """The state of a `queue_manager.selection.Selection`, and how its views move through the log.

    `taken` replaces the group's position, which follows it. `waiting` are the entries that came back, by
    claim number. `_block` are messages read back from the store, all there are of the offsets from
    `_block_start` to `_block_end`. `_budget` is how many messages this dispatch may still look at, `_wanting`
    the views that need something read back.
    """

    __slots__ = (
        "_block",
        "_block_end",
        "_block_offsets",
        "_block_start",
        "_budget",
        "_found_bytes",
        "_load_count",
        "_turn",
        "_wanting",
        "group",
        "taken",
        "views",
        "views_of",
        "waiting",
    )

    def __init__(self, group: Group) -> None:
        self.group = group
        self.taken = Taken(group.position)
        self.views = Views(group.queue.manager.fields)
        self.views_of: dict[Consumer, View] = {}
        self.waiting: dict[int, Entry] = {}
        self._block: list[Message] = []
        self._block_offsets: list[int] = []
        self._block_start = 0
        self._block_end = 0
        self._budget = 0
        self._found_bytes = 0
        self._load_count = 0
        self._turn = 0
        self._wanting: dict[View, None] = {}

    def _is_held_up(self) -> bool:
        delays = self.group.delays
        return delays is not None and delays.is_full()

    def _returned_end(self, view: View) -> int:
        """What came back and lies below comes before everything that did not."""
        if view.found:
            return view.found[0].offset
        return OFFSET_END if self._is_held_up() else view.cursor

    def _look_for(self, view: View) -> None:
        """Look at messages until one is found for `view`, as far as memory, and this turn, reach."""
        found = view.found
        taken = self.taken
        while found and taken.contains(found[0].offset):
            self._found_bytes -= len(found.popleft().body or b"")
        if self._is_held_up():
            return
        tail = self.group.queue.tail
        while not found and self._budget > 0:
            start = view.cursor = taken.next_free(view.cursor)
            if start >= tail.next_offset:
                return
            if start >= tail.first_offset:
                messages = tail.slice(start, limits.SELECTOR_SCAN_STEP_MESSAGES)
                end = start + len(messages)
            elif self._block_start <= start < self._block_end:
                index = bisect_left(self._block_offsets, start)
                messages = self._block[index : index + limits.SELECTOR_SCAN_STEP_MESSAGES]
                is_rest = index + len(messages) == len(self._block)
                end = self._block_end if is_rest else messages[-1].offset + 1
            else:
                self._wanting[view] = None
                return
            self._budget -= max(1, len(messages))
            self._look_at(messages, start, end, view)

    def _look_at(self, messages: list[Message], start: int, end: int, lead: View) -> None:
        """Show messages, all there are of `[start, end)`, to `lead` and whoever stands there with it."""
        group = self.group
        queue = group.queue
        fields = queue.manager.fields
        wanted_by_group = group.wants
        taken = self.taken
        scanning = [
            view
            for view in self.views
            if start <= view.cursor < end and (view is lead or (view.consumers and self._has_room(view)))
        ]
        for view in scanning:
            view.is_scanning = True
        passed: list[Message] = []
        for message in messages:
            offset = message.offset
            if message is RELEASED or taken.contains(offset):
                continue
            if wanted_by_group is not None and not wanted_by_group(message):
                passed.append(message)
                continue
            for view in self.views.candidates(message.template):
                if not view.is_scanning or view.cursor > offset:
                    continue
                if not view.wants(queue, message, 1, fields):
                    continue
                if view is not lead and not self._has_room(view):
                    view.cursor = offset
                    view.is_scanning = False
                    continue
                view.found.append(message)
                self._found_bytes += len(message.body or b"")
                if len(view.found) >= limits.SELECTED_MESSAGES_MAX:
                    view.cursor = offset + 1
                    view.is_scanning = False
        for view in scanning:
            if view.is_scanning:
                view.cursor = end
                view.is_scanning = False
        if passed:
            group._skip_unwanted(passed)
            taken.add([message.offset for message in passed])
            self._moved()
            self._let_go(passed)

    def _has_room(self, view: View) -> bool:
        return (
            len(view.found) < limits.SELECTED_MESSAGES_MAX
            and self._found_bytes < limits.SELECTED_BYTES_PER_GROUP_MAX
        )

    def _let_go(self, messages: list[Message]) -> None:
        """Nobody will ask the tail of an ephemeral queue for these again."""
        queue = self.group.queue
        if queue.durable:
            return
        others = [group for group in queue.groups.values() if group is not self.group]
        for message in messages:
            if all(other.has_taken(message.offset) for other in others):
                queue.tail.release(message.offset)

    def _moved(self) -> None:
        """The group's position follows what was taken."""
        group = self.group
        group.position = self.taken.position
        group.mark_dirty()

    def _request(self, view: View) -> None:
        """Have read back what the view needs next."""
        group = self.group
        group.loading = True
        entry = view.next_returned()
        if (
            entry is not None
            and entry.message.body is None
            and entry.message.offset < self._returned_end(view)
        ):
            entries = [e for _, _, e in nsmallest(limits.LOAD_MESSAGES_MAX, view.returned)]
            wanted = [e.message for e in entries if e.state == AVAILABLE and e.message.body is None]
            group.queue.manager.loads.append(PayloadLoad(group, wanted))
            return
        sequence = max(group.cursor_sequence, group.queue.sequence_at(view.cursor) or 0)
        for offset, mark in group.marks:
            if offset > view.cursor:
                break
            sequence = max(sequence, mark)
        group.queue.manager.loads.append(LogLoad(group, sequence, view.cursor))

    def log_loaded(self, load: LogLoad, rows: list[Message], next_offset: int, sequence: int) -> None:
        """As `Group.log_loaded`."""
        group = self.group
        taken = self.taken
        start = load.offset
        for row in rows:
            self._gone(start, row.offset)
            start = row.offset + 1
        self._gone(start, next_offset)
        self._block = rows
        self._block_offsets = [row.offset for row in rows]
        self._block_start = load.offset
        self._block_end = next_offset
        if not group.marks or next_offset > group.marks[-1][0]:
            group.marks.append((next_offset, sequence))
        if taken.position != group.position:
            self._moved()

    def _gone(self, start: int, end: int) -> None:
        if start < end:
            release_gone(self.group, start, end)
            self.taken.add_range(start, end)

    def _forget_block(self) -> None:
        self._block = []
        self._block_offsets = []
        self._block_start = self._block_end = 0
