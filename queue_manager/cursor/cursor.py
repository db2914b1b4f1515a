"""One consumer group's cursor in one log: how far it is, what it has claimed, what of that is written down.

A queue has one log, or one for each priority; a group has a cursor in each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from typing import Final, Protocol

from config import limits
from queue_manager.claims.claim import DONE, IN_FLIGHT, Claim, Consumer, Verdict
from queue_manager.claims.consumers import Consumers
from queue_manager.claims.cursor_buckets import Buckets
from queue_manager.claims.ledger import Claims
from queue_manager.cursor.backlog import Backlog, Wanted
from queue_manager.cursor.done_purges import DonePurges, SkippedRows
from queue_manager.cursor.failures import DeadLetters, Failures
from queue_manager.cursor.read_back import ReadBack
from queue_manager.cursor.returning import Returning
from queue_manager.cursor.stored_state import StoredState
from queue_manager.log.levels import priority_of
from queue_manager.log.progress import Progress
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.range_set import RangeSet
from queue_manager.log.reader import Reader
from queue_manager.log.removals import RangeRemoval
from queue_manager.log.retention import Retention
from queue_manager.log.tail import RELEASED
from queue_manager.model import Message
from queue_manager.shard.commit import Commit
from queue_manager.shard.discards import Discards
from queue_manager.shard.loads import LogRows
from queue_manager.shard.steps import Budget
from storage import layout


class CursorGroup(Protocol):
    """The group of a cursor; `wants` says which messages are for it (None: all)."""

    consumers: Consumers
    wants: Wanted | None

    @property
    def group_id(self) -> str: ...

    def want_dispatch(self) -> None:
        """Have the group handed out messages before the manager returns to its caller."""

    def loaded(self, now_ms: int) -> None:
        """Tell those that wait for it that something was read back."""

    def awaits_consumers(self) -> bool:
        """Return whether nothing is handed out for now: what is nothing for the group would wait with the
        rest.
        """

    def go_out_of_order(self, cursor: Cursor) -> bool:
        """Have messages beyond the position claimed and passed; False: the group cannot."""


class Rules:
    """The queue's rules for a cursor: which messages may be handed out, and what the rules are told of them.

    These are the rules of a queue without any: everything may be handed out.
    """

    __slots__ = ()

    def choose(self, cursor: Cursor, messages: list[Message], now_ms: int) -> list[Message]:
        """Return, of what `cursor` has just taken, what it may have, or what comes after it if that is
        nothing.
        """
        return messages

    def choose_found(self, cursor: Cursor, messages: list[Message], now_ms: int) -> list[Message]:
        """Choose as `choose`, for messages found by a filter; what it may not have is dealt with."""
        return messages

    def claims_again(self, cursor: Cursor, claim: Claim, now_ms: int) -> bool:
        """Return whether a claim that came back is to be made again; False: it may not, and was dealt
        with.
        """
        return True

    def returned(self, cursor: Cursor, claim: Claim, body: bytes | None) -> None:
        """Note that a claim came back and waits."""

    def passed(self, cursor: Cursor, messages: list[Message]) -> None:
        """Note that the cursor moved on over messages that waited."""

    def skipped(self, cursor: Cursor, messages: list[Message]) -> None:
        """Note that the cursor passed messages that are nothing for it."""

    def purged(self, cursor: Cursor) -> None:
        """Note that everything that waited was dropped."""

    def written(self, cursor: Cursor, commit: Commit) -> None:
        """Note that the cursor's position was put into the commit."""

    def loaded(self, cursor: Cursor, now_ms: int) -> None:
        """Note that something was read back for the cursor."""

    def revived(self, cursor: Cursor, claims: list[Claim]) -> None:
        """Note that failed claims wait again whose payloads are on the store."""


NO_RULES: Final = Rules()


class Kept(Protocol):
    """The messages that a reset passed and that are kept for a while."""

    ranges: RangeSet

    def arm(self) -> None:
        """Have it end in time."""

    def end(self) -> None:
        """Keep nothing any more."""


