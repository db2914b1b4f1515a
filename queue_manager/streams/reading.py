"""Reading a stream back from the store: one read for all groups that are at about the same place."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from typing import TYPE_CHECKING

from config import limits
from queue_manager.loads import LogLoad, StreamLoad
from queue_manager.model import Message
from queue_manager.tail import MESSAGE_OVERHEAD_BYTES

if TYPE_CHECKING:
    from queue_manager.group import Group
    from queue_manager.streams.stream import Stream


def _offset(message: Message) -> int:
    return message.offset


class Block:
    """What the log holds from offset `start` to `end`; reading goes on at log entry `sequence`."""

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
        """Whether reading at `offset` can go on here."""
        return self.start <= offset < self.end

    def index_of(self, offset: int) -> int:
        """Where the first message at or behind `offset` is."""
        return bisect_left(self.messages, offset, key=_offset)


class StreamReader:
    """The blocks of one stream that are in memory, least recently used first, and those that are coming."""

    __slots__ = ("_asked", "_blocks", "_stream", "memory_bytes", "read_count")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._blocks: OrderedDict[int, Block] = OrderedDict()
        self._asked: dict[int, tuple[LogLoad, list[Group]]] = {}
        self.memory_bytes = 0
        self.read_count = 0  # blocks read from the store so far

    def find(self, offset: int) -> Block | None:
        """The block in memory that holds `offset`."""
        for start, block in self._blocks.items():
            if block.start <= offset < block.end:
                self._blocks.move_to_end(start)
                return block
        return None

    def ask(self, group: Group, offset: int, before: Block | None) -> None:
        """Have what is at `offset` read, behind the block `before`; `group` is woken when it is there."""
        for load, waiting in self._asked.values():
            end = load.end if isinstance(load, StreamLoad) else load.offset + limits.LOAD_MESSAGES_MAX
            if load.offset <= offset < end:
                # it will most likely be in that block; else the group asks again
                if group not in waiting:
                    waiting.append(group)
                return
        load = self._plan(group, offset, before)
        self._asked[load.offset] = load, [group]
        self._stream.manager.loads.append(load)

    def _plan(self, group: Group, offset: int, before: Block | None) -> LogLoad:
        """Whole chunks, so that readers find the same blocks; what is too large bit by bit."""
        stream = self._stream
        goes_on = before is not None and before.end == offset
        stretch = stream.chunks.stretch(offset)
        if stretch is not None:
            chunk, end = stretch
            if before is not None and goes_on:
                return StreamLoad(group, before.sequence, offset, end)
            return StreamLoad(group, chunk.sequence, max(chunk.first_offset, stream.head_offset), end)
        if before is not None and goes_on:
            return LogLoad(group, before.sequence, offset)
        return LogLoad(group, stream.sequence_for(offset), offset)

    def loaded(self, load: LogLoad, messages: list[Message], end: int, sequence: int) -> None:
        """Take what a load read, and wake who waits for it."""
        self.read_count += 1
        if end > load.offset:
            block = Block(load.offset, end, sequence, messages)
            old = self._blocks.pop(block.start, None)
            if old is not None:
                self.memory_bytes -= old.memory_bytes
            self._blocks[block.start] = block
            self.memory_bytes += block.memory_bytes
            replayed = self._stream.manager.replayed
            replayed[self._stream] = None
            bytes_max = limits.STREAM_READ_BYTES_MAX // len(replayed)
            while len(self._blocks) > 1 and (
                self.memory_bytes > bytes_max or len(self._blocks) > limits.STREAM_BLOCKS_MAX
            ):
                self.memory_bytes -= self._blocks.popitem(last=False)[1].memory_bytes
        for group in self._asked.pop(load.offset, (load, []))[1]:
            group.mark_dispatch()
        self._stream.block_left()  # who asked may be gone

    def forget(self) -> None:
        """Let go of everything: nobody reads on from here."""
        self._blocks.clear()
        self.memory_bytes = 0
        self._stream.manager.replayed.pop(self._stream, None)

    def forget_before(self, offset: int) -> None:
        """Let go of blocks that end at or below `offset`."""
        for start in [start for start, block in self._blocks.items() if block.end <= offset]:
            self.memory_bytes -= self._blocks.pop(start).memory_bytes
