"""Messages that were read back from filter logs, kept for whoever else comes by."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from operator import itemgetter
from typing import Final, NamedTuple

from config import limits
from storage.encoding import U64_MAX
from storage.envelope import TemplateCache
from storage.records.filter_log_entries import Kept

END: Final = U64_MAX  # of what was found: there is no more
MESSAGE_OVERHEAD_BYTES: Final = 200
message_id_of: Final = itemgetter(0)


class Found(NamedTuple):
    """Messages in order; below `end_id` these are all there are."""

    messages: list[Kept]
    end_id: int

    def below(self, end_id: int) -> Found:
        """Return what of this has lower IDs."""
        kept = bisect_left(self.messages, end_id, key=message_id_of)
        if kept < len(self.messages) or self.end_id >= end_id:
            return Found(self.messages[:kept], END)
        return self


class Block:
    """All messages of a log with IDs of `start_id` up to, but without, `end_id`."""

    __slots__ = ("_messages", "end_id", "held_bytes", "log", "start_id")

    def __init__(self, log: int, start_id: int, end_id: int, messages: list[Kept]) -> None:
        self.log = log
        self.start_id = start_id
        self.end_id = end_id
        self._messages = messages
        self.held_bytes = sum([len(m.body) for m in messages]) + len(messages) * MESSAGE_OVERHEAD_BYTES

    def read(self, from_id: int, count: int) -> Found:
        """Return up to `count` messages from that ID on."""
        start = bisect_left(self._messages, from_id, key=message_id_of)
        found = self._messages[start : start + count]
        if start + count >= len(self._messages):
            return Found(found, self.end_id)
        return Found(found, found[-1].message_id + 1)


class Blocks:
    """The blocks of all logs, oldest first; the oldest give way. `templates`: of what is read back."""

    __slots__ = ("_by_log", "_held_bytes", "_order", "templates")

    def __init__(self) -> None:
        self.templates = TemplateCache()
        self._by_log: dict[int, list[Block]] = {}
        self._order: OrderedDict[Block, None] = OrderedDict()
        self._held_bytes = 0

    def find(self, log: int, from_id: int) -> Block | None:
        """Return the block of a log that covers an ID."""
        for block in self._by_log.get(log, ()):
            if block.start_id <= from_id < block.end_id:
                return block
        return None

    def add(self, block: Block) -> None:
        """Keep a block, in the place of older ones where there are too many."""
        self._by_log.setdefault(block.log, []).insert(0, block)
        self._order[block] = None
        self._held_bytes += block.held_bytes
        while len(self._order) > 1 and (
            self._held_bytes > limits.FILTER_LOG_READ_BYTES_MAX
            or len(self._order) > limits.FILTER_LOG_BLOCKS_MAX
        ):
            self._drop(next(iter(self._order)))

    def forget(self, log: int, below_id: int = END) -> None:
        """Let go of the blocks of a log that nobody needs: those that end at or below an ID."""
        for block in [b for b in self._by_log.get(log, ()) if b.end_id <= below_id]:
            self._drop(block)

    def _drop(self, block: Block) -> None:
        del self._order[block]
        self._held_bytes -= block.held_bytes
        blocks = self._by_log[block.log]
        blocks.remove(block)
        if not blocks:
            del self._by_log[block.log]
