"""One consumer group of one queue: who consumes, who is given what, what comes back.

A group has a cursor in each log of its queue: one, or one for each priority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass, field

from queue_manager.address import local_name
from queue_manager.claims.claim import Claim, Consumer, Verdict
from queue_manager.claims.consumers import Consumers
from queue_manager.cursor.backlog import Wanted
from queue_manager.cursor.cursor import Cursor
from queue_manager.cursor.failures import DeadLetters
from queue_manager.dispatch.by_key.binding_table import GroupKeyOf
from queue_manager.group.condition import condition_of
from queue_manager.group.serving import Serving
from queue_manager.log.levels import priority_of
from queue_manager.log.queue_log import QueueLog
from queue_manager.patterns import MATCH_ALL
from queue_manager.shard.context import Context


def group_id_of(name: str, pattern: str) -> str:
    """Return what tells groups of a queue apart: a pattern is part of a group's identity."""
    return name if pattern == MATCH_ALL else f"{name}@{pattern}"


@dataclass(eq=False, repr=False, slots=True)
class Group:
    """One (group, pattern) pair; `name` "" is the default group.

    `cursors` are ordered from the highest priority to the lowest; `join` gives them once. `is_removed`: it
    was deleted, or a reset put another in its place. It is what consumers know of their group
    (`ConsumerGroup`), so it has a method for whatever happens to one; who is next is known to `Consumers`,
    what is handed out how to `Serving`, and the messages to the cursors.
    Implements `ConsumerGroup` and `CursorGroup`.
    """

    log: QueueLog
    name: str
    pattern: str
    selector: str
    key_of: InitVar[GroupKeyOf]
    group_id: str = field(init=False)
    wants: Wanted | None = field(init=False)
    consumers: Consumers = field(init=False)
    cursors: list[Cursor] = field(default_factory=list, init=False)
    serving: Serving = field(init=False)
    is_removed: bool = field(default=False, init=False)
    _on_loaded: list[Callable[[int], None]] = field(default_factory=list, init=False)
    _context: Context = field(init=False)

    def __post_init__(self, key_of: GroupKeyOf) -> None:
        self._context = self.log.context
        self.group_id = group_id_of(self.name, self.pattern)
        self.wants = condition_of(self.log, self.pattern, self.selector)
        self.consumers = Consumers(self.log)
        self.serving = Serving(self, self.log, self.consumers, key_of)

    @property
    def queue_name(self) -> str:
        """The name of its queue, as it is said in its virtual host."""
        return local_name(self.log.title)

    def join(self, cursors: list[Cursor]) -> None:
        """Take in the cursors of the queue's logs, the highest priority first."""
        self.cursors = cursors
        self.serving.serve(cursors)
        if self.wants is not None:
            self.want_dispatch()

    def cursor_at(self, offset: int) -> Cursor:
        """Return the cursor of the log that has this offset."""
        return self.cursors[-1 - priority_of(offset)] if len(self.cursors) > 1 else self.cursors[0]

    def dead_letters_of(self, queue: DeadLetters) -> DeadLetters:
        """Return where what the group gives up goes: where its queue says."""
        return queue

    def policy_changed(self) -> None:
        """Follow what the queue's policy now says."""
        for cursor in self.cursors:
            if cursor.claims.buckets.resize(cursor.log.policy):
                cursor.stored.mark_dirty()
        self.serving.follow_policy()
        self.consumers.policy_changed()

    # consumers

    def add(self, consumer: Consumer) -> None:
        """Let a consumer take part; nothing is delivered before the next dispatch."""
        self.serving.join(consumer)
        self.consumers.add(consumer)
        self.serving.joined(consumer)
        self._came(consumer)
        self.want_dispatch()

    def has_exclusive(self) -> bool:
        return self.consumers.has_exclusive()

    def drain(self, consumer: Consumer) -> None:
        """Let a consumer pull one by one."""
        self.consumers.drain(consumer)
        self._came(consumer)

    def entitles(self, consumer: Consumer) -> bool:
        """See `ConsumerGroup`; who cancelled, or pulls one by one, waits for nobody."""
        consumers = self.consumers
        return not consumers.is_ranked or consumer in consumers.entitled([consumer])

    def cancel(self, consumer: Consumer) -> None:
        """Deliver nothing more to the consumer; what it holds stays with it."""
        if self.consumers.cancel(consumer):
            self._stop(consumer)
            self.serving.leave(consumer)
            self.want_dispatch()

    def remove(self, consumer: Consumer, now_ms: int) -> None:
        """Forget the consumer; what it holds returns at once."""
        self.consumers.remove(consumer)
        self._stop(consumer)
        self.requeue(list(consumer.in_flight.values()), Verdict(now_ms, delay_ms=0))
        self.serving.leave(consumer)
        self._wait_for_durability()
        self.want_dispatch()  # others may have stood back for it

    def _came(self, consumer: Consumer) -> None:
        self._context.leased[self] = None
        if consumer.is_told_offsets:
            for cursor in self.cursors:
                cursor.backlog.wait()

    def _wait_for_durability(self) -> None:
        """Hand out only what is durable while a consumer is told offsets."""
        if self.cursors[0].backlog.waits and not self.consumers.are_told_offsets():
            for cursor in self.cursors:
                cursor.backlog.stop_waiting()
            self.want_dispatch()

    def _stop(self, consumer: Consumer) -> None:
        self.serving.stop(consumer)
        self.consumers.stop(consumer)
        if not self.consumers.members:
            for cursor in self.cursors:
                cursor.backlog.forget_read()
            if self.wants is not None:
                self.want_dispatch()

    def rank_again(self) -> None:
        self.consumers.rank_again()
        self.want_dispatch()

    # handing out

    def want_dispatch(self) -> None:
        """Have the manager dispatch this group before it returns to its caller."""
        context = self._context
        if self not in context.deferred:
            context.dispatchable[self] = None

    def credit_grew(self, consumer: Consumer) -> None:
        self.consumers.turns.credit_grew(consumer)

    def settled(self, consumer: Consumer) -> None:
        """See `ConsumerGroup`; who had credit was given what there is already."""
        if self.consumers.turns.credit_grew(consumer) or not self._is_plain():
            self.want_dispatch()

    def lacks_credit(self, consumer: Consumer) -> bool:
        return self.consumers.turns.is_spent(consumer) or not self._is_plain()

    def _is_plain(self) -> bool:
        """Return whether the messages that wait are for whichever consumer has credit."""
        serving = self.serving
        return not (self.consumers.is_ranked or serving.by_selector) and serving.by_key is None

    def awaits_consumers(self) -> bool:
        """See `queue_manager.cursor.cursor.CursorGroup`: there is no consumer, or the queue gives them
        nothing; or, where what waits is limited, none has credit.
        """
        consumers = self.consumers
        if not consumers.members or self.log.is_held:
            return True
        policy = self.log.policy
        return bool(policy.depth_max or policy.bytes_max) and consumers.turns.next() is None

    def go_out_of_order(self, cursor: Cursor) -> bool:
        """See `queue_manager.cursor.cursor.CursorGroup`: keys stay bound to their consumers."""
        if self.serving.by_key is not None:
            return False
        self.serving.go_out_of_order(cursor)
        cursor.retention.read_ahead()
        return True

    def _is_held_up(self) -> bool:
        """Return whether messages are on their way back that come before any other, or have to be durable
        first.
        """
        for cursor in self.cursors:
            if cursor.returning.count:
                return True
            if cursor.backlog.closed_until and cursor.backlog.is_closed():
                return True
        return False

    def dispatch(self, now_ms: int) -> None:
        """Hand out messages while there are both messages and credit, and it is this group's turn; where
        there are no consumers, pass what is nothing for the group.
        """
        if self.consumers.members and not self.log.is_held and not self._is_held_up():
            serving = self.serving
            if serving.by_key is not None:
                serving.by_key.dispatch(now_ms)
            else:
                for cursor in self.cursors:
                    server = serving.server(cursor) if serving.by_selector else serving.in_order
                    server.dispatch(cursor, now_ms)
                    if cursor.reader.is_loading and cursor.is_waited_for():
                        break  # what is less urgent has to wait for what is being read
        if self.wants is not None and any(cursor.judge_more() for cursor in self.cursors):
            self._context.put_off(self)
        if not self.log.durable:
            for cursor in self.cursors:
                cursor.retention.trim_tail(0)
        elif self._context.budget.left <= 0:  # it may have so much to write that a commit would take long
            context = self._context
            for cursor in self.cursors:
                if cursor.claims.buckets.records.are_many:
                    context.state_writes.write_early(cursor, context.commit, now_ms)
        if self._on_loaded and not self._is_held_up() and not any(c.reader.is_loading for c in self.cursors):
            self.loaded(now_ms)  # it was not read for, but had to be durable

    def pull(self, consumer: Consumer, count: int, now_ms: int) -> int | None:
        """Claim and deliver up to `count` messages; give how many it were.

        None: what there is has to be read back, put back or made durable first (`when_loaded`).
        """
        return 0 if self.log.is_held else self.take(consumer, count, now_ms)

    def take(self, consumer: Consumer, count: int, now_ms: int) -> int | None:
        """Do as `pull`, also while the queue gives its consumers nothing."""
        if self._is_held_up():
            return None
        claimed = self.serving.pull(consumer, count, now_ms)
        if claimed == 0 and any(cursor.backlog.has_only_what_is_not_durable() for cursor in self.cursors):
            return None  # a publisher may have been told of it already
        return claimed

    # what comes back

    def give_back(self, claims: list[Claim], verdict: Verdict) -> None:
        """Give claims back as `requeue`, asked for by a client."""
        self.requeue(claims, verdict)

    def requeue(self, claims: list[Claim], verdict: Verdict) -> None:
        """Return claims to their original place, or fail them; see `Returning.requeue`."""
        for cursor, part in self._by_cursor(claims):
            cursor.returning.requeue(part, verdict)

    def counted_attempts(self, claim: Claim) -> int:
        """Return which attempt a claim is of those that count."""
        log = self.cursor_at(claim.message.offset).claims.buckets.attempt_log
        return claim.attempts - log.spared(claim.message.message_id)

    def unclaim(self, claims: list[Claim], now_ms: int, *, delay_ms: int = 0) -> None:
        for claim in claims:
            self.cursor_at(claim.message.offset).returning.unclaim(claim, now_ms, delay_ms=delay_ms)

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

    def write_soon(self) -> None:
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
            self.requeue(expired, Verdict(now_ms, is_spared=True))
            if held:
                self.requeue(held, Verdict(now_ms, delay_ms=0))  # no fault of theirs
            self.consumers.lease_ended(consumer, now_ms)
            consumer.sink.revoked(consumer, expired + held)
        self.consumers.forget_drained()
        self._wait_for_durability()
        return any(self.consumers)

    # reading back

    def when_loaded(self, call: Callable[[int], None]) -> None:
        """Have `call(now_ms)` called once something was read back, or nothing will be."""
        self._on_loaded.append(call)

    def loaded(self, now_ms: int) -> None:
        waiting = self._on_loaded
        self._on_loaded = []
        for call in waiting:
            call(now_ms)

    # counting

    def ready_count(self) -> int:
        """Count messages waiting for a claim (with a pattern: at most so many)."""
        return sum(cursor.ready_count() for cursor in self.cursors)

    def delayed_count(self) -> int:
        """Count messages that came back and wait for their next attempt."""
        return sum(cursor.delayed_count() for cursor in self.cursors)

    def waiting_count(self) -> int:
        """Count both of these."""
        return self.ready_count() + self.delayed_count()

    def in_flight_count(self) -> int:
        """Count messages claimed and not settled."""
        return self.consumers.in_flight_count()

    def failed_count(self) -> int:
        """Count messages kept as failed."""
        return sum(cursor.claims.buckets.failed_count for cursor in self.cursors)

    def redelivered_count(self) -> int:
        """Count redeliveries so far."""
        return sum(cursor.claims.redelivered_count for cursor in self.cursors)

    # its end

    def retire(self) -> None:
        """Retire: the group is deleted, or a reset puts another in its place."""
        self.is_removed = True
        self._end()
        for cursor in self.cursors:
            cursor.retire()

    def delete(self, reason: str) -> None:
        """End with the queue: consumers are told `reason`."""
        self._end()
        for cursor in self.cursors:
            cursor.delete()
        self.dismiss(reason)

    def _end(self) -> None:
        context = self._context
        context.forget_dispatch(self)
        context.leased.pop(self, None)
        self.serving.end()

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
        for consumer in self.consumers.draining:
            self._came(consumer)
        self.consumers.active = active
