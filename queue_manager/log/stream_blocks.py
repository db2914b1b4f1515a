"""Reading a stream back from the store: one read for all cursors that are at about the same place."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from config import limits
from queue_manager.log.queue_log import LogTarget
from queue_manager.log.stream_log import StreamLog
from queue_manager.log.tail import MESSAGE_OVERHEAD_BYTES
from queue_manager.model import Message
from queue_manager.shard.loads import LogLoad, LogRows, StreamLoad


class Waiting(Protocol):
    """A cursor that waits for a block."""

    def want_dispatch(self) -> None:
        """Have the cursor served: the block may be there."""


def _offset(message: Message) -> int:
    return message.offset


class Block:
    """The messages of the log from offset `start` to `end`; reading goes on at log entry `sequence`."""

    __slots__ = ("end", "memory_bytes", "messages", "sequence", "start")

    def __init__(self, start: int, end: int, sequence: int, messages: list[Message]) -> None:
        self.start = start
        self.end = end
        self.sequence = sequence
        self.messages = messages
        self.memory_bytes = len(messages) * MESSAGE_OVERHEAD_BYTES + sum(
            [len(message.body or b"") for message in messages]
        )

    def holds(self, offset: int) -> bool:
        """Return whether reading at `offset` can go on here."""
        return self.start <= offset < self.end

    def index_of(self, offset: int) -> int:
        """Return where the first message at or behind `offset` is."""
        return bisect_left(self.messages, offset, key=_offset)


class StreamBlocks(LogTarget):
    """The blocks of one stream that are in memory, least recently used first, and those that are coming.

    `is_read` tells whether any cursor reads what the tail in memory does not hold any more.
    Implements `LoadTarget`.
    """

    __slots__ = ("_asked", "_blocks", "_is_read", "memory_bytes", "read_count")

    log: StreamLog

    def __init__(self, log: StreamLog, is_read: Callable[[], bool]) -> None:
        super().__init__(log)
        self._is_read = is_read
        self._blocks: OrderedDict[int, Block] = OrderedDict()
        self._asked: dict[int, tuple[LogLoad, list[Waiting]]] = {}
        self.memory_bytes = 0
        self.read_count = 0  # blocks read from the store so far

    def find(self, offset: int) -> Block | None:
        """Return the block in memory that holds `offset`."""
        for start, block in self._blocks.items():
            if block.start <= offset < block.end:
                self._blocks.move_to_end(start)
                return block
        return None

    def ask(self, cursor: Waiting, offset: int, before: Block | None) -> None:
        """Have what is at `offset` read, behind the block `before`; `cursor` is woken when it is there."""
        for load, waiting in self._asked.values():
            end = load.end if isinstance(load, StreamLoad) else load.offset + limits.LOAD_MESSAGES_MAX
            if load.offset <= offset < end:
                # it will most likely be in that block; else the cursor asks again
                if cursor not in waiting:
                    waiting.append(cursor)
                return
        load = self._plan(offset, before)
        self._asked[load.offset] = load, [cursor]
        self._context.loads.append(load)

    def _plan(self, offset: int, before: Block | None) -> LogLoad:
        """Plan whole chunks, so that readers find the same blocks; what is too large bit by bit."""
        log = self.log
        goes_on = before is not None and before.end == offset
        stretch = log.chunks.stretch(offset)
        if stretch is not None:
            chunk, end = stretch
            if before is not None and goes_on:
                return StreamLoad(self, before.sequence, offset, end)
            return StreamLoad(self, chunk.sequence, max(chunk.first_offset, log.head_offset), end)
        if before is not None and goes_on:
            return LogLoad(self, before.sequence, offset)
        return LogLoad(self, log.sequence_for(offset), offset)

    # see `LoadTarget`

    def abandon(self, now_ms: int) -> None:
        self._asked.clear()

    def log_loaded(self, found: LogRows, now_ms: int) -> None:
        load, rows, next_offset, sequence = found
        self.read_count += 1
        if next_offset > load.offset:
            block = Block(load.offset, next_offset, sequence, rows)
            old = self._blocks.pop(block.start, None)
            if old is not None:
                self.memory_bytes -= old.memory_bytes
            self._blocks[block.start] = block
            self.memory_bytes += block.memory_bytes
            self._shrink()
        for cursor in self._asked.pop(load.offset, (load, []))[1]:
            cursor.want_dispatch()
        self.left()  # who asked may be gone

    def _shrink(self) -> None:
        replayed = self._context.replayed
        replayed[self] = None
        bytes_max = limits.STREAM_READ_BYTES_MAX // len(replayed)
        while len(self._blocks) > 1 and (
            self.memory_bytes > bytes_max or len(self._blocks) > limits.STREAM_BLOCKS_MAX
        ):
            self.memory_bytes -= self._blocks.popitem(last=False)[1].memory_bytes

    def left(self) -> None:
        """Forget a cursor that may have stopped reading: the last one to do so has no use for what was
        read.
        """
        if not self._is_read():
            self.forget()

    def forget(self) -> None:
        """Let go of everything: no cursor reads on from here."""
        self._blocks.clear()
        self.memory_bytes = 0
        self._context.replayed.pop(self, None)

    def forget_before(self, offset: int) -> None:
        """Let go of blocks that end at or below `offset`."""
        for start in [start for start, block in self._blocks.items() if block.end <= offset]:
            self.memory_bytes -= self._blocks.pop(start).memory_bytes
