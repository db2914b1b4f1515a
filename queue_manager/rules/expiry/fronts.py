"""The fronts of a log: readers that find, for each group, what has expired or is too much."""

from __future__ import annotations

from queue_manager.cursor.backlog import Backlog
from queue_manager.cursor.cursor import Cursor
from queue_manager.cursor.failures import DeadLetters
from queue_manager.log.retention import Retention
from queue_manager.log.tail import RELEASED
from queue_manager.model import Message
from queue_manager.rules.expiry.front import Front, FutureGroups, Holder, Walk

Source = Backlog[Cursor] | Front
"""The reader that goes through the log for a group."""

Seen = tuple[
    int, int, int
]  # position, when the message there was received, until when not to look again (ms)


class Fronts:
    """The cursors of a log, stand-ins for those that claim out of order, and one for groups to come.

    `_frontier` is the offset below which nothing is left for groups to come. `_seen` is what was seen when a
    front was read.
    """

    __slots__ = ("_dead_letters", "_frontier", "_future", "_retention", "_seen", "_stand_ins", "_walk")

    def __init__(self, retention: Retention[Cursor], walk: Walk, dead_letters: DeadLetters) -> None:
        self._retention = retention
        self._walk = walk
        self._dead_letters = dead_letters
        self._frontier = 0
        self._future: FutureGroups | None = None
        self._stand_ins: dict[Cursor, Front] = {}
        self._seen: dict[Source, Seen] = {}

    def future(self) -> FutureGroups:
        """Return the stand-in for the groups to come."""
        if self._future is None or self._future.position < self._retention.log.head_offset:
            self._future = FutureGroups(self._retention, self._walk, self._dead_letters)
        return self._future

    def forget_future(self) -> None:
        """Forget those to come: there is a group, or everything was purged."""
        if self._future is not None:
            self._seen.pop(self._future, None)
            self._future = None

    def holders(self) -> list[Holder]:
        """Return the groups; those to come if there are none."""
        if self._retention.members:
            self.forget_future()
            return [*self._retention.members.values()]
        return [self.future()]

    def source(self, holder: Holder) -> Source:
        """Return what goes through the log for a group: its backlog, or a stand-in if it does not claim in
        order.
        """
        if isinstance(holder, FutureGroups):
            return holder
        if holder.progress.claimed is None:
            self._stand_ins.pop(holder, None)
            return holder.backlog
        stand_in = self._stand_ins.get(holder)
        if stand_in is None:
            stand_in = self._stand_ins[holder] = Front(
                self._retention, self._walk, holder.position, holder.reader.sequence
            )
        stand_in.pass_to(holder.position)
        return stand_in

    def is_over_for(self, holder: Holder, message: Message) -> bool:
        """Return whether the group has taken the message, or let go of it."""
        if message is RELEASED or self._retention.is_gone(message.offset):
            return True
        return isinstance(holder, Cursor) and (
            holder.progress.claimed is not None and holder.progress.has_taken(message.offset)
        )

    def pass_over(self, holder: Holder, source: Source, count: int) -> None:
        """Move past so many messages, which are over for the group."""
        if isinstance(holder, FutureGroups):
            holder.pass_over(count)
        else:
            source.pass_by(count)
        self._frontier = max(self._frontier, source.position)

    def welcome(self, cursor: Cursor) -> None:
        """Begin with a group that was made: what was passed before is not for it."""
        if self._frontier > cursor.position:
            cursor.progress.released.add(cursor.position, self._frontier)
            cursor.backlog.pass_to(self._frontier)

    def farewell(self, cursor: Cursor) -> None:
        """Forget a group that is gone, or begins anew."""
        self._seen.pop(cursor.backlog, None)
        stand_in = self._stand_ins.pop(cursor, None)
        if stand_in is not None:
            self._seen.pop(stand_in, None)

    def see(self, source: Source, message: Message, until_ms: int) -> None:
        """Note what is next in the log; not to be looked at again before `until_ms`."""
        self._seen[source] = (source.position, message.received_at_ms, until_ms)

    def seen_due_ms(self, source: Source, ttl_ms: int, *, honours_until: bool) -> int:
        """Return when to look at what is next in the log, if that was seen and would have to be read again;
        else 0.

        What was read is forgotten at once. Groups and priorities that had theirs read anew whenever something
        was read for another one would so take turns for ever.
        """
        seen = self._seen.get(source)
        if (
            seen is None
            or seen[0] != source.position
            or source.position >= self._retention.log.tail.first_offset
        ):
            return 0
        return max(seen[1] + ttl_ms, seen[2] if honours_until else 0)

    def is_loading(self) -> bool:
        """Return whether something is being read for any of them."""
        return any(self.source(holder).reader.is_loading for holder in self.holders())