class Dispatcher:
    """How messages of a cursor are handed out, and what is held for that outside of the cursor's claims.

    By itself it holds nothing, and needs to know of nothing that happens: kinds of it state what they do.
    """

    __slots__ = ()

    def held(self, cursor: Cursor) -> list[Claim]:
        """Return what waits and is held here, in no particular order."""
        return []

    def held_count(self, cursor: Cursor) -> int:
        """Return how much that is."""
        return 0

    def take_out(self, cursor: Cursor, claim: Claim) -> bool:
        """Forget a claim that does not wait any more, if it can be found at once; whether it was."""
        return False

    def forget_ended(self) -> None:
        """Let go of claims that do not wait any more."""

    def drop(self, cursor: Cursor, message_ids: set[int] | None = None) -> list[Claim]:
        """Forget what is held of these messages (None: of all), and give it."""
        return []

    def passed(self, cursor: Cursor, messages: list[Message]) -> None:
        """Note that the cursor is done with these, which it never claimed."""

    def log_loaded(self, cursor: Cursor, found: LogRows) -> bool:
        """Take what was read back; False: it is the reader's."""
        return False

    def written(self, cursor: Cursor) -> None:
        """Note that the cursor's state was put into a commit."""

    def purged(self, cursor: Cursor) -> None:
        """Note that the cursor goes on at the end of the log."""


