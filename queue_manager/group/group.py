"""One consumer group of one queue: who consumes, who is given what, what comes back.

A group has a cursor in each log of its queue: one, or one for each priority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from queue_manager.address import local_name
from queue_manager.claims.claim import Claim, Consumer
from queue_manager.claims.consumers import Consumers
from queue_manager.cursor.cursor import Cursor
from queue_manager.dispatch.by_key.by_key import ByKey
from queue_manager.dispatch.by_key.keys import GroupKeyOf
from queue_manager.dispatch.by_selector import BySelector
from queue_manager.dispatch.in_order import InOrder
from queue_manager.filters.consumer_filter import ConsumerFilter
from queue_manager.group.condition import condition_of
from queue_manager.log.levels import priority_of
from queue_manager.log.queue_log import QueueLog
from queue_manager.patterns import MATCH_ALL


def group_id_of(name: str, pattern: str) -> str:
    """What tells groups of a queue apart: a pattern is part of a group's identity."""
    return name if pattern == MATCH_ALL else f"{name}@{pattern}"


class Group:
    """One (group, pattern) pair; `name` "" is the default group.

    `cursors` are ordered from the highest priority to the lowest; `join` gives them once. `is_removed`: it
    was deleted, or a reset put another in its place.
    """

    __slots__ = (
        "_by_key",
        "_by_selector",
        "_in_order",
        "_key_of",
        "_on_loaded",
        "consumers",
        "cursors",
        "group_id",
        "is_removed",
        "log",
        "name",
        "pattern",
        "selector",
        "spec_written",
        "wants",
    )

    def __init__(self, log: QueueLog, name: str, pattern: str, selector: str, key_of: GroupKeyOf) -> None:
        self.log = log
        self.name = name
        self.pattern = pattern
        self.selector = selector
        self.group_id = group_id_of(name, pattern)
        self.wants = condition_of(log, pattern, selector)
        self.consumers = Consumers(log)
        self.cursors: list[Cursor] = []
        self.is_removed = False
        self.spec_written = False
        self._key_of = key_of
        self._in_order = InOrder(self.consumers)
        self._by_selector: dict[Cursor, BySelector] = {}
        self._by_key: ByKey | None = None
        self._on_loaded: list[Callable[[int], None]] = []

    @property
    def queue_name(self) -> str:
        """The name of its queue, as it is said in its virtual host."""
        return local_name(self.log.title)

    @property
    def in_order(self) -> InOrder:
        """How cursors are served while nothing else is asked for."""
        return self._in_order

    def join(self, cursors: list[Cursor]) -> None:
        """Take in the cursors of the queue's logs, the highest priority first."""
        self.cursors = cursors
        self.apply_message_groups()

    def cursor_at(self, offset: int) -> Cursor:
        """The cursor of the log that has this offset."""
        return self.cursors[-1 - priority_of(offset)] if len(self.cursors) > 1 else self.cursors[0]

    def note_spec(self) -> None:
        """Its spec records are written."""
        self.spec_written = True

    # how it is served

    def apply_message_groups(self) -> None:
        """Bind keys to consumers, or do so no longer."""
        wanted = self.log.policy.binds_keys() and not self._by_selector
        if wanted and self._by_key is None:
            self._by_key = ByKey(self, self.cursors, self.consumers, self._key_of)
            for cursor in self.cursors:
                cursor.serve_by(self._by_key)
        elif not wanted and self._by_key is not None:
            self.end_message_groups()
            for cursor in self.cursors:
                cursor.serve_by(self._by_selector.get(cursor) or self._in_order)
            self.want_dispatch()

    def end_message_groups(self) -> None:
        """Bind no keys any more: the group ends, or messages are claimed out of order."""
        if self._by_key is not None:
            self._by_key.dissolve()
            self._by_key = None

    def select(self, cursor: Cursor) -> BySelector:
        """Have messages of a cursor handed out by filters, if they are not already."""
        by_selector = self._by_selector.get(cursor)
        if by_selector is None:
            by_selector = BySelector(cursor, self.consumers, self._selection_ended)
            self._by_selector[cursor] = by_selector
            self.apply_message_groups()
            cursor.serve_by(by_selector)
        return by_selector

    def _selection_ended(self, cursor: Cursor) -> None:
        del self._by_selector[cursor]
        cursor.serve_by(self._in_order)
        self.apply_message_groups()
        self.want_dispatch()

    def check_room(self, wanted: ConsumerFilter) -> None:
        """Raise LimitReached if the group cannot take one more consumer with this filter."""
        for by_selector in self._by_selector.values():
            by_selector.check_room(wanted)

    def policy_changed(self) -> None:
        """Follow what the queue's policy now says."""
        for cursor in self.cursors:
            if cursor.claims.buckets.resize(cursor.log.policy):
                cursor.stored.mark_dirty()
        self.apply_message_groups()
        self.consumers.policy_changed()

    # consumers

    def add(self, consumer: Consumer) -> None:
        """Let a consumer take part; nothing is delivered before the next dispatch."""
        for cursor in self.cursors:
            if consumer.filter is not None or cursor in self._by_selector:
                self.select(cursor).join(consumer)
        self.consumers.add(consumer)
        if self._by_key is not None:
            self._by_key.join(consumer)
        self.log.context.leased[self] = None
        self.want_dispatch()

    def has_exclusive(self) -> bool:
        """See `ConsumerGroup`."""
        return self.consumers.has_exclusive()

    def drain(self, consumer: Consumer) -> None:
        """A consumer pulls one by one."""
        self.consumers.drain(consumer)
        self.log.context.leased[self] = None

    def cancel(self, consumer: Consumer) -> None:
        """Deliver nothing more to the consumer; what it holds stays with it."""
        if self.consumers.cancel(consumer):
            self._stop(consumer)
            if self._by_key is not None:
                self._by_key.leave(consumer)
            if not self.consumers.is_single_active:  # there what it holds had better come first
                self.want_dispatch()

    def remove(self, consumer: Consumer, now_ms: int) -> None:
        """Forget the consumer; what it holds returns at once."""
        self.consumers.remove(consumer)
        self._stop(consumer)
        self.requeue(list(consumer.in_flight.values()), now_ms, delay_ms=0)
        if self._by_key is not None:
            self._by_key.leave(consumer)
        self.want_dispatch()  # others may have stood back for it

    def _stop(self, consumer: Consumer) -> None:
        for by_selector in list(self._by_selector.values()):
            by_selector.leave(consumer)
        self.consumers.stop(consumer)
        if not self.consumers.members:
            for cursor in self.cursors:
                cursor.backlog.forget_read()

    def rank_again(self) -> None:
        """See `ConsumerGroup`."""
        self.consumers.rank_again()
        self.want_dispatch()

    # handing out

    def want_dispatch(self) -> None:
        """Have the manager dispatch this group before it returns to its caller."""
        context = self.log.context
        if self not in context.deferred:
            context.dispatchable[self] = None

    def credit_grew(self, consumer: Consumer) -> None:
        """See `ConsumerGroup`."""
        self.consumers.credit_grew(consumer)

    def settled(self, consumer: Consumer) -> None:
        """See `ConsumerGroup`; who had credit was given what there is already."""
        consumers = self.consumers
        is_plain = not (consumers.is_ranked or self._by_selector) and self._by_key is None
        if consumers.credit_grew(consumer) or not is_plain:
            self.want_dispatch()

    def _is_taking_back(self) -> bool:
        """Whether messages are on their way back that come before any other."""
        for cursor in self.cursors:  # noqa: SIM110 - each dispatch asks, and a generator costs more
            if cursor.returning.count:
                return True
        return False

    def dispatch(self, now_ms: int) -> None:
        """Hand out messages while there are both messages and credit, and it is this group's turn."""
        if self.consumers.members and not self.log.is_held and not self._is_taking_back():
            if self._by_key is not None:
                self._by_key.dispatch(now_ms)
            else:
                for cursor in self.cursors:
                    server = self._server(cursor) if self._by_selector else self._in_order
                    server.dispatch(cursor, now_ms)
                    if cursor.reader.is_loading and cursor.is_waited_for():
                        break  # what is less urgent has to wait for what is being read
        if not self.log.durable:
            for cursor in self.cursors:
                cursor.retention.trim_tail(0)

    def _server(self, cursor: Cursor) -> InOrder | BySelector:
        return self._by_selector.get(cursor) or self._in_order

    def pull(self, consumer: Consumer, count: int, now_ms: int) -> int | None:
        """Claim and deliver up to `count` messages; give how many it were.

        None: what there is has to be read back, or put back, first (`when_loaded`).
        """
        if self.log.is_held:
            return 0
        if self._is_taking_back():
            return None
        if self._by_key is not None:
            return self._by_key.pull(consumer, count, now_ms)
        for cursor in self.cursors:
            if claimed := self._server(cursor).claim(cursor, consumer, count, now_ms):
                return claimed
            if cursor.is_waited_for():
                return None
        return 0

    # what comes back

    def give_back(
        self, claims: list[Claim], now_ms: int, *, failed: bool = False, delay_ms: int | None = None
    ) -> None:
        """As `requeue`, asked for by a client."""
        self.requeue(claims, now_ms, failed=failed, delay_ms=delay_ms)

    def requeue(
        self, claims: list[Claim], now_ms: int, *, failed: bool = False, delay_ms: int | None = None
    ) -> None:
        """Return claims to their original place, or fail them; see `Cursor.requeue`."""
        for cursor, part in self._by_cursor(claims):
            cursor.returning.requeue(part, now_ms, failed=failed, delay_ms=delay_ms)

    def _by_cursor(self, claims: list[Claim]) -> Iterable[tuple[Cursor, list[Claim]]]:
        if len(self.cursors) == 1:
            return [(self.cursors[0], claims)]
        parts = [
            (cursor, [claim for claim in claims if self.cursor_at(claim.message.offset) is cursor])
            for cursor in self.cursors
        ]
        return [(cursor, part) for cursor, part in parts if part]

    def give_back_claim(self, claim: Claim) -> None:
        """Have an available claim wait at its place."""
        self.cursor_at(claim.message.offset).claims.returned.add(claim)

    def extend(self, claim: Claim, deadline_ms: int) -> bool:
        """Give a claim a lease of its own; False if it is no claim any more."""
        return self.cursor_at(claim.message.offset).claims.extend(claim, deadline_ms)

    def write_soon(self) -> None:
        """See `ConsumerGroup`."""
        for cursor in self.cursors:
            cursor.stored.write_soon()

    def end_leases(self, now_ms: int) -> bool:
        """See `Leased`. What a single active consumer holds besides comes back when another takes over."""
        for consumer in self.consumers:
            expired = consumer.expired(now_ms)
            if not expired:
                continue
            held: list[Claim] = []
            if self.consumers.active is consumer and self.consumers.pass_on():
                ended = set(expired)
                held = [claim for claim in consumer.in_flight.values() if claim not in ended]
            self.requeue(expired, now_ms)
            if held:
                self.requeue(held, now_ms, delay_ms=0)  # no fault of theirs
            self.consumers.lease_ended(consumer, now_ms)
            consumer.sink.revoked(consumer, expired + held)
        self.consumers.forget_drained()
        return any(self.consumers)

    # reading back

    def when_loaded(self, call: Callable[[int], None]) -> None:
        """Have `call(now_ms)` called once something was read back, or nothing will be."""
        self._on_loaded.append(call)

    def loaded(self, now_ms: int) -> None:
        """See `Owner`."""
        waiting = self._on_loaded
        self._on_loaded = []
        for call in waiting:
            call(now_ms)

    # counting

    def ready_count(self) -> int:
        """Messages waiting for a claim (with a pattern: at most so many)."""
        return sum(cursor.ready_count() for cursor in self.cursors)

    def delayed_count(self) -> int:
        """Messages that came back and wait for their next attempt."""
        return sum(cursor.delayed_count() for cursor in self.cursors)

    def waiting_count(self) -> int:
        """Both of these."""
        return self.ready_count() + self.delayed_count()

    def in_flight_count(self) -> int:
        """Messages claimed and not settled."""
        return self.consumers.in_flight_count()

    def failed_count(self) -> int:
        """Messages kept as failed."""
        return sum(cursor.claims.buckets.failed_count for cursor in self.cursors)

    def redelivered_count(self) -> int:
        """Redeliveries so far."""
        return sum(cursor.claims.redelivered_count for cursor in self.cursors)

    def unmatched_count(self) -> int:
        """Of the messages that wait, those no consumer's filter wants, as far as all were asked."""
        return sum(by_selector.unmatched_count() for by_selector in self._by_selector.values())

    def bound_key_count(self) -> int:
        """Keys that are bound to a consumer."""
        return 0 if self._by_key is None else self._by_key.bound_count()

    # its end

    def retire(self) -> None:
        """The group is deleted, or a reset puts another in its place."""
        self.is_removed = True
        context = self.log.context
        context.forget_dispatch(self)
        context.leased.pop(self, None)
        for by_selector in self._by_selector.values():
            by_selector.forget_timer()
        for cursor in self.cursors:
            cursor.retire()

    def delete(self, reason: str) -> None:
        """The queue is deleted: consumers are told `reason`."""
        context = self.log.context
        context.forget_dispatch(self)
        context.leased.pop(self, None)
        for by_selector in self._by_selector.values():
            by_selector.forget_timer()
        for cursor in self.cursors:
            cursor.delete()
        self.dismiss(reason)

    def dismiss(self, reason: str) -> None:
        """End what consumers hold, and tell them `reason`."""
        ledger = self.cursors[0].claims
        for consumer in self.consumers:
            was_active = consumer.stop()
            ledger.end_in_flight(consumer, stale=False)
            if was_active:
                consumer.sink.cancelled(consumer, reason)
        self.consumers.clear()

    def move_consumers(self, old: Group) -> None:
        """Have the consumers of a group that was reset go on in this one; their claims end."""
        ledger = old.cursors[0].claims
        for consumer in old.consumers:
            held = ledger.end_in_flight(consumer, stale=True)
            if held:
                consumer.sink.revoked(consumer, held)
            consumer.move_to(self)
        active = old.consumers.active
        for consumer in self.consumers.take_over(old.consumers):
            self.add(consumer)
        self.consumers.make_active(active)
