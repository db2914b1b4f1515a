"""The backlog of a stream's group, read from the tail, or by blocks that serve every reader."""

from __future__ import annotations

from dataclasses import dataclass, field

from config import limits
from queue_manager.cursor.backlog import Backlog
from queue_manager.cursor.owning_cursor import H
from queue_manager.log.stream_blocks import Block
from queue_manager.log.stream_retention import StreamRetention
from queue_manager.log.stream_start import TIMESTAMP, StreamStart
from queue_manager.model import Message


@dataclass(eq=False, repr=False, slots=True)
class StreamBacklog(Backlog[H]):
    """See `Backlog`; a stream's always waits.

    `gap` counts messages retention took before the group read them, until its consumer has been told;
    `lost_count` all of them.
    """

    _retention: StreamRetention[H]
    waits: bool = field(default=True, init=False)
    _block: Block | None = field(default=None, init=False)
    _since_ms: int = field(default=0, init=False)  # messages published before it are passed
    gap: int = field(default=0, init=False)
    lost_count: int = field(default=0, init=False)

    # place

    def seek(self, start: StreamStart, offset: int) -> None:
        """Go on at `start`, which is `offset` or somewhat behind."""
        self.rewind(offset)
        self.gap = 0
        self._since_ms = start.value if start.kind == TIMESTAMP else 0

    def rewind(self, offset: int) -> None:
        """Go on at `offset`."""
        self.progress.go_on_at(offset)
        self._block = None

    def take_gap(self) -> int:
        """Take the count of messages lost to retention that no consumer was told of yet."""
        gap = self.gap
        self.gap = 0
        return gap

    # what is durable

    def wait(self) -> None:
        """See `Backlog`."""

    def stop_waiting(self) -> None:
        """See `Backlog`."""

    # reading

    def at_hand(self) -> int:
        progress = self.progress
        if progress.position < self.log.head_offset:
            self._pass_gap()
        tail = self.log.tail
        while progress.position < tail.first_offset:
            block = self._find_block()
            if block is None:
                return 0
            left = len(block.messages) - block.index_of(progress.position)
            if left:
                return left
            progress.go_on_at(block.end)  # nothing of that stretch is kept any more
        if self._block is not None:
            self.forget_read()
        return max(0, self.log.durable_offset - progress.position)

    def _pass_gap(self) -> None:
        """Pass a gap: retention was faster than this group."""
        head = self.log.head_offset
        skipped = head - self.progress.position
        self.gap += skipped
        self.lost_count += skipped
        self.rewind(head)
        self._stored.mark_dirty()

    def _find_block(self) -> Block | None:
        """Find the block the position is in, and ask for the one behind it; None: it must be read first."""
        position = self.progress.position
        block = self._block
        if block is None or not block.holds(position):
            before = block
            block = self._block = self._retention.blocks.find(position)
            if block is None:
                self._retention.blocks.ask(self._cursor, position, before)
                return None
        if block.end < self.log.tail.first_offset and self._retention.blocks.find(block.end) is None:
            self._retention.blocks.ask(self._cursor, block.end, block)
        return block

    def take(self, count: int) -> list[Message]:
        wants = self.wants
        if wants is None and not self._since_ms:
            return self._take_next(count)
        taken: list[Message] = []
        scanned = 0
        while len(taken) < count:
            part = self._take_next(count - len(taken))
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
                self._cursor.want_dispatch()
                break
        if scanned > len(taken):
            self._cursor.passed_unread()
        return taken

    def _take_next(self, count: int) -> list[Message]:
        if not self.at_hand():
            return []
        progress = self.progress
        position = progress.position
        block = self._block
        if block is None:
            messages = self.log.tail.slice(position, min(count, self.log.durable_offset - position))
            progress.go_on_at(position + len(messages))
            return messages
        index = block.index_of(position)
        messages = block.messages[index : index + count]
        end = index + len(messages)
        progress.go_on_at(block.messages[end].offset if end < len(block.messages) else block.end)
        return messages

    def forget_read(self) -> None:
        """Let go of the block being read."""
        self._block = None
        self._retention.blocks.left()
