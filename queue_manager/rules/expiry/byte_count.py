"""How many bytes of payload wait in a log whose policy bounds them, group by group.

Counts are stored with the log entries and the cursors' positions. Where that is not so (the bound is new, or
the group is), what lies in the log is read and counted in the background; until then it does not count.
"""

from __future__ import annotations

from collections.abc import Callable

from config import limits
from queue_manager.claims.claim import AVAILABLE, Claim
from queue_manager.cursor.cursor import Cursor
from queue_manager.log.queue_log import LogTarget, QueueLog
from queue_manager.model import Message
from queue_manager.rules.expiry.front import Holder
from queue_manager.rules.expiry.fronts import Fronts
from queue_manager.shard.commit import Commit
from queue_manager.shard.loads import BodiesLoad, LogLoad, LogRows
from storage.records import ACCOUNT_BYTES, AccountBytes, queue_account
from storage.records.special_codecs import APPENDED, TAKEN

Look = Callable[[int], None]
"""Has everything looked at again then; 0: as soon as may be."""


class GroupBytes(LogTarget):
    """The bytes one group (or groups to come) has waiting.

    `fresh` is what it has not claimed, but for offsets in `unread` (first and end), which are being counted;
    `waiting` the sizes of claims that came back, by claim number. Implements `LoadTarget`.
    """

    __slots__ = ("_fronts", "_look", "fresh", "holder", "unread", "waiting", "waiting_bytes")

    def __init__(self, fronts: Fronts, look: Look, holder: Holder, fresh: int = 0) -> None:
        super().__init__(holder.log)
        self._fronts = fronts
        self._look = look
        self.holder = holder
        self.fresh = fresh
        self.unread: tuple[int, int] | None = None
        self.waiting: dict[int, int] = {}
        self.waiting_bytes = 0

    def total(self) -> int:
        """Return all of them."""
        return self.fresh + self.waiting_bytes

    def taken_over(self, holder: Holder) -> None:
        """Let the first group take the place of those to come."""
        self.holder = holder

    def appended(self, body_bytes: int) -> None:
        """Count so many appended bytes."""
        self.fresh += body_bytes

    def passed(self, messages: list[Message]) -> None:
        """Note that the group moved on over messages that still counted."""
        for message in messages:
            self.gave_up(message.offset, len(message.body or b""))

    def gave_up(self, offset: int, body_bytes: int) -> None:
        """Note that the message at `offset` does not count any more."""
        if self.unread is None or not self.unread[0] <= offset < self.unread[1]:
            self.fresh -= body_bytes

    def add(self, claim: Claim, body_bytes: int) -> None:
        """Count a claim that came back."""
        self.remove(claim)
        self.waiting[claim.claim_number] = body_bytes
        self.waiting_bytes += body_bytes

    def remove(self, claim: Claim) -> None:
        """Note that it does not wait any more."""
        self.waiting_bytes -= self.waiting.pop(claim.claim_number, 0)

    def clear(self) -> None:
        """Count nothing any more: everything was purged."""
        self.fresh = self.waiting_bytes = 0
        self.waiting = {}
        self.unread = None

    def count_log(self, position: int, sequence: int) -> None:
        """Count everything from `position` on."""
        tail = self.log.tail
        start = max(position, tail.first_offset)
        self.fresh = sum(
            len(message.body or b"")
            for message in tail.slice(start, len(tail))
            if not self._fronts.is_over_for(self.holder, message)
        )
        self.unread = None
        if position < tail.first_offset:
            self.unread = (position, tail.first_offset)
            self._context.loads.append(LogLoad(self, sequence, position))

    def log_loaded(self, found: LogRows, now_ms: int) -> None:
        """Count what was read."""
        if self.unread is None or self.log.deleted:
            return
        start, end = self.unread
        for message in found.messages:
            if start <= message.offset < end and not self._is_over(message):
                self.fresh += len(message.body or b"")
        self.unread = (max(start, found.next_offset), end)
        if self.unread[0] >= end:
            self.unread = None
            self._look(0)
            return
        self._context.loads.append(LogLoad(self, found.sequence, found.next_offset))

    def _is_over(self, message: Message) -> bool:
        return self.holder.progress.has_taken(message.offset) or self._fronts.is_over_for(
            self.holder, message
        )

    def count_waiting(self, claims: list[Claim]) -> None:
        """Count claims that waited at the start; their payloads are on the store."""
        part, rest = claims[: limits.LOAD_MESSAGES_MAX], claims[limits.LOAD_MESSAGES_MAX :]
        if not part:
            self._look(0)  # perhaps it is too much
            return

        def read(bodies: dict[int, bytes], read_count: int, now_ms: int) -> None:
            for claim in part[:read_count]:
                if claim.state == AVAILABLE:  # as it was at the start
                    self.add(claim, len(bodies.get(claim.message.message_id, b"")))
            self.count_waiting(part[read_count:] + rest)

        self._context.loads.append(BodiesLoad([claim.message.message_id for claim in part], read))


