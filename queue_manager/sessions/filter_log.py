"""The log of a topic filter: messages of QoS 1 and 2 that it matched, once for all sessions subscribed to
it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from itertools import chain
from typing import Final, Protocol

from config import limits
from queue_manager.sessions.blocks import (
    END,
    MESSAGE_OVERHEAD_BYTES,
    Block,
    Blocks,
    Found,
    message_id_of,
)
from queue_manager.sessions.common import Bounds
from queue_manager.shard.commit import OnceDurable
from queue_manager.shard.context import Context
from queue_manager.shard.loads import ScanLoad
from storage.encoding import prefix_end
from storage.records import filter_log, filter_log_entry
from storage.records.filter_log_entries import Kept, decode_entry, decode_entry_head

_NOTHING: Final = Found([], END)


class LogReader(Protocol):
    """A subscription of a session to the filter. `end_id`: it needs nothing from this ID on; `END` while it
    has not ended.
    """

    end_id: int

    @property
    def low_id(self) -> int:
        """The lowest ID that it still needs."""

    def has_more(self) -> None:
        """Tell that something came into the log, or was read back."""

    def head_moved(self) -> None:
        """Tell that older messages of the log are gone."""


OWN: Final = "\0"
"""Begins the names of logs and subscriptions that nobody subscribed to: no filter has it."""

ENDED: Final = OWN + OWN
"""Begins the names of subscriptions that ended with messages in flight, or waiting."""


@dataclass(eq=False, repr=False, slots=True)
class FilterLog:
    """The messages that one filter matched, in order of IDs: the newest in memory, the rest on the store.

    `readers` are the subscriptions to the filter, `live` those of sessions with a connection; `holders` are
    subscriptions that ended and of which messages are in flight, or wait. `last_id`: no message
    has a higher ID. `end_count` and `end_bytes`: what it ever got; `head_count` and `head_bytes`:
    what of that is known to be gone. `next_id`: the ID the next message of the broker gets; `_unused` is
    called when nothing reads it any more. Implements `queue_manager.shard.context.Appended`.
    """

    _context: Context
    _blocks: Blocks
    number: int
    filter: str
    next_id: InitVar[int]
    _unused: Callable[[FilterLog], None]
    end_count: int = 0
    end_bytes: int = 0
    is_own: bool = field(init=False)  # of one subscription, and nothing is published to it
    readers: dict[LogReader, None] = field(default_factory=dict, init=False)
    live: dict[LogReader, None] = field(default_factory=dict, init=False)
    holders: dict[LogReader, None] = field(default_factory=dict, init=False)
    is_closed: bool = field(default=False, init=False)
    waiting: dict[LogReader, None] = field(default_factory=dict, init=False)
    last_id: int = field(init=False)
    durable_id: int = field(init=False)
    head_count: int = field(default=0, init=False)
    head_bytes: int = field(default=0, init=False)
    _memory_id: int = field(init=False)  # from this ID on everything is in the tail
    _tail: list[Kept] = field(default_factory=list, init=False)
    _tail_bytes: int = field(default=0, init=False)
    _unwritten: int = field(default=0, init=False)  # index of the first message of the tail in no commit
    _rows: list[tuple[int, int]] = field(default_factory=list, init=False)  # (first, last message) as known
    _scan_rows: int = field(default_factory=lambda: limits.FILTER_LOG_ROWS_PER_SCAN_MIN, init=False)
    _loading_from: int | None = field(default=None, init=False)
    _is_trimming: bool = field(default=False, init=False)
    _is_removed: bool = field(default=False, init=False)

    def __post_init__(self, next_id: int) -> None:
        self.is_own = self.filter.startswith(OWN)
        self.last_id = next_id - 1
        self.durable_id = self._memory_id = next_id

    # appending

    def append(self, messages: list[Kept], body_bytes: int) -> None:
        """Take messages with rising IDs above all others."""
        self._tail += messages
        self._tail_bytes += body_bytes + len(messages) * MESSAGE_OVERHEAD_BYTES
        self.end_count += len(messages)
        self.end_bytes += body_bytes
        self.last_id = messages[-1].message_id
        self._context.appended[self] = None
        for reader in self.live:
            reader.has_more()

    def write_log(self, now_ms: int) -> None:
        if self._is_removed:
            return
        tail = self._tail
        first_count = self.end_count - (len(tail) - self._unwritten)
        first_bytes = self.end_bytes - sum([len(m.body) for m in tail[self._unwritten :]])
        while self._unwritten < len(tail):
            row, row_bytes = _row_of(tail, self._unwritten)
            key = filter_log_entry.key(self.number, row[0].message_id)
            self._context.commit.put(key, filter_log_entry.encode(first_count, first_bytes, row))
            self._rows.append((row[0].message_id, row[-1].message_id))
            self._unwritten += len(row)
            first_count += len(row)
            first_bytes += row_bytes
        self._context.commit.log_ends[self] = self.last_id + 1
        self._context.trimmable[self] = None

    def became_durable(self, end_offset: int, tail_bytes_max: int) -> None:
        """See `queue_manager.shard.commit.WrittenLog`; `end_offset` is a message ID."""
        self.durable_id = end_offset
        self._shrink()

    def _shrink(self) -> None:
        """Let go of messages in memory that are durable and that nobody is about to read."""
        low = min((reader.low_id for reader in self.live), default=END)
        kept = bisect_left(self._tail, min(low, self.durable_id), key=message_id_of)
        if self._tail_bytes > limits.FILTER_LOG_TAIL_BYTES_MAX:
            kept = bisect_left(self._tail, self.durable_id, key=message_id_of)
        if not kept:
            return
        gone = self._tail[:kept]
        del self._tail[:kept]
        self._unwritten -= kept
        self._memory_id = gone[-1].message_id + 1
        self._tail_bytes -= sum([len(m.body) for m in gone]) + kept * MESSAGE_OVERHEAD_BYTES

    # reading

    def read(self, from_id: int, count: int, reader: LogReader) -> Found | None:
        """Return up to `count` messages from that ID on; None: they are being read, the reader will be
        told.
        """
        if from_id > self.last_id:
            return _NOTHING
        if from_id >= self._memory_id:
            start = bisect_left(self._tail, from_id, key=message_id_of)
            found = self._tail[start : start + count]
            return Found(found, END if start + count >= len(self._tail) else found[-1].message_id + 1)
        block = self._blocks.find(self.number, from_id)
        if block is not None:
            return block.read(from_id, count)
        self.waiting[reader] = None
        if self._loading_from is None:
            self._load(from_id)
        return None

    def _load(self, from_id: int) -> None:
        """Read the entry that may have that message in its midst, then those behind it."""
        self._loading_from = from_id
        if len(self.readers) == 1 and not self.holders:  # nothing before what its only reader needs is there
            self._load_from(filter_log_entry.prefix(self.number), from_id)
            return

        def then(rows: list[tuple[bytes, bytes]], now_ms: int) -> None:
            start = rows[0][0] if rows else filter_log_entry.key(self.number, from_id)
            self._load_from(start, from_id)

        start, end = filter_log_entry.prefix(self.number), filter_log_entry.key(self.number, from_id + 1)
        self._context.loads.append(ScanLoad(start, end, 1, then, reverse=True))

    def _load_from(self, start: bytes, from_id: int) -> None:
        durable_id = self.durable_id
        limit = self._scan_rows

        def then(rows: list[tuple[bytes, bytes]], now_ms: int) -> None:
            self._loaded(from_id, durable_id, rows, is_all=len(rows) < limit)

        end = prefix_end(filter_log_entry.prefix(self.number))
        self._context.loads.append(ScanLoad(start, end, limit, then))

    def _loaded(
        self, from_id: int, durable_id: int, rows: list[tuple[bytes, bytes]], *, is_all: bool
    ) -> None:
        self._loading_from = None
        messages: list[Kept] = []
        for key, value in rows:
            first_id = filter_log_entry.parse_key(key)[1]
            found = decode_entry(first_id, value, self._blocks.templates)
            self._learn(first_id, found[-1].message_id)
            messages += found
        end_id = messages[-1].message_id + 1 if messages else from_id
        if is_all:
            end_id = max(end_id, durable_id)
        self._adapt(rows)
        start = bisect_left(messages, from_id, key=message_id_of)
        self._blocks.add(Block(self.number, from_id, end_id, messages[start:]))
        waiting = list(self.waiting)
        self.waiting.clear()
        for reader in waiting:
            reader.has_more()

    def _adapt(self, rows: list[tuple[bytes, bytes]]) -> None:
        """Read as many rows at a time as make up a block."""
        read_bytes = sum([len(value) for _, value in rows])
        if read_bytes:
            wanted = len(rows) * limits.FILTER_LOG_BLOCK_BYTES // read_bytes
            self._scan_rows = max(
                limits.FILTER_LOG_ROWS_PER_SCAN_MIN, min(wanted, limits.FILTER_LOG_ROWS_PER_SCAN_MAX)
            )

    def _learn(self, first_id: int, last_id: int) -> None:
        row = (first_id, last_id)
        index = bisect_left(self._rows, row)
        if index == len(self._rows) or self._rows[index] != row:
            insort(self._rows, row)

    # letting go

    def forget_reader(self, reader: LogReader) -> None:
        """Forget a subscription that is gone; what only it needed is removed."""
        self.readers.pop(reader, None)
        self.live.pop(reader, None)
        self.holders.pop(reader, None)
        self.waiting.pop(reader, None)
        if self.readers or (self.is_closed and self.holders):
            self.trim()
        else:
            self._unused(self)

    def advance_head(self) -> None:
        """See `queue_manager.shard.context.Trimmable`: delete the known rows that every reader is done
        with.
        """
        if not self._rows or self._is_removed:
            return
        low = self._low_id()
        count = bisect_left(self._rows, low, key=message_id_of)
        while count and self._rows[count - 1][1] >= low:
            count -= 1
        if count:
            keys = [filter_log_entry.key(self.number, first_id) for first_id, _ in self._rows[:count]]
            self._context.commit.delete_run(keys)
            del self._rows[:count]
            self._blocks.forget(self.number, low)
        self._shrink()

    def _low_id(self) -> int:
        return min((reader.low_id for reader in chain(self.readers, self.holders)), default=END)

    def begin_head(self, count: int, body_bytes: int) -> None:
        """Count so much as gone."""
        self.head_count = count
        self.head_bytes = body_bytes
        for reader in self.readers:
            reader.head_moved()

    def drop_oldest(self, bounds: Bounds) -> None:
        """Delete the oldest entries that no session would get, having too much that waits."""
        if self._is_trimming or self._is_removed:
            return
        self._is_trimming = True

        def is_too_much(key: bytes, value: bytes) -> bool:
            head = decode_entry_head(value)
            count, body_bytes = head.first_count + head.message_count, head.first_bytes + head.body_bytes
            if not bounds.excess(self.end_count - count + 1, self.end_bytes - body_bytes + 1):
                self._context.trimmable[self] = None
                return False
            self._context.commit.delete(key)
            self.begin_head(count, body_bytes)
            return True

        def done() -> None:
            self._is_trimming = False

        end = filter_log_entry.key(self.number, self.durable_id)
        self._walk(filter_log_entry.prefix(self.number), end, is_too_much, done)

    def _walk(
        self,
        start: bytes,
        end: bytes | None,
        goes_on: Callable[[bytes, bytes], bool],
        done: Callable[[], None],
    ) -> None:
        """Go through entries, some at a time, until `goes_on` says no or there are none; then call `done`."""
        limit = limits.FILTER_LOG_ROWS_PER_TRIM

        def then(rows: list[tuple[bytes, bytes]], now_ms: int) -> None:
            if all(goes_on(*row) for row in rows) and len(rows) == limit:
                self._walk(rows[-1][0] + b"\x00", end, goes_on, done)
            else:
                done()

        self._context.loads.append(ScanLoad(start, end, limit, then))

    def trim(self) -> None:
        """Delete what nobody needs although nobody here read it: found by looking through the store."""
        self._context.trimmable[self] = None
        if self._is_trimming or self._is_removed:
            return
        low = self._low_id()
        self._is_trimming = True

        def done() -> None:
            self._is_trimming = False

        self._trim_to(filter_log_entry.key(self.number, min(low, self.durable_id)), low, done)

    def _trim_to(self, end: bytes | None, low: int, done: Callable[[], None]) -> None:
        """Delete the entries before `end` of which all messages have IDs below `low`."""

        def let_go(key: bytes, value: bytes) -> bool:
            first_id = filter_log_entry.parse_key(key)[1]
            if first_id + decode_entry_head(value).last_delta < low:
                self._context.commit.delete(key)
            return True

        self._walk(filter_log_entry.prefix(self.number), end, let_go, done)

    def close(self, name: str) -> None:
        """Keep it for its holders only: nothing comes into it any more, it has another name, and what came
        after they ended is deleted.
        """
        self.filter = name
        self.is_own = True
        self.is_closed = True
        self.trim()
        end_id = max(holder.end_id for holder in self.holders)
        if end_id > self.last_id:
            return
        kept = bisect_left(self._tail, end_id, key=message_id_of)
        gone = self._tail[kept:]
        del self._tail[kept:]
        gone_bytes = sum([len(m.body) for m in gone])
        self._tail_bytes -= gone_bytes + len(gone) * MESSAGE_OVERHEAD_BYTES
        self._unwritten = min(self._unwritten, kept)
        self.end_count -= len(gone)
        self.end_bytes -= gone_bytes
        self.last_id = end_id - 1
        del self._rows[bisect_left(self._rows, (end_id, 0)) :]
        start = filter_log_entry.key(self.number, end_id)
        self._context.commit.wait(OnceDurable(lambda _: self._delete_from(start)), 0)

    def _delete_from(self, start: bytes) -> None:
        """Delete the entries from that key on; the commits that write them are over."""

        def delete(key: bytes, value: bytes) -> bool:
            self._context.commit.delete(key)
            return not self._is_removed

        self._walk(start, prefix_end(filter_log_entry.prefix(self.number)), delete, lambda: None)

    def remove(self) -> None:
        """Delete all of it, what is on its way to the store too: it has no subscription any more."""
        self._is_removed = True
        self._loading_from = -1
        self._blocks.forget(self.number)
        self._context.appended.pop(self, None)
        self._tail.clear()
        self._rows.clear()
        self._is_trimming = True
        end = prefix_end(filter_log_entry.prefix(self.number))

        def done() -> None:
            self._context.commit.delete(filter_log.key(self.number))

        # once the commits with rows of it have been written
        self._context.commit.wait(OnceDurable(lambda _: self._trim_to(end, END, done)), 0)


def _row_of(tail: list[Kept], start: int) -> tuple[list[Kept], int]:
    """Return as many messages from `start` on as one row takes, and the bytes of their bodies."""
    row_bytes = 0
    end = start
    stop = min(len(tail), start + limits.FILTER_LOG_ENTRY_MESSAGES_MAX)
    while end < stop:
        size = len(tail[end].body)
        if end > start and row_bytes + size > limits.FILTER_LOG_ENTRY_BYTES_MAX:
            break
        row_bytes += size
        end += 1
    return tail[start:end], row_bytes
