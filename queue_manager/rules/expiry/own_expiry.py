"""Messages with an expiry of their own: all groups let go of them at once, also ahead of where they are."""

from __future__ import annotations

from config import limits
from queue_manager.cursor.failures import REPLACED
from queue_manager.model import Message, MessageBatch
from queue_manager.rules.expiry.front import FutureGroups, Holder
from queue_manager.rules.expiry.level import Level
from queue_manager.rules.expiry.own_ttls import Expiring, OwnTtls
from queue_manager.rules.stored_window import Key
from queue_manager.shard.loads import BodiesLoad
from storage.records import UNKNOWN_BYTES, expiry


class OwnExpiry:
    """The messages of a log that expire by themselves, once there is one."""

    __slots__ = ("_context", "_dead_letters", "_is_loading", "_log", "_retention", "_rules", "_ttls")

    def __init__(self, rules: Level) -> None:
        self._rules = rules
        self._retention = rules.retention
        self._log = rules.log
        self._context = self._log.context
        self._dead_letters = rules.dead_letters
        self._ttls: OwnTtls | None = None
        self._is_loading = False

    @property
    def is_used(self) -> bool:
        """Whether any such message came."""
        return self._ttls is not None

    def _use(self) -> OwnTtls:
        if self._ttls is None:
            self._ttls = OwnTtls(self._log, self._rules)
        return self._ttls

    def add(self, batch: MessageBatch, first_offset: int) -> None:
        """Note appended messages that expire by themselves."""
        self._use().append(batch, first_offset)

    def begin(self) -> None:
        """Note, after a start, that the store holds such messages."""
        self._use().begin()

    def has_due(self, now_ms: int) -> bool:
        """Return whether some may have expired and were not let go of yet."""
        return self._ttls is not None and self._ttls.has_due(now_ms)

    def expire_again(self, messages: list[Message]) -> None:
        """Have those expire once more that were let go of for groups that are gone."""
        for message in messages:
            self._retention.use_expired().discard(message.offset)
            self._log.tail.put_back(message)
            self._use().add_again(message)
        self._retention.write_expired()

    def end_due(self, now_ms: int) -> None:
        """Have every group let go of messages that have expired."""
        if self._ttls is None or self._is_loading:
            return
        log = self._log
        due = self._ttls.take_due(now_ms, limits.EXPIRY_STEP_MESSAGES)
        missing = []
        holders = self._rules.fronts.holders()
        budget = self._rules.budget
        for key, row in due:
            if budget.is_spent:
                self._ttls.put(key, row)
                continue
            budget.spend(1)
            offset = key[1]
            readers = (
                [] if row.is_gone else [holder for holder in holders if not holder.progress.has_taken(offset)]
            )
            if readers and self._needs_body(row) and not self._find_body(row.message):
                missing.append((key, row))
                continue
            row.measure()
            is_over = row.is_gone or offset < log.head_offset or self._retention.is_gone(offset)
            if not is_over and not self._expire_ahead(
                readers, row, self._rules.reason_of(row.message), now_ms
            ):
                self._ttls.put(key, row)
                self._rules.call_at(now_ms + limits.EXPIRY_RETRY_MS)
                continue
            if log.durable:
                self._context.commit.delete(expiry.key(log.name, *key))
        self._pass_expired(holders)
        self._retention.write_expired()
        if missing:
            self._load_bodies(self._ttls, missing)
        elif len(due) == limits.EXPIRY_STEP_MESSAGES:
            self._rules.call_at(now_ms)

    def _pass_expired(self, holders: list[Holder]) -> None:
        """Move groups on over what has expired where they are."""
        if not self._retention.expired.is_used:
            return
        for holder in holders:
            floor = self._retention.expired.ranges.floor_from(holder.position)
            if isinstance(holder, FutureGroups):
                holder.pass_to(floor)
                self._rules.write_future(holder)
            else:
                holder.backlog.pass_to(floor)

    def _needs_body(self, row: Expiring) -> bool:
        return self._dead_letters.is_wanted() or (
            row.body_bytes == UNKNOWN_BYTES and self._rules.bytes is not None
        )

    def _find_body(self, message: Message) -> bool:
        tail = self._log.tail
        if message.body is None and tail.holds(message.offset):
            message.read(tail.slice(message.offset, 1)[0].body)
        return message.body is not None

    def _load_bodies(self, ttls: OwnTtls, missing: list[tuple[Key, Expiring]]) -> None:
        """Read the payloads of these; then they are due again."""
        self._is_loading = True
        for key, row in missing:
            ttls.put(key, row)
        wanted = {row.message.message_id: row for _, row in missing}

        def read(bodies: dict[int, bytes], read_count: int, now_ms: int) -> None:
            self._is_loading = False
            for message_id in list(wanted)[:read_count]:
                wanted[message_id].read(bodies.get(message_id))
            self._rules.read(now_ms)

        self._context.loads.append(BodiesLoad(list(wanted), read))

    def replace(self, row: Expiring, now_ms: int) -> None:
        """Have every group that has not claimed a message let go of it, and groups to come, as a newer one
        took its place; `pass_over` has to follow.
        """
        offset = row.message.offset
        if offset < self._log.head_offset or self._retention.is_gone(offset):
            return
        holders = self._rules.fronts.holders()
        readers = [holder for holder in holders if not holder.progress.has_taken(offset)]
        self._expire_ahead(readers, row, REPLACED, now_ms)

    def pass_over(self) -> None:
        """Move groups on over what was let go of where they are; it is written with the log."""
        self._pass_expired(self._rules.fronts.holders())

    def _expire_ahead(self, readers: list[Holder], row: Expiring, reason: str, now_ms: int) -> bool:
        """Have `readers`, who are not there yet, and groups to come let go of a message; False: not now."""
        offset = row.message.offset
        for holder in readers:
            if not holder.discard_fresh([row.message], reason, now_ms):
                return False
            self._rules.note_expired(holder, offset, row.body_bytes)
            if isinstance(holder, FutureGroups):
                self._retention.payloads.released.add(offset, offset + 1)
                self._retention.want_trim()
        for cursor in self._retention.members.values():
            # with the commit that holds the dead letters: a place before it would give it up again
            cursor.stored.mark_dirty()
            cursor.stored.write_soon()
        self._retention.use_expired().add(offset)
        self._log.tail.blank(offset)
        return True
