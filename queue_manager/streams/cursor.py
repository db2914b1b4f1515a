"""Where a group of a stream is: its position, what of it is written down, and how it reads on."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify
from typing import TYPE_CHECKING, cast

from config import limits
from queue_manager.group import Group
from queue_manager.groups.settling import release_claim
from queue_manager.loads import LogLoad
from queue_manager.model import STALE, Message
from queue_manager.streams.reading import Block
from queue_manager.streams.start import TIMESTAMP, StreamStart
from queue_manager.views import View
from storage.records import group_position, log_cursor

if TYPE_CHECKING:
    from queue_manager.filters.consumer_filter import ConsumerFilter
    from queue_manager.journal import Journal
    from queue_manager.streams.stream import Stream

Wanted = Callable[[Message], bool]


class StreamCursor(Group):
    """The place of one reader, or of several that share the messages between them.

    `committed` is where the group goes on after a restart, as far as it was told (`auto_commit` False) or was
    written down. `wants` says which messages it takes; the others it passes: those that pattern and selector
    of the group exclude (`wants_always`), and the filter of who reads now (`filter_key`, "" none). `gap`
    counts messages retention took before the group read them, until its consumer has been told;
    `lost_count` all of them.
    """

    __slots__ = (
        "_block",
        "_now_ms",
        "_since_ms",
        "auto_commit",
        "committed",
        "filter_key",
        "gap",
        "is_anonymous",
        "lost_count",
        "wants_always",
    )

    def __init__(
        self,
        queue: Stream,
        name: str,
        pattern: str,
        position: int,
        cursor_sequence: int,
        selector: str = "",
        *,
        anonymous: bool,
    ) -> None:
        super().__init__(queue, name, pattern, position, cursor_sequence, selector)
        self.is_anonymous = anonymous
        self.auto_commit = True
        self.committed = position
        self.gap = 0
        self.lost_count = 0
        self.wants_always: Wanted | None = self.wants
        self.filter_key = ""
        self._now_ms = 0
        self._since_ms = 0  # messages published before it are passed
        self._block: Block | None = None
        if anonymous:
            self.spec_written = True

    @property
    def stream(self) -> Stream:
        """The stream it reads."""
        return cast("Stream", self.queue)

    @property
    def is_replaying(self) -> bool:
        """Whether it is reading what the tail in memory does not hold any more."""
        return bool(self.consumers) and self.position < self.queue.tail.first_offset

    def narrow(self, wanted: ConsumerFilter | None) -> None:
        """Take only what `wanted` says yes to (None: everything the group is for) from now on."""
        key = "" if wanted is None else wanted.key
        if key == self.filter_key:
            return
        self.filter_key = key
        self.wants = always = self.wants_always
        if wanted is not None:
            queue = self.queue
            fields = queue.manager.fields
            asked = View(key, wanted.condition, 0).wants
            if always is None:
                self.wants = lambda message: asked(queue, message, 1, fields)
            else:
                self.wants = lambda message: always(message) and asked(queue, message, 1, fields)
            self._pass_returned()

    def _pass_returned(self) -> None:
        """What came back from who read before, and is not wanted now, is passed like the rest."""
        wants = self.wants
        assert wants is not None
        kept = [row for row in self.returned if wants(row[1].message)]
        if len(kept) == len(self.returned):
            return
        for _, entry in self.returned:
            if not wants(entry.message):
                entry.state = STALE
        heapify(kept)
        self.returned = kept
        self.mark_dirty()

    # place

    def seek(self, start: StreamStart) -> None:
        """Go on at `start`; what was handed out before does not come back."""
        self._rewind(self.stream.place(start))
        self.gap = 0
        self._since_ms = start.value if start.kind == TIMESTAMP else 0
        self.committed = self.position
        self.mark_dirty()
        self.flushed_at_ms = 0
        self.mark_dispatch()

    def commit(self, offset: int) -> None:
        """Everything up to and with `offset` is done with. Without consumers the group goes on behind it."""
        self.committed = offset + 1
        if not self.consumers:
            self._rewind(self.committed)
        self.mark_dirty()
        self.flushed_at_ms = 0

    def floor(self) -> int:
        """The lowest offset handed out and not settled, or the position."""
        floor = self.position
        if self.returned:
            floor = min(floor, self.returned[0][0])
        for consumer in (*self.consumers, *self.draining):
            if consumer.in_flight:
                floor = min(floor, min(consumer.in_flight))
        return floor

    def committed_offset(self) -> int:
        """Where the group would go on if the broker ended now and everything was written."""
        return self.floor() if self.auto_commit else self.committed

    def _rewind(self, offset: int) -> None:
        """Go on at `offset`; claims from before mean nothing any more: consumers that went may have some."""
        for consumer in (*self.consumers, *self.draining):
            for entry in list(consumer.in_flight.values()):
                release_claim(entry)
                entry.state = STALE
        self.returned = []
        self.position = offset
        self._block = None

    # writing

    def mark_dirty(self) -> None:
        """Have the committed offset written with one of the next commits, if it is kept."""
        if not self.is_anonymous:
            super().mark_dirty()

    def write(self, journal: Journal, now_ms: int) -> None:
        """Put the committed offset into `journal`; once more later while somebody has something in flight."""
        self.dirty = False
        floor = self.floor()
        if self.auto_commit:
            self.committed = floor
        stream = self.stream
        self.cursor_sequence = stream.sequence_for(self.committed)
        journal.put(log_cursor.key(self.storage_id, stream.log_id), log_cursor.encode(self.cursor_sequence))
        journal.put(group_position.key(self.storage_id), group_position.encode(self.committed))
        if floor < self.position and (self.consumers or self.draining):
            self._commit_later(now_ms)

    def _commit_later(self, now_ms: int) -> None:
        if not self.dirty and self.auto_commit:
            interval_ms = self.queue.manager.auto_commit_interval_ms
            self.flushed_at_ms = now_ms + interval_ms - limits.STATE_FLUSH_INTERVAL_MS
            self.mark_dirty()

    # reading

    def _fresh_at_hand(self) -> int:
        stream = self.stream
        if self.position < stream.head_offset:
            self._pass_gap()
        tail = stream.tail
        while self.position < tail.first_offset:
            block = self._find_block()
            if block is None:
                return 0
            left = len(block.messages) - block.index_of(self.position)
            if left:
                return left
            self.position = block.end  # nothing of that stretch is kept any more
        if self._block is not None:
            self.forget_loaded()
        return tail.next_offset - self.position

    def _pass_gap(self) -> None:
        """Retention was faster than this group."""
        head = self.stream.head_offset
        skipped = head - self.position
        self.gap += skipped
        self.lost_count += skipped
        self.position = head
        self._block = None
        self.mark_dirty()

    def _find_block(self) -> Block | None:
        """The block the position is in, and the one behind it asked for; None: it must be read first."""
        stream = self.stream
        position = self.position
        block = self._block
        if block is None or not block.holds(position):
            before = block
            block = self._block = stream.reader.find(position)
            if block is None:
                stream.reader.ask(self, position, before)
                return None
        if block.end < stream.tail.first_offset and stream.reader.find(block.end) is None:
            stream.reader.ask(self, block.end, block)
        return block

    def _take(self, count: int) -> list[Message]:
        wants = self.wants
        if wants is None and not self._since_ms:
            return self._take_unfiltered(count)
        taken: list[Message] = []
        scanned = 0
        while len(taken) < count:
            part = self._take_unfiltered(count - len(taken))
            if not part:
                break
            scanned += len(part)
            if self._since_ms:
                since_ms = self._since_ms
                part = [message for message in part if message.received_at_ms >= since_ms]
                if part:
                    self._since_ms = 0
            taken += part if wants is None else filter(wants, part)
            if scanned >= limits.PATTERN_SCAN_MESSAGES_MAX:
                self.mark_dispatch()
                break
        if scanned > len(taken):
            self._commit_later(self._now_ms)  # that it passed messages nobody was given
        return taken

    def _take_unfiltered(self, count: int) -> list[Message]:
        if not self._fresh_at_hand():
            return []
        block = self._block
        if block is None:
            messages = self.queue.tail.slice(self.position, count)
            self.position += len(messages)
            return messages
        index = block.index_of(self.position)
        messages = block.messages[index : index + count]
        end = index + len(messages)
        self.position = block.messages[end].offset if end < len(block.messages) else block.end
        return messages

    def log_loaded(self, load: LogLoad, rows: list[Message], next_offset: int, sequence: int) -> None:
        """Take what a LogLoad read, for all who wait for it."""
        self.stream.reader.loaded(load, rows, next_offset, sequence)

    def forget_loaded(self) -> None:
        """Let go of the block being read; it is found or read again when it is wanted."""
        self._block = None
        self.stream.block_left()

    def take_gap(self) -> int:
        """Messages lost to retention that no consumer was told of yet; they are told now."""
        gap = self.gap
        self.gap = 0
        return gap
