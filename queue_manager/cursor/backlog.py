"""The backlog of a cursor: the messages of its log from its position on that the group wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic

from config import limits
from queue_manager.cursor.done_purges import SkippedRows
from queue_manager.cursor.owning_cursor import H
from queue_manager.cursor.stored_state import StoredState
from queue_manager.log.progress import Progress
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.range_set import RangeSet
from queue_manager.log.reader import Reader
from queue_manager.log.retention import Retention
from queue_manager.model import Message

Wanted = Callable[[Message], bool]


@dataclass(eq=False, repr=False, slots=True)
class Backlog(Generic[H]):
    """Takes messages in order, and passes what is unwanted, expired, or gone.

    The place in it is `progress.position`; only messages claimed out of order are ahead of that. `wants` says
    which messages are for the group (None: all). `waits`: what is not durable is not there yet, for a crash
    may give its offset to another message, and somebody is told that. `closed_until`: the group may have
    been given what is not durable below this offset; until that is, nothing is handed out (0: it is open).
    """

    _cursor: H
    _retention: Retention[H]
    progress: Progress
    reader: Reader
    _stored: StoredState
    _skipped: SkippedRows[H]
    wants: Wanted | None
    log: QueueLog = field(init=False)
    waits: bool = field(default=False, init=False)
    closed_until: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.log = self._retention.log

    @property
    def position(self) -> int:
        """The first offset not looked at yet."""
        return self.progress.position

    # what is wanted

    def selects(self, message: Message) -> bool:
        """Return whether the message is one for the group."""
        return self.wants is None or self.wants(message)

    def narrow(self, wants: Wanted | None) -> None:
        """Take only what `wants` says yes to from now on; None: all."""
        self.wants = wants

    # what is durable

    def wait(self) -> None:
        """Take only what is durable, where that makes a difference."""
        if self.log.durable and not self.waits:
            self.waits = True
            if self.log.durable_offset < self.log.next_offset:
                self.closed_until = self.log.next_offset

    def stop_waiting(self) -> None:
        """Take what there is."""
        self.waits = self.log.tells_offsets
        if not self.waits:
            self.closed_until = 0

    def is_closed(self) -> bool:
        """Return whether nothing may be handed out, for now."""
        if self.closed_until <= self.log.durable_offset:
            self.closed_until = 0
        return self.closed_until > 0

    def has_only_what_is_not_durable(self) -> bool:
        """Return whether there is something for the group that waits for that, and nothing before it."""
        log = self.log
        return (
            self.waits
            and self.wants is None
            and log.durable_offset <= self.progress.position < log.tail.next_offset
        )

    def end(self) -> int:
        """Return the offset behind the last message that may be taken."""
        return self.log.durable_offset if self.waits else self.log.tail.next_offset

    # taking

    def at_hand(self) -> int:
        """Return messages beyond the position that are in memory; asks for more from the store if there are
        few.
        """
        count = self.reader.at_hand()
        return self.reader.durable_count(count) if self.waits else count

    def take(self, count: int) -> list[Message]:
        """Take the next `count` messages this group wants, the position moved past them."""
        if self.wants is None and self.progress.gaps is None:
            return self._take_next(count)
        gaps = self.progress.take_gaps()
        if gaps is None:
            return self._take_wanted(count)
        while True:
            first = self.progress.position
            messages = self._take_wanted(count)
            self.progress.put_gaps(gaps)
            kept = [message for message in messages if not gaps.contains(message.offset)]
            if kept or not messages or self.progress.position == first:
                return kept
            self.progress.take_gaps()

    def _take_next(self, count: int) -> list[Message]:
        if self.waits:
            count = self.reader.durable_count(count)
            if not count:
                return []
        return self.reader.take(count)

    def _take_wanted(self, count: int) -> list[Message]:
        wants = self.wants
        if wants is None:
            return self._take_next(count)
        messages: list[Message] = []
        scanned = 0
        while len(messages) < count:
            part = self._take_next(count - len(messages))
            if not part:
                break
            wanted = [m for m in part if wants(m)]
            if len(wanted) < len(part):
                self.skip_unwanted([m for m in part if not wants(m)])
            messages += wanted
            scanned += len(part)
            if scanned >= limits.PATTERN_SCAN_MESSAGES_MAX:
                self._cursor.want_dispatch()
                break
        if scanned > len(messages):
            self._stored.mark_dirty()
        return messages

    # being done with messages that nobody was given

    def skip_unwanted(self, messages: list[Message]) -> None:
        """Let go of these: they are nothing for the group."""
        self._skip(messages)
        self._cursor.passed_unwanted(messages)

    def pass_unwanted(self, messages: list[Message]) -> int:
        """Move past those at the position, which are nothing for the group; give how many.

        `messages` are in the tail, in order, the first one at the position; claimed is in order.
        """
        first = self.progress.position
        count = next((i for i, m in enumerate(messages) if m.offset != first + i), len(messages))
        self.pass_by(count)
        self.skip_unwanted(messages[:count])
        return count

    def discard(self, messages: list[Message]) -> None:
        """Discard, without a record, messages that were never claimed."""
        if messages:
            self._skip(messages)
            self._stored.mark_dirty()

    def _skip(self, messages: list[Message]) -> None:
        if self.log.durable:
            self._skipped.add([(m.offset, m.message_id, m.template.shared) for m in messages])

    # moving on

    def begin_at(self, position: int, sequence: int) -> None:
        """Begin at `position`: nothing was claimed yet."""
        self.progress.go_on_at(position)
        self.reader.begin_at(sequence)

    def pass_by(self, count: int) -> None:
        """Move the position past the next `count` messages in memory, wanted or not."""
        self.reader.take(count)
        self._stored.mark_dirty()

    def pass_to(self, offset: int) -> None:
        """Go on at `offset`, if that is not behind and messages are claimed in order."""
        if self.progress.claimed is None and self.reader.pass_to(offset):
            self._stored.mark_dirty()

    def skip_to(self, offset: int) -> None:
        """Go on at `offset`: nothing before it is kept."""
        self.progress.go_on_at(offset)
        self.reader.forget()
        self._stored.mark_dirty()

    def pass_released(self) -> None:
        """Pass what the log has let go of, though memory or the store may still have it."""
        self._pass_ranges(self._retention.payloads.released)

    def pass_expired(self) -> None:
        """Keep account, out of order, of what expired ahead of the groups: it is nothing for this one."""
        self._pass_ranges(self._retention.expired.ranges_from(self.progress.position))

    def _pass_ranges(self, gone: RangeSet) -> None:
        if self.progress.pass_ranges(gone):
            self._stored.mark_dirty()

    def forget_read(self) -> None:
        """Let go of what was read back; it is read again when it is wanted."""
        self.reader.forget()