@dataclass(eq=False, repr=False, slots=True)
class Cursor:
    """A group's place in a log, put together from parts: what it has yet to be given (`backlog`), what it has
    claimed (`claims`), what comes back (`returning`) or is given up (`failures`), what is read from the store
    (`read_back`), and what of that is on the store (`stored`).

    Its own is what they do together, and with the rules of the queue and who hands messages out: those take
    the cursor, so the parts come to them through it, a method for each thing that happens.

    `is_removed`: the group was deleted, or a reset replaced it. `budget` bounds what is handed out in this
    turn.
    Implements `OwningCursor`.
    """

    retention: Retention[Cursor]
    _group: CursorGroup
    _: KW_ONLY
    begins_at: InitVar[int]
    sequence: InitVar[int]
    rules: Rules
    dead_letters: InitVar[DeadLetters]
    dispatcher: Dispatcher
    is_kept: InitVar[bool] = True
    log: QueueLog = field(init=False)
    budget: Budget = field(init=False)
    consumers: Consumers = field(init=False)
    group_id: str = field(init=False)
    storage_id: str = field(init=False)
    stored: StoredState = field(init=False)
    progress: Progress = field(init=False)
    claims: Claims = field(init=False)
    read_back: ReadBack[Cursor] = field(init=False)
    reader: Reader = field(init=False)
    failures: Failures[Cursor] = field(init=False)
    returning: Returning[Cursor] = field(init=False)
    done_purges: DonePurges[Cursor] = field(init=False)
    skipped: SkippedRows[Cursor] = field(init=False)
    backlog: Backlog[Cursor] = field(init=False)
    is_removed: bool = field(default=False, init=False)
    judged_end: int = field(default=0, init=False)
    """What was there below was asked about whether it is for the group."""
    reset_keep: Kept | None = field(default=None, init=False)
    awaits_history: bool = field(default=False, init=False)

    def __post_init__(self, begins_at: int, sequence: int, dead_letters: DeadLetters, is_kept: bool) -> None:
        group, retention = self._group, self.retention
        log = self.log = retention.log
        self.budget = log.context.budget
        self.consumers = group.consumers
        self.group_id = group.group_id
        self.storage_id = layout.group_queue_id(log.name, group.group_id)
        self.stored = StoredState(self, log, self.storage_id, is_kept=is_kept)
        self.progress = Progress(begins_at)
        self.claims = Claims(log, self._make_buckets(), self.want_dispatch)
        self.read_back = ReadBack(self, retention, self.claims, self.stored, sequence)
        self.reader = self.read_back.reader
        self.failures = Failures(self, retention, self.claims, self.stored, dead_letters)
        self.returning = Returning(self, log, self.claims, self.failures, self.stored)
        self.done_purges = DonePurges(retention, self, self.claims)
        self.skipped = SkippedRows(retention, self, self.done_purges)
        self.backlog = self._make_backlog(group.wants)
        self._prepare()

    def _prepare(self) -> None:
        """Make what only a kind of cursor has."""

    def _make_buckets(self) -> Buckets:
        return Buckets(self.log, self.storage_id, self.stored.mark_dirty)

    def _make_backlog(self, wants: Wanted | None) -> Backlog[Cursor]:
        return Backlog(self, self.retention, self.progress, self.reader, self.stored, self.skipped, wants)

    @property
    def position(self) -> int:
        """The first offset not looked at yet."""
        return self.progress.position

    def want_dispatch(self) -> None:
        """Have the group hand out messages."""
        self._group.want_dispatch()

    def has_consumers(self) -> bool:
        """Return whether anybody consumes in the group."""
        return bool(self.consumers.members)

    # counting

    def ready_count(self) -> int:
        """Count messages waiting for a claim (with a pattern: at most so many)."""
        count = self.log.tail.next_offset - self.progress.position + len(self.claims.returned.heap)
        count += self.returning.count
        return count + self.dispatcher.held_count(self) - self.retention.missing_count(self.progress)

    def delayed_count(self) -> int:
        """Count messages that came back and wait for their next attempt."""
        return len(self.claims.delays)

    def waiting(self) -> list[Claim]:
        """Return claims that came back, or are placed for a consumer, in no particular order."""
        return self.claims.waiting() + self.dispatcher.held(self)

    def is_waited_for(self) -> bool:
        """Return whether messages that wait here are being read back."""
        return self.reader.is_loading and self.ready_count() > 0

    def unfinished(self) -> list[Message]:
        """Return what was claimed here and is not settled, whether it waits or is in flight."""
        if self.log.durable:
            return [claim.message for claim in self.claims.buckets.open_claims()]
        own = priority_of(self.log.head_offset)
        held = [claim for consumer in self.consumers for claim in consumer.in_flight.values()]
        found = [claim.message for claim in held if priority_of(claim.message.offset) == own]
        found += [claim.message for claim in self.waiting()]
        return found + self.returning.messages()

    # handing out

    def passed_unwanted(self, messages: list[Message]) -> None:
        self.rules.skipped(self, messages)

    def passed_unread(self) -> None:
        """Do nothing: of a queue each message is given, or passed with account."""

    def hand_out_fresh(self, consumer: Consumer, messages: list[Message], now_ms: int) -> None:
        """Claim and deliver messages just taken from the log, in order of offsets.

        To a `no_ack` consumer they are delivered first: what its sink did not take is claimed as anybody
        else's would be, what it took is claimed done.
        """
        self.budget.spend(limits.DELIVERY_COST + len(messages))
        if self.retention.is_read_ahead:  # somebody may be past these whose position stays behind
            self.retention.release_tail(self, [message.offset for message in messages])
        if not consumer.no_ack:
            claims = self.claims.claim(messages, consumer, IN_FLIGHT, now_ms)
            consumer.sink.deliver(consumer, messages, claims)
            return
        state = IN_FLIGHT
        if consumer.pool is not None:
            consumer.pool.claimed(len(messages))
        try:
            if consumer.sink.deliver(consumer, messages, None):
                state = DONE
        finally:
            claims = self.claims.claim(messages, consumer, state, now_ms)
            if state == IN_FLIGHT and not consumer.active:
                self.returning.requeue(claims, Verdict(now_ms, delay_ms=0))

    def hand_out(self, consumer: Consumer, claims: list[Claim]) -> None:
        """Deliver claims that were made again; those of a `no_ack` consumer are done once its sink
        took them.
        """
        self.budget.spend(limits.DELIVERY_COST + len(claims) * limits.REDELIVERY_COST)
        taken = consumer.sink.deliver(consumer, [claim.message for claim in claims], claims)
        if taken and consumer.no_ack:
            self.claims.sent(claims)
            self.want_dispatch()

    def claim_again(self, claim: Claim, consumer: Consumer, now_ms: int) -> bool:
        """Claim one that came back; False: it may not be handed out, and was dealt with."""
        if not self.rules.claims_again(self, claim, now_ms):
            return False
        self.claims.claim_again(claim, consumer, now_ms)
        return True

    # what is nothing for it

    def appended(self, offset: int) -> None:
        """Pass appended messages from `offset` on, where no consumer takes them, that are nothing for the
        group, so that they never count as waiting for it.
        """
        if self._group.awaits_consumers() and not self.awaits_history:
            is_next = self.judged_end >= offset
            self._judge(offset, self.log.tail.next_offset)
            if is_next:
                self.judged_end = self.log.tail.next_offset

    def judge_more(self) -> bool:
        """Judge as `appended`, a step of what was there before and is in memory; give whether there is more.

        What is on the store only is judged when it is read for a consumer, and counts until then.
        """
        if self.awaits_history or not self._group.awaits_consumers():
            return False
        tail = self.log.tail
        start = max(self.judged_end, self.progress.position, tail.first_offset)
        self.judged_end = min(start + limits.PATTERN_SCAN_MESSAGES_MAX, tail.next_offset)
        self._judge(start, self.judged_end)
        return self.judged_end < tail.next_offset

    def _judge(self, start: int, end: int) -> None:
        """Pass what is nothing for the group of the offsets from `start` to `end`, which are in the tail."""
        progress = self.progress
        selects = self.backlog.selects
        unwanted = [
            message
            for message in self.log.tail.slice(start, end - start)
            if not selects(message) and message is not RELEASED and not progress.has_taken(message.offset)
        ]
        if progress.claimed is None and unwanted and unwanted[0].offset == progress.position:
            unwanted = unwanted[self.backlog.pass_unwanted(unwanted) :]
        if unwanted and self._group.go_out_of_order(self):
            unwanted = [message for message in unwanted if not progress.has_taken(message.offset)]
            self.backlog.skip_unwanted(unwanted)
            self.dispatcher.passed(self, unwanted)

    # what waits

    def came_back(self, claim: Claim, body: bytes | None) -> None:
        self.rules.returned(self, claim, body)

    def all_back(self, now_ms: int) -> None:
        self.want_dispatch()
        self._group.loaded(now_ms)  # who wants one message waits for that, too

    def discard_fresh(
        self, messages: list[Message], reason: str, now_ms: int, budget: Discards | None = None
    ) -> int:
        """Let go of messages that were not claimed; give how many of them, from the first on, it were: all,
        or as many as there is a budget for.

        Where dead letters are wanted the bodies must be in memory; what those do not take is kept failed.
        """
        done_with, count = self.failures.discard_fresh(messages, self.backlog.selects, reason, now_ms, budget)
        self.backlog.discard(done_with)
        self.dispatcher.passed(self, messages if count == len(messages) else messages[:count])
        return count

    def take_out(self, claims: list[Claim]) -> None:
        """Take claims that do not wait any more from where they did."""
        rest = False
        for claim in claims:
            if self.claims.returned.first() is claim:
                self.claims.returned.pop()
            elif not self.dispatcher.take_out(self, claim):
                rest = True
        if rest:
            self.claims.returned.forget_ended()
            self.claims.delays.forget_ended()
            self.dispatcher.forget_ended()

    def purge_ready(self) -> RangeRemoval | None:
        """Drop everything that waits for a claim; gives what of the log is to be let go of, if anything."""
        self.returning.finish()
        log = self.log
        end = log.tail.next_offset
        removal = None
        if log.durable and self.progress.position < end:
            kept = None if self.progress.claimed is None else self.progress.claimed.ranges()
            removal = RangeRemoval(
                log, self.progress.position, end, self.reader.sequence, self.skipped.add, kept
            )
        waiting = [*self.waiting()]
        self.claims.returned.take_all()
        self.claims.delays.clear()
        self.dispatcher.drop(self)
        self.backlog.skip_to(end)
        self.dispatcher.purged(self)
        self.claims.drop(waiting, log.context.commit)
        self.rules.purged(self)
        self.stored.mark_dirty()
        self.stored.write_soon()  # before what is purged goes
        return removal

    # writing

    def write(self, commit: Commit, now_ms: int, *, is_part: bool = False) -> None:
        """Put what changed since the last call into `commit`; see `Stateful`."""
        closed, runs = self.claims.buckets.write(commit, is_part=is_part)
        if runs:
            self.retention.payloads.release_unshared(self, runs)
        for bucket in closed:
            self.done_purges.schedule(bucket, now_ms)
            bucket.close()
        if closed or any(bucket.done_written for bucket in self.claims.buckets.values()):
            self.done_purges.want()
        assert self.progress.position >= self.log.head_offset, f"{self.storage_id} is below the head"
        self.reader.advance_sequence()
        self.stored.write_place(self.reader.sequence, self.progress.position, commit)
        if self.progress.claimed is not None:
            self.progress.claimed.flush(self.storage_id, commit)
        self.rules.written(self, commit)
        self.stored.written(now_ms)
        if self.claims.buckets.records.has_changes:
            self.stored.write_rest(now_ms)
        self.dispatcher.written(self)
        self.returning.written()

    # reading back

    def is_over(self) -> bool:
        """Return whether the queue or the group is gone."""
        return self.log.deleted or self.is_removed

    def rows_loaded(self, found: LogRows) -> bool:
        return self.dispatcher.log_loaded(self, found)

    def drop_held(self, message_ids: set[int]) -> list[Claim]:
        return self.dispatcher.drop(self, message_ids)

    def loaded(self, now_ms: int) -> None:
        self._group.loaded(now_ms)
        if not self.log.deleted:
            self.rules.loaded(self, now_ms)

    # its life

    def follow(self, rules: Rules) -> None:
        """Follow the rules of a queue that had none."""
        self.rules = rules

    def serve_by(self, dispatcher: Dispatcher) -> None:
        """Have messages handed out by another from now on."""
        self.dispatcher = dispatcher

    def keep(self, passed: Kept | None) -> None:
        """Keep what a reset passed, for a while; None: no more."""
        self.reset_keep = passed

    def begin_with(self, messages: Iterable[Message]) -> None:
        """Have these wait for the group that begins, too: other groups keep them, and the log does not."""
        # each group has the body read and let go of as it needs it
        wanted = [replace(message) for message in messages if self.backlog.selects(message)]
        if not wanted:
            return
        if self.log.durable:
            for message in wanted:
                self.progress.keep_failed(message.offset)
        entered = self.returning.enter(wanted)
        self.rules.revived(self, [claim for claim in entered if claim.message.body is None])
        self.stored.mark_dirty()
        self.stored.write_soon()  # with the group itself

    def await_history(self) -> None:
        """Wait until it is known what the other groups let go of before the start."""
        self.awaits_history = True
        self.reader.hold_up()
        self.log.context.awaiting_history[self] = None

    def history_known(self) -> None:
        """See `await_history`: it is known."""
        self.awaits_history = False
        del self.log.context.awaiting_history[self]
        self.reader.load_ended()
        self.progress.released.add_all(self.retention.payloads.released)
        self.backlog.pass_released()
        self.stored.mark_dirty()
        self.want_dispatch()

    def retire(self) -> None:
        """Retire: the group is deleted, or a reset puts another cursor in the place of this one."""
        self.is_removed = True
        self._leave()
        self.claims.retire(self.waiting())
        if self.progress.claimed is not None:
            self.progress.claimed.erase(self.storage_id, self.log.context.commit)
        self.done_purges.clear()
        self.skipped.clear()
        self.reader.forget()

    def delete(self) -> None:
        """End with the queue."""
        self._leave()
        self.claims.delays.clear()

    def _leave(self) -> None:
        """Have nothing done for it any more."""
        context = self.log.context
        self.stored.leave()
        context.purgeable.pop(self.done_purges, None)
        context.skipping.pop(self.skipped, None)
        context.awaiting_history.pop(self, None)
        if self.reset_keep is not None:
            self.reset_keep.end()
        self.returning.drop()