class ByteCount:
    """The counts of one log. `appended` grows with every message; what counts is its difference to what
    groups took.
    """

    __slots__ = ("_context", "_counts", "_fronts", "_log", "_look", "appended")

    def __init__(self, log: QueueLog, fronts: Fronts, look: Look) -> None:
        self._log = log
        self._context = log.context
        self._fronts = fronts
        self._look = look
        self._counts: dict[Cursor | None, GroupBytes] = {}
        self.appended = 0

    def of(self, holder: Holder) -> GroupBytes:
        """Return the count of a group; counts what is there if it was not known."""
        key = _key(holder)
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = GroupBytes(self._fronts, self._look, holder)
            count.count_log(holder.position, holder.reader.sequence)
        return count

    def welcome(self, cursor: Cursor) -> None:
        """Count for a group that was made, at the oldest message kept: the first one takes over."""
        future = self._counts.pop(None, None)
        if future is not None:
            future.taken_over(cursor)
            self._counts[cursor] = future
            if self._log.durable:
                self._context.commit.delete(queue_account.key(self._log.name, TAKEN))
        else:
            self.of(cursor)

    def forget(self, cursor: Cursor) -> None:
        """Forget a group that is gone, or is to be counted anew from where it is now."""
        self._counts.pop(cursor, None)
        if self._log.durable:
            self._context.commit.delete(queue_account.key(cursor.storage_id, TAKEN))

    def add(self, holders: list[Holder], body_bytes: int) -> None:
        """Count so many appended bytes; the messages are in the tail already."""
        for holder in holders:
            count = self._counts.get(_key(holder))
            if count is None:
                self.of(holder)
            else:
                count.appended(body_bytes)
        self.appended += body_bytes

    def write_appended(self, commit: Commit) -> None:
        """Put the count at the end of the log into the commit."""
        value = ACCOUNT_BYTES.encode(self._log.tail.next_offset, self.appended)
        commit.put(queue_account.key(self._log.name, APPENDED), value)

    def write_taken(self, holder: Holder, commit: Commit) -> None:
        """Put the count at the group's position into the commit."""
        count = self.of(holder)
        key = queue_account.key(holder.storage_id, TAKEN)
        if count.unread is not None:
            commit.delete(key)
            return
        commit.put(key, ACCOUNT_BYTES.encode(holder.position, self.appended - count.fresh))

    def restore(self, appended: int, holders: list[Holder], taken: dict[str, AccountBytes]) -> None:
        """Take over, after a start, the counts of groups, by storage ID, that were right where those are."""
        self.appended = appended
        for holder in holders:
            known = taken.get(holder.storage_id)
            if known is None and holder.position == 0 and not holder.retention.payloads.released.starts:
                known = AccountBytes(0, 0)
            if known is not None and known.next_offset == holder.position:
                fresh = appended - known.body_bytes
                self._counts[_key(holder)] = GroupBytes(self._fronts, self._look, holder, fresh)


def _key(holder: Holder) -> Cursor | None:
    return holder if isinstance(holder, Cursor) else None
