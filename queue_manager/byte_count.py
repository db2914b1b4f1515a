"""How many bytes of payload wait in a queue whose policy bounds them, group by group.

Counts are stored with the queue's log entries and the groups' positions. Where that is not so (the bound is
new, or the group is), what lies in the log is read and counted in the background; until then it does not
count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from config import limits
from queue_manager.loads import BodiesLoad, LogLoad
from queue_manager.model import AVAILABLE, Entry, Message
from queue_manager.nobody import Nobody
from storage.records import queue_account
from storage.records.queue_account import APPENDED, TAKEN

if TYPE_CHECKING:
    from queue_manager.group import Group
    from queue_manager.journal import Journal
    from queue_manager.keeping.state import KeeperState
    from queue_manager.queue import Queue


class _Counter(Nobody):
    """Reads a stretch of the log for a count, as a group would."""

    __slots__ = ("count",)

    def __init__(self, count: GroupBytes, offset: int, sequence: int) -> None:
        super().__init__(count.queue)
        self.count = count
        self.position = offset
        self.cursor_sequence = sequence

    def log_loaded(self, load: LogLoad, rows: list[Message], next_offset: int, sequence: int) -> None:
        """See `GroupReading.log_loaded`: count instead of keeping."""
        self.loading = False
        self.position = next_offset
        self.cursor_sequence = sequence
        self.count.read(self, rows, next_offset)


class GroupBytes:
    """The bytes one group (or nobody yet) has waiting.

    `fresh` is what it has not claimed, but for offsets in `unread` (first and end), which are being counted;
    `waiting` the sizes of claims that came back, by claim number.
    """

    __slots__ = ("fresh", "group", "keeper", "queue", "unread", "waiting", "waiting_bytes")

    def __init__(self, keeper: KeeperState, group: Group) -> None:
        self.keeper = keeper
        self.group = group
        self.queue: Queue = keeper.queue
        self.fresh = 0
        self.unread: tuple[int, int] | None = None
        self.waiting: dict[int, int] = {}
        self.waiting_bytes = 0

    def total(self) -> int:
        return self.fresh + self.waiting_bytes

    def passed(self, messages: list[Message]) -> None:
        """The group moved on over messages that still counted."""
        for message in messages:
            self.gave_up(message.offset, len(message.body or b""))

    def gave_up(self, offset: int, body_bytes: int) -> None:
        """The message at `offset` does not count any more."""
        if self.unread is None or not self.unread[0] <= offset < self.unread[1]:
            self.fresh -= body_bytes

    def add(self, entry: Entry, body_bytes: int) -> None:
        """A claim came back."""
        self.remove(entry)
        self.waiting[entry.claim_number] = body_bytes
        self.waiting_bytes += body_bytes

    def remove(self, entry: Entry) -> None:
        """It does not wait any more."""
        self.waiting_bytes -= self.waiting.pop(entry.claim_number, 0)

    def clear(self) -> None:
        """Everything was purged."""
        self.fresh = self.waiting_bytes = 0
        self.waiting = {}
        self.unread = None

    def count_log(self, position: int, sequence: int) -> None:
        """Count everything from `position` on."""
        tail = self.queue.tail
        start = max(position, tail.first_offset)
        keeper = self.keeper
        self.fresh = sum(
            len(message.body or b"")
            for message in tail.slice(start, len(tail))
            if not keeper.is_over_for(self.group, message)
        )
        self.unread = None
        if position < tail.first_offset:
            self.unread = (position, tail.first_offset)
            counter = _Counter(self, position, sequence)
            self.queue.manager.loads.append(LogLoad(counter, sequence, position))

    def read(self, counter: _Counter, rows: list[Message], next_offset: int) -> None:
        """Take what was read for the count, up to `next_offset`."""
        if self.unread is None or self.queue.deleted:
            return
        start, end = self.unread
        for message in rows:
            if start <= message.offset < end and not self._is_over(message):
                self.fresh += len(message.body or b"")
        self.unread = (max(start, next_offset), end)
        if self.unread[0] >= end:
            self.unread = None
            self.keeper.call_at(0)
            return
        self.queue.manager.loads.append(LogLoad(counter, counter.cursor_sequence, next_offset))

    def _is_over(self, message: Message) -> bool:
        return self.group.has_taken(message.offset) or self.keeper.is_over_for(self.group, message)

    def count_waiting(self, entries: list[Entry]) -> None:
        """Count claims that waited at the start; their payloads are on the store."""
        part, rest = entries[: limits.LOAD_MESSAGES_MAX], entries[limits.LOAD_MESSAGES_MAX :]
        if not part:
            self.keeper.call_at(0)  # perhaps it is too much
            return

        def read(bodies: dict[int, bytes], read_count: int, now_ms: int) -> None:
            for entry in part[:read_count]:
                if entry.state == AVAILABLE:  # as it was at the start
                    self.add(entry, len(bodies.get(entry.message.message_id, b"")))
            self.count_waiting(part[read_count:] + rest)

        self.queue.manager.loads.append(BodiesLoad([entry.message.message_id for entry in part], read))


class ByteCount:
    """The counts of one queue. `appended` grows with every message; what counts is its difference to what
    groups took.
    """

    __slots__ = ("_counts", "_keeper", "appended")

    def __init__(self, keeper: KeeperState) -> None:
        self._keeper = keeper
        self._counts: dict[Group | None, GroupBytes] = {}
        self.appended = 0

    def of(self, group: Group) -> GroupBytes:
        """The count of a group; counts what is there if it was not known."""
        key = None if isinstance(group, Nobody) else group
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = GroupBytes(self._keeper, group)
            count.count_log(group.position, group.cursor_sequence)
        return count

    def welcome(self, group: Group) -> None:
        """A group was made, at the oldest message kept: the first one takes over."""
        nobody = self._counts.pop(None, None)
        if nobody is not None:
            nobody.group = group
            self._counts[group] = nobody
            if group.queue.durable:
                key = queue_account.key(group.queue.name, TAKEN)
                group.queue.manager.journal.delete(key)
        else:
            self.of(group)

    def forget(self, group: Group) -> None:
        """The group is gone, or is to be counted anew from where it is now."""
        self._counts.pop(group, None)
        if group.queue.durable:
            group.queue.manager.journal.delete(queue_account.key(group.storage_id, TAKEN))

    def total(self, groups: list[Group]) -> int:
        """The bytes the group with most of them has waiting."""
        return max(self.of(group).total() for group in groups)

    def add(self, groups: list[Group], body_bytes: int) -> None:
        """So many bytes were appended; the messages are in the tail already."""
        for group in groups:
            key = None if isinstance(group, Nobody) else group
            count = self._counts.get(key)
            if count is None:
                self.of(group)
            else:
                count.fresh += body_bytes
        self.appended += body_bytes

    def write_appended(self, queue: Queue, journal: Journal) -> None:
        """Put the count at the end of the log into the open commit."""
        value = queue_account.encode_bytes(queue.tail.next_offset, self.appended)
        journal.put(queue_account.key(queue.name, APPENDED), value)

    def write_taken(self, group: Group, journal: Journal) -> None:
        """Put the count at the group's position into the open commit."""
        count = self.of(group)
        key = queue_account.key(group.storage_id, TAKEN)
        if count.unread is not None:
            journal.delete(key)
            return
        journal.put(key, queue_account.encode_bytes(group.position, self.appended - count.fresh))

    def restore(self, group: Group, taken: queue_account.Bytes | None) -> None:
        """After a start, with `appended` known: take over a group's count if it was right there."""
        if taken is None and group.position == 0 and not self._keeper.queue.released.starts:
            taken = queue_account.Bytes(0, 0)
        if taken is not None and taken.next_offset == group.position:
            count = GroupBytes(self._keeper, group)
            count.fresh = self.appended - taken.body_bytes
            self._counts[None if isinstance(group, Nobody) else group] = count
