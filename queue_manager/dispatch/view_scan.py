"""Looking for what the views of a cursor want, in memory and in the store."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final

from config import limits
from queue_manager.claims.claim import AVAILABLE
from queue_manager.cursor.cursor import Cursor, Dispatcher
from queue_manager.dispatch.filter_views import View, Views
from queue_manager.log.claimed import ClaimedBitmap
from queue_manager.log.tail import RELEASED
from queue_manager.model import Message
from queue_manager.shard.loads import LogRows

OFFSET_END: Final = 1 << 63  # beyond every offset


@dataclass(eq=False, repr=False, slots=True)
class Scan:
    """How the views of a cursor move through its log.

    What is looked at for one view is looked at for all that stand at the same place, so that a message is
    read once and each filter asked about it once. `_block` are messages read back from the store, all there
    are of the offsets from `_block_start` to `_block_end`. `_budget` is how many messages may still be looked
    at in this dispatch, `_wanting` the views that need something read back.
    """

    _cursor: Cursor
    _claimed: ClaimedBitmap
    _views: Views
    _block: list[Message] = field(default_factory=list, init=False)
    _block_offsets: list[int] = field(default_factory=list, init=False)
    _block_start: int = field(default=0, init=False)
    _block_end: int = field(default=0, init=False)
    _budget: int = field(default=0, init=False)
    _found_bytes: int = field(default=0, init=False)
    _load_count: int = field(default=0, init=False)
    _wanting: dict[View, None] = field(default_factory=dict, init=False)

    def begin(self) -> None:
        """Begin a dispatch."""
        self._budget = limits.SELECTOR_SCAN_MESSAGES_MAX

    def finish(self) -> bool:
        """End a dispatch: ask for what is missing; give whether there is more to look at at once."""
        again = False
        if self._wanting and not self._cursor.reader.is_loading:
            view = min(self._wanting, key=lambda view: view.last_load)
            self._load_count += 1
            view.asked(self._load_count)
            self._request(view)
        elif self._budget <= 0:
            again = True
        self._wanting.clear()
        if self._block and all(
            view.cursor >= self._block_end for view in self._views if view.consumers or not view.key
        ):
            self.forget_block()
        return again

    def is_held_up(self) -> bool:
        """Return whether so much waits for another attempt that nothing new may be claimed."""
        return self._cursor.claims.delays.is_full()

    def returned_end(self, view: View) -> int:
        """Return the offset below which what came back comes before everything that did not."""
        if view.found:
            return view.found[0].offset
        return OFFSET_END if self.is_held_up() else view.cursor

    def want(self, view: View) -> None:
        """Have something read back that a view needs."""
        self._wanting[view] = None

    def look_for(self, view: View) -> None:
        """Look at messages until one is found for `view`, as far as memory, and this turn, reach."""
        found = view.found
        claimed = self._claimed
        while found and claimed.contains(found[0].offset):
            self._found_bytes -= len(found.popleft().body or b"")
        if self.is_held_up():
            return
        tail = self._cursor.log.tail
        log_end = self._cursor.backlog.end()
        while not found and self._budget > 0:
            start = claimed.next_free(view.cursor)
            view.move_to(start)
            if start >= log_end:
                return
            if start >= tail.first_offset:
                messages = tail.slice(start, min(limits.SELECTOR_SCAN_STEP_MESSAGES, log_end - start))
                end = start + len(messages)
            elif self._block_start <= start < self._block_end:
                index = bisect_left(self._block_offsets, start)
                block_end = bisect_left(self._block_offsets, log_end)
                messages = self._block[index : min(index + limits.SELECTOR_SCAN_STEP_MESSAGES, block_end)]
                is_rest = index + len(messages) == block_end
                end = min(self._block_end, log_end) if is_rest else messages[-1].offset + 1
            else:
                self.want(view)
                return
            self._budget -= max(1, len(messages))
            self._look_at(messages, start, end, view)

    def _look_at(self, messages: list[Message], start: int, end: int, lead: View) -> None:
        """Show messages, all there are of `[start, end)`, to `lead` and whoever stands there with it."""
        cursor = self._cursor
        title = cursor.log.title
        fields = cursor.log.context.fields
        wanted_by_group = cursor.backlog.wants
        claimed = self._claimed
        scanning = [
            view
            for view in self._views
            if start <= view.cursor < end and (view is lead or (view.consumers and self._has_room(view)))
        ]
        for view in scanning:
            view.begin_scan()
        passed: list[Message] = []
        for message in messages:
            offset = message.offset
            if message is RELEASED or claimed.contains(offset):
                continue
            if wanted_by_group is not None and not wanted_by_group(message):
                passed.append(message)
                continue
            for view in self._views.candidates(message.template):
                if not view.is_scanning or view.cursor > offset:
                    continue
                if not view.wants(title, message, 1, fields):
                    continue
                if view is not lead and not self._has_room(view):
                    view.end_scan(offset)
                    continue
                view.found.append(message)
                self._found_bytes += len(message.body or b"")
                if len(view.found) >= limits.SELECTED_MESSAGES_MAX:
                    view.end_scan(offset + 1)
        for view in scanning:
            if view.is_scanning:
                view.end_scan(end)
        if passed:
            cursor.backlog.skip_unwanted(passed)
            self.pass_messages(passed)

    def _has_room(self, view: View) -> bool:
        return (
            len(view.found) < limits.SELECTED_MESSAGES_MAX
            and self._found_bytes < limits.SELECTED_BYTES_PER_GROUP_MAX
        )

    def pop_found(self, view: View, end: int, count: int) -> list[Message]:
        """Take the next up to `count` messages found for a view that lie before `end` and are still there."""
        found = view.found
        messages: list[Message] = []
        while found and len(messages) < count and found[0].offset < end:
            message = found.popleft()
            self._found_bytes -= len(message.body or b"")
            if not self._claimed.contains(message.offset):
                messages.append(message)
        return messages

    def pass_messages(self, messages: list[Message]) -> None:
        """Pass these, which the cursor claimed, or is done with."""
        offsets = [message.offset for message in messages]
        self._cursor.progress.claim(offsets)
        self._cursor.stored.mark_dirty()
        self._cursor.retention.release_tail(self._cursor, offsets)

    def forget_view(self, view: View) -> None:
        """Forget a view that is not served any more."""
        self._found_bytes -= sum(len(message.body or b"") for message in view.found)
        self._views.remove(view)

    def forget_block(self) -> None:
        """Let go of what was read back."""
        self._block = []
        self._block_offsets = []
        self._block_start = self._block_end = 0

    def purge(self) -> None:
        """Forget all that was found: nothing is left."""
        self.forget_block()
        for view in self._views:
            view.clear()
        self._found_bytes = 0

    # reading back

    def _request(self, view: View) -> None:
        """Have read back what the view needs next."""
        reader = self._cursor.reader
        claim = view.next_returned()
        if (
            claim is not None
            and claim.message.body is None
            and claim.message.offset < self.returned_end(view)
        ):
            claims = [c for _, _, c in nsmallest(limits.LOAD_MESSAGES_MAX, view.returned)]
            self._cursor.read_back.request(
                [c.message for c in claims if c.state == AVAILABLE and c.message.body is None]
            )
            return
        reader.request(view.cursor, reader.sequence_near(view.cursor))

    def log_loaded(self, found: LogRows) -> None:
        """Take what was read back."""
        load, rows, next_offset, sequence = found
        start = load.offset
        for row in rows:
            self._gone(start, row.offset)
            start = row.offset + 1
        self._gone(start, next_offset)
        self._block = rows
        self._block_offsets = [row.offset for row in rows]
        self._block_start = load.offset
        self._block_end = next_offset
        self._cursor.reader.note_mark(next_offset, sequence)

    def _gone(self, start: int, end: int) -> None:
        if start < end:
            self._cursor.read_back.release_gone(start, end)
            position = self._cursor.position
            self._cursor.progress.claim_range(start, end)
            if self._cursor.position != position:
                self._cursor.stored.mark_dirty()


class Scanning(Dispatcher):
    """The base of what finds messages of a cursor by a scan."""

    __slots__ = ("_scan",)

    _scan: Scan

    def passed(self, cursor: Cursor, messages: list[Message]) -> None:
        if messages:
            self._scan.pass_messages(messages)

    def log_loaded(self, cursor: Cursor, found: LogRows) -> bool:
        self._scan.log_loaded(found)
        return True

    def purged(self, cursor: Cursor) -> None:
        self._scan.purge()
