"""Reading a log in order: from the tail in memory, or what was read back from the store."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from config import limits
from queue_manager.log.progress import Progress
from queue_manager.log.queue_log import QueueLog
from queue_manager.model import Message
from queue_manager.shard.context import Context
from queue_manager.shard.loads import LoadTarget, LogLoad, LogRows


@dataclass(eq=False, repr=False, slots=True)
class Reader:
    """The place of one reader in a log.

    `_loaded` has been read back from the store: what is kept of the offsets from the position to
    `_loaded_end`, where reading goes on at `_loaded_sequence`. `_marks` are the pairs of offset and sequence
    at which loads ended, for the cursor's sequence to advance to as the position does. `is_loading`: a load
    is on its way, or has to wait until it is known what there is.
    """

    _log: QueueLog
    _progress: Progress
    _target: LoadTarget
    sequence: int  # of a log entry at or before the one that holds the position
    is_loading: bool = field(default=False, init=False)
    _loaded: Sequence[Message] = field(default=(), init=False)
    _loaded_next: int = field(default=0, init=False)
    _loaded_end: int = field(default=0, init=False)
    _loaded_sequence: int = field(default=0, init=False)
    _marks: list[tuple[int, int]] = field(default_factory=list, init=False)
    _context: Context = field(init=False)

    def __post_init__(self) -> None:
        self._context = self._log.context

    # in memory; each may have more read

    def at_hand(self) -> int:
        """Give how many messages from the position on are in memory."""
        tail = self._log.tail
        position = self._progress.position
        if position >= tail.first_offset:
            if self._loaded:
                self.forget()
            return tail.next_offset - position
        count = len(self._loaded) - self._loaded_next
        if count < limits.LOADED_LOW_WATER and self._loaded_end < tail.first_offset:
            self._request()
        return count

    def take(self, count: int) -> list[Message]:
        """Give the next up to `count` messages in memory, and move the position past them."""
        progress = self._progress
        tail = self._log.tail
        position = progress.position
        if position >= tail.first_offset:
            if self._loaded:
                self.forget()
            messages = tail.slice(position, count)
            progress.go_on_at(position + len(messages))
            return messages
        start = self._loaded_next
        messages = list(self._loaded[start : start + count])
        if not messages:
            self._request()
            return messages
        self._loaded_next = start + len(messages)
        position = messages[-1].offset + 1
        if self._loaded_next == len(self._loaded):
            self._loaded = ()
            self._loaded_next = 0
            position = max(position, self._loaded_end)
        progress.go_on_at(position)
        return messages

    def peek(self, count: int) -> list[Message]:
        """Give the next up to `count` messages in memory."""
        if not self.at_hand():
            return []
        position = self._progress.position
        if position >= self._log.tail.first_offset:
            return self._log.tail.slice(position, count)
        return list(self._loaded[self._loaded_next : self._loaded_next + count])

    def durable_count(self, count: int) -> int:
        """Give how many of the next `count` messages in memory are durable."""
        end = self._log.durable_offset
        position = self._progress.position
        if position >= self._log.tail.first_offset:
            return max(0, min(count, end - position))
        loaded = self._loaded
        if loaded and loaded[-1].offset >= end:  # the store may have what it has not synced
            durable_end = bisect_left(loaded, end, self._loaded_next, key=attrgetter("offset"))
            return min(count, durable_end - self._loaded_next)
        return count

    def pass_to(self, offset: int) -> bool:
        """Go on at `offset`, if that is not behind; give whether the position moved."""
        progress = self._progress
        if offset <= progress.position:
            return False
        position = offset
        loaded = self._loaded
        if loaded:
            while self._loaded_next < len(loaded) and loaded[self._loaded_next].offset < offset:
                self._loaded_next += 1
            if self._loaded_next == len(loaded):
                self._loaded = ()
                self._loaded_next = 0
                position = max(offset, self._loaded_end)
        progress.go_on_at(position)
        return True

    def forget(self) -> None:
        """Let go of what was read back; it is read again when it is wanted."""
        self._loaded = ()
        self._loaded_next = 0
        self._loaded_end = 0
        self._loaded_sequence = 0

    # reading back

    def _request(self) -> None:
        self.request(
            max(self._progress.position, self._loaded_end), max(self.sequence, self._loaded_sequence)
        )

    def request(self, offset: int, sequence: int) -> None:
        """Ask for the log from `offset` on, unless something is being read already."""
        if not self.is_loading:
            self.is_loading = True
            self._context.loads.append(LogLoad(self._target, sequence, offset))

    def hold_up(self) -> None:
        """Ask for nothing until `load_ended`: other things are being read."""
        self.is_loading = True

    def load_ended(self) -> None:
        """Note that what was asked for has come: more may be asked for."""
        self.is_loading = False

    def loaded(self, found: LogRows, release_gone: Callable[[int, int], None]) -> bool:
        """Take what a load read; give whether the position moved, for nothing of that stretch is kept."""
        load, rows, next_offset, sequence = found
        progress = self._progress
        if load.offset > max(progress.position, self._loaded_end):
            return False  # what was read before it was forgotten meanwhile
        start = load.offset
        for row in rows:
            release_gone(start, row.offset)
            start = row.offset + 1
        release_gone(start, next_offset)
        self._log.note_sizes([row.body or b"" for row in rows])
        ahead = [row for row in rows if row.offset >= progress.position]
        self._loaded = [*self._loaded[self._loaded_next :], *ahead]
        self._loaded_next = 0
        self._loaded_end = next_offset
        self._loaded_sequence = sequence
        self._marks.append((next_offset, sequence))
        if self._loaded or next_offset <= progress.position:
            return False
        progress.go_on_at(next_offset)
        return True

    # the log entry

    def note_mark(self, offset: int, sequence: int) -> None:
        """Note that reading beyond `offset` may begin at `sequence`."""
        if not self._marks or offset > self._marks[-1][0]:
            self._marks.append((offset, sequence))

    def sequence_near(self, offset: int) -> int:
        """Give a log sequence at or before the entry that holds `offset`, which is not behind the
        position.
        """
        sequence = max(self.sequence, self._log.sequence_at(offset) or 0)
        for mark, known in self._marks:
            if mark > offset:
                break
            sequence = max(sequence, known)
        return sequence

    def advance_sequence(self) -> None:
        """Move `sequence` up to the position."""
        position = self._progress.position
        sequence = self._log.sequence_at(position) or 0
        marks = self._marks
        while marks and marks[0][0] <= position:
            sequence = max(sequence, marks.pop(0)[1])
        self.sequence = max(self.sequence, sequence)

    def begin_at(self, sequence: int) -> None:
        """Read from `sequence` on, or where the log is known to hold the position."""
        known = self._log.sequence_at(self._progress.position) or 0
        self.sequence = max(self.sequence, sequence, known)
