"""One consumer group's cursor in one log: how far it is, what it has claimed, what of that is written down.

A queue has one log, or one for each priority; a group has a cursor in each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import nsmallest
from typing import Protocol

from config import limits
from queue_manager.claims.claim import AVAILABLE, DONE, IN_FLIGHT, RETURNING, Bucket, Claim, Consumer
from queue_manager.claims.consumers import Consumers
from queue_manager.claims.ledger import Claims
from queue_manager.cursor import backoff
from queue_manager.cursor.done_purges import DonePurges
from queue_manager.cursor.reasons import DELIVERY_LIMIT, REJECTED
from queue_manager.cursor.returning import Returning, Verdict
from queue_manager.cursor.skipped_rows import SkippedRows
from queue_manager.cursor.stored_place import StoredPlace
from queue_manager.log.progress import Progress
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.ranges import RangeSet
from queue_manager.log.reader import Reader
from queue_manager.log.removals import RangeRemoval
from queue_manager.log.retention import Retention
from queue_manager.model import Message
from queue_manager.shard.commit import Commit
from queue_manager.shard.loads import LogLoad, PayloadLoad

Wanted = Callable[[Message], bool]


class Owner(Protocol):
    """The group of a cursor."""

    def want_dispatch(self) -> None:
        """Have the group handed out messages before the manager returns to its caller."""

    def loaded(self, now_ms: int) -> None:
        """Something was read back: tell who waits for it."""


class Rules(Protocol):
    """What the queue's rules say: which messages may be handed out, and what they are told."""

    def choose(self, cursor: Cursor, messages: list[Message], now_ms: int) -> list[Message]:
        """Of what `cursor` has just taken what it may have, or what comes after it if that is nothing."""

    def choose_found(self, cursor: Cursor, messages: list[Message], now_ms: int) -> list[Message]:
        """As `choose`, for messages found by a filter; what it may not have is dealt with."""

    def claims_again(self, cursor: Cursor, claim: Claim, now_ms: int) -> bool:
        """A claim that came back is to be made again; False: it may not, and was dealt with."""

    def returned(self, cursor: Cursor, claim: Claim, body: bytes | None) -> None:
        """A claim came back and waits."""

    def passed(self, cursor: Cursor, messages: list[Message]) -> None:
        """The cursor moved on over messages that waited."""

    def skipped(self, cursor: Cursor, messages: list[Message]) -> None:
        """The cursor passed messages that are nothing for it."""

    def purged(self, cursor: Cursor) -> None:
        """Everything that waited was dropped."""

    def written(self, cursor: Cursor, commit: Commit) -> None:
        """The cursor's position was put into the commit."""

    def loaded(self, cursor: Cursor, now_ms: int) -> None:
        """Something was read back for the cursor."""

    def revived(self, cursor: Cursor, claims: list[Claim]) -> None:
        """Failed claims wait again whose payloads are on the store."""


class DeadLetters(Protocol):
    """Where what is given up goes."""

    def is_wanted(self) -> bool:
        """Whether it goes to another queue at all."""

    def send(self, group_id: str, message: Message, attempts: int, reason: str, now_ms: int) -> bool:
        """Append a copy there; whether the original may be let go of, which has to be in the same commit."""


class Kept(Protocol):
    """What a reset passed and is kept for a while."""

    @property
    def ranges(self) -> RangeSet: ...

    def arm(self) -> None:
        """Have it end in time."""

    def end(self) -> None:
        """Keep nothing any more."""


class Dispatcher(Protocol):
    """How messages of a cursor are handed out, and what is held for that outside of the cursor's claims."""

    def held(self, cursor: Cursor) -> list[Claim]:
        """What waits and is held here, in no particular order."""

    def held_count(self, cursor: Cursor) -> int:
        """How much that is."""

    def take_out(self, cursor: Cursor, claim: Claim) -> bool:
        """Forget a claim that does not wait any more, if it can be found at once; whether it was."""

    def forget_ended(self) -> None:
        """Let go of claims that do not wait any more."""

    def drop(self, cursor: Cursor, message_ids: set[int] | None = None) -> list[Claim]:
        """Forget what is held of these messages (None: of all), and give it."""

    def passed(self, cursor: Cursor, messages: list[Message]) -> None:
        """The cursor is done with these, which it never claimed."""

    def log_loaded(
        self, cursor: Cursor, load: LogLoad, rows: list[Message], next_offset: int, sequence: int
    ) -> bool:
        """Take what was read back; False: it is the reader's."""

    def written(self, cursor: Cursor) -> None:
        """The cursor's state was put into a commit."""

    def purged(self, cursor: Cursor) -> None:
        """The cursor goes on at the end of the log."""


class Cursor:
    """A group's position in a log, its claims, and how they are written.

    Rate-limited by `limits.STATE_FLUSH_INTERVAL_MS`: a busy group's claim that is settled before the next
    writing never touches an active record. What a crash loses thereby is delivered again, never lost. `wants`
    says which messages are for the group (None: all). `is_removed`: the group was deleted, or a reset
    replaced it.
    """

    __slots__ = (
        "_flushed_at_ms",
        "_is_dirty",
        "_owner",
        "awaits_history",
        "claims",
        "consumers",
        "dead_letters",
        "dispatcher",
        "done_purges",
        "group_id",
        "is_removed",
        "log",
        "progress",
        "reader",
        "reset_keep",
        "retention",
        "returning",
        "rules",
        "skipped",
        "storage_id",
        "stored_place",
        "wants",
    )

    def __init__(
        self,
        retention: Retention[Cursor],
        owner: Owner,
        consumers: Consumers,
        group_id: str,
        *,
        position: int,
        sequence: int,
        wants: Wanted | None,
        rules: Rules,
        dead_letters: DeadLetters,
        dispatcher: Dispatcher,
    ) -> None:
        log = retention.log
        self.log = log
        self.retention = retention
        self._owner = owner
        self.consumers = consumers
        self.group_id = group_id
        self.storage_id = storage_id(log, group_id)
        self.stored_place = StoredPlace(self.storage_id, log.log_id)
        self.wants = wants
        self.rules = rules
        self.dead_letters = dead_letters
        self.dispatcher = dispatcher
        self.progress = Progress(position)
        self.reader = Reader(log, self.progress, self, sequence)
        self.claims = self._make_claims()
        self.returning = Returning(self, self.claims, log.context.steps)
        self.is_removed = False
        self.reset_keep: Kept | None = None
        self.awaits_history = False
        self.done_purges: DonePurges[Cursor] = DonePurges(retention, self, self.claims)
        self.skipped: SkippedRows[Cursor] = SkippedRows(retention, self, self.done_purges)
        self._is_dirty = False
        self._flushed_at_ms = 0

    def _make_claims(self) -> Claims:
        return Claims(self.log, self.storage_id, self.mark_dirty, self.want_dispatch)

    @property
    def position(self) -> int:
        """The first offset not looked at yet."""
        return self.progress.position

    def has_taken(self, offset: int) -> bool:
        """Whether the message at `offset` was claimed or passed."""
        return self.progress.has_taken(offset)

    def want_dispatch(self) -> None:
        """Have the group hand out messages."""
        self._owner.want_dispatch()

    def follow(self, rules: Rules) -> None:
        """Follow these rules of the queue from now on."""
        self.rules = rules

    def serve_by(self, dispatcher: Dispatcher) -> None:
        """Have messages handed out so from now on."""
        self.dispatcher = dispatcher

    def select(self, wants: Wanted | None) -> None:
        """Take only messages that `wants` says yes to."""
        self.wants = wants

    def has_consumers(self) -> bool:
        """Whether anybody consumes in the group."""
        return bool(self.consumers.members)

    # counting

    def ready_count(self) -> int:
        """Messages waiting for a claim (with a pattern: at most so many)."""
        count = self.log.tail.next_offset - self.progress.position + len(self.claims.returned)
        count += len(self.returning)
        return count + self.dispatcher.held_count(self) - self.retention.missing_count(self.progress)

    def delayed_count(self) -> int:
        """Messages that came back and wait for their next attempt."""
        return len(self.claims.delays)

    def waiting(self) -> list[Claim]:
        """Claims that came back, or are placed for a consumer, in no particular order."""
        return self.claims.waiting() + self.dispatcher.held(self)

    def at_once(self) -> list[Claim]:
        """As `waiting`, without those that wait for their next attempt."""
        self.returning.finish()
        returned = [claim for _, claim in self.claims.returned if claim.state == AVAILABLE]
        return returned + self.dispatcher.held(self)

    def done_offsets(self) -> RangeSet:
        """The offsets of messages that are done and still kept for that."""
        done_with = self.progress.taken()
        done_with.drop_before(self.log.head_offset)
        is_alone = len(self.retention.members) == 1
        done_with.discard_all(self.retention.released if is_alone else self.progress.released)
        for claim in self.claims.active_claims():
            done_with.discard(claim.message.offset, claim.message.offset + 1)
        return done_with

    def is_waited_for(self) -> bool:
        """Whether messages that wait here are being read back."""
        return self.reader.is_loading and self.ready_count() > 0

    # taking messages from the log

    def at_hand(self) -> int:
        """Messages beyond the position that are in memory; asks for more from the store if there are few."""
        return self.reader.at_hand()

    def take(self, count: int) -> list[Message]:
        """The next `count` messages this group wants, the position moved past them."""
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
            self.progress.forget_gaps()

    def _take_wanted(self, count: int) -> list[Message]:
        wants = self.wants
        if wants is None:
            return self.reader.take(count)
        messages: list[Message] = []
        scanned = 0
        while len(messages) < count:
            part = self.reader.take(count - len(messages))
            if not part:
                break
            wanted = [m for m in part if wants(m)]
            if len(wanted) < len(part):
                self.skip_unwanted([m for m in part if not wants(m)])
            messages += wanted
            scanned += len(part)
            if scanned >= limits.PATTERN_SCAN_MESSAGES_MAX:
                self.want_dispatch()
                break
        if scanned > len(messages):
            self.mark_dirty()
        return messages

    def skip_unwanted(self, messages: list[Message]) -> None:
        """These are nothing for the group: it lets go of them."""
        self._skip(messages)
        self.rules.skipped(self, messages)

    def discard(self, messages: list[Message]) -> None:
        """Be done, without a record, with messages that were never claimed."""
        if messages:
            self._skip(messages)
            self.mark_dirty()

    def _skip(self, messages: list[Message]) -> None:
        if self.log.durable:
            self.skipped.add([(m.offset, m.message_id, m.template.shared) for m in messages])

    def selects(self, message: Message) -> bool:
        """Whether the message is one for the group."""
        return self.wants is None or self.wants(message)

    def peek(self, count: int) -> list[Message]:
        """The next up to `count` messages in memory, without taking them; asks for more to be read."""
        return self.reader.peek(count)

    def pass_by(self, count: int) -> None:
        """Move the position past the next `count` messages in memory, wanted or not."""
        self.reader.take(count)
        self.mark_dirty()

    def pass_to(self, offset: int) -> None:
        """Go on at `offset`, if that is not behind and messages are claimed in order."""
        if self.progress.claimed is None and self.reader.pass_to(offset):
            self.mark_dirty()

    def skip_to(self, offset: int) -> None:
        """Go on at `offset`: nothing before it is kept."""
        self.progress.skip_to(offset)
        self.reader.forget()
        self.mark_dirty()

    def pass_ranges(self) -> None:
        """Never hand out what the log has let go of, though memory or the store may still have it."""
        if self.progress.pass_ranges(self.retention.released):
            self.mark_dirty()

    def pass_expired(self) -> None:
        """What expired ahead of the groups is nothing for this one: keep account of it, out of order."""
        if self.progress.pass_ranges(self.retention.expired_from(self.progress.position)):
            self.mark_dirty()

    def forget_read(self) -> None:
        """Let go of what was read back; it is read again when it is wanted."""
        self.reader.forget()

    # handing out

    def hand_out_fresh(self, consumer: Consumer, messages: list[Message], now_ms: int) -> None:
        """Claim and deliver messages just taken from the log, in order of offsets.

        To a `no_ack` consumer they are delivered first: what its sink did not take is claimed as anybody
        else's would be, what it took is claimed done.
        """
        self.log.context.budget.spend(limits.DELIVERY_COST + len(messages))
        if not consumer.no_ack:
            claims = self.claims.claim(messages, consumer, IN_FLIGHT, now_ms)
            consumer.sink.deliver(consumer, messages, claims)
            return
        state = IN_FLIGHT
        try:
            if consumer.sink.deliver(consumer, messages, None):
                state = DONE
        finally:
            claims = self.claims.claim(messages, consumer, state, now_ms)
            if state == IN_FLIGHT and not consumer.active:
                self.requeue(claims, now_ms, delay_ms=0)

    def hand_out(self, consumer: Consumer, claims: list[Claim]) -> None:
        """Deliver claims that were made again; those of a `no_ack` consumer are done once its sink
        took them.
        """
        self.log.context.budget.spend(limits.DELIVERY_COST + len(claims) * limits.REDELIVERY_COST)
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

    # what comes back

    def requeue(
        self, claims: Sequence[Claim], now_ms: int, *, failed: bool = False, delay_ms: int | None = None
    ) -> None:
        """Return claims to their original place, or fail them (`failed`, or attempts used up).

        They wait there for `delay_ms`; None: as the retry policy says. Claims that are not in flight (any
        more) are passed over. Of very many only the first are there at once, see `Returning`.
        """
        verdict = Verdict(now_ms, failed, delay_ms)
        count = limits.RETURNED_PER_STEP_MAX
        if len(claims) > count:
            self.returning.add(claims[count:], verdict)
            claims = claims[:count]
        self.take_back(claims, verdict)
        self.want_dispatch()

    def take_back(self, claims: Sequence[Claim], verdict: Verdict) -> None:
        """See `queue_manager.cursor.returning.Taker`."""
        now_ms = verdict.now_ms
        policy = self.log.policy
        wait_ms = verdict.delay_ms or 0
        backs_off = verdict.delay_ms is None and policy.retry_initial_ms > 0
        for claim in claims:
            if claim.state not in (IN_FLIGHT, RETURNING):
                continue
            new = self.claims.put_back(claim, now_ms)
            if verdict.failed:
                self.fail(new, REJECTED, now_ms)
            elif policy.attempts_max and claim.attempts >= policy.attempts_max:
                self.fail(new, DELIVERY_LIMIT, now_ms)
            else:
                if backs_off:
                    wait_ms = backoff.delay_ms(policy, claim.message.message_id, claim.attempts)
                if wait_ms:
                    self.claims.delays.add(new, now_ms + wait_ms)
                else:
                    self.claims.give_back(new)
                self.rules.returned(self, new, claim.message.body)

    def all_back(self, now_ms: int) -> None:
        """See `queue_manager.cursor.returning.Taker`."""
        self.want_dispatch()
        self._owner.loaded(now_ms)  # who wants one message waits for that, too

    def unclaim(self, claim: Claim, now_ms: int) -> None:
        """Put a claim back as if it had not been made."""
        self.claims.untry(claim)
        new = self.claims.put_back(claim, now_ms, tried=False)
        self.claims.give_back(new)
        self.rules.returned(self, new, new.message.body)
        self.want_dispatch()

    def fail(self, claim: Claim, reason: str, now_ms: int) -> None:
        """Give a claim up for good: dead-lettered it is done here, else kept with its failed record."""
        if self.dead_letters.send(self.group_id, claim.message, claim.attempts, reason, now_ms):
            self.claims.finish(claim)
            if claim.bucket is not None:
                self.write_soon()  # with the commit that holds the copy
            return
        self.keep_failed(claim)

    def keep_failed(self, claim: Claim) -> None:
        """Keep an available claim as a failed one."""
        self.claims.fail(claim)
        if claim.bucket is not None:
            self.retention.keep_failed(self, claim.message.offset)

    def keep_fresh_failed(self, message: Message, now_ms: int) -> None:
        """Keep a message that was never claimed as a failed one."""
        self.keep_failed(self.claims.enter_one(message, now_ms))
        self.mark_dirty()
        self.write_soon()

    def discard_claim(self, claim: Claim, reason: str, now_ms: int) -> None:
        """Let go of an available claim. Where dead letters are wanted its body must be in memory."""
        self.claims.stamp(claim, now_ms)
        if claim.bucket is not None:
            self.claims.records.touch(claim.bucket)
            self.write_soon()
        if self.dead_letters.is_wanted():
            self.fail(claim, reason, now_ms)
        else:
            self.claims.finish(claim)

    def discard_fresh(self, messages: list[Message], reason: str, now_ms: int) -> int:
        """Let go of messages that were not claimed; give how many of them, from the first on, it were: all.

        Where dead letters are wanted the bodies must be in memory; what those do not take is kept failed.
        """
        done_with = messages
        if reason and self.dead_letters.is_wanted():
            done_with = []
            for message in messages:
                if not self.selects(message) or self.dead_letters.send(
                    self.group_id, message, 0, reason, now_ms
                ):
                    done_with.append(message)
                else:
                    self.keep_fresh_failed(message, now_ms)
        self.discard(done_with)
        self.dispatcher.passed(self, messages)
        return len(messages)

    def take_out(self, claims: list[Claim]) -> None:
        """Take claims that do not wait any more from where they did."""
        rest = False
        for claim in claims:
            if self.claims.next_returned() is claim:
                self.claims.pop_returned()
            elif not self.dispatcher.take_out(self, claim):
                rest = True
        if rest:
            self.claims.forget_ended()
            self.claims.delays.forget_ended()
            self.dispatcher.forget_ended()

    def revive(self, bucket: Bucket, claim: Claim, now_ms: int) -> Claim:
        """Make a failed claim available again, as if it had never been tried; give the new one."""
        new = self.unfail(bucket, claim, now_ms)
        self.claims.give_back(new)
        self.rules.returned(self, new, claim.message.body)
        self.want_dispatch()
        return new

    def unfail(self, bucket: Bucket, claim: Claim, now_ms: int) -> Claim:
        """As `revive`; but the new claim waits nowhere yet."""
        new = self.claims.revive(bucket, claim, now_ms)
        self.retention.keep_redriven(self, claim.message.offset)
        return new

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
        self.claims.take_returned()
        self.claims.delays.clear()
        self.dispatcher.drop(self)
        self.progress.skip_to(end)
        self.reader.forget()
        self.dispatcher.purged(self)
        self.claims.drop(waiting, log.context.commit)
        self.rules.purged(self)
        self.mark_dirty()
        self.write_soon()  # before what is purged goes
        return removal

    # writing

    def mark_dirty(self) -> None:
        """Have position and claims written with one of the next commits, if the queue is kept."""
        if not self._is_dirty and self.log.durable and not (self.log.deleted or self.is_removed):
            self._is_dirty = True
            self._want_write()

    def _want_write(self) -> None:
        self.log.context.state_writes.add(self, self._flushed_at_ms + limits.STATE_FLUSH_INTERVAL_MS)

    def write_soon(self) -> None:
        """Have what changed written with the open commit."""
        self._flushed_at_ms = -limits.STATE_FLUSH_INTERVAL_MS
        if self._is_dirty:
            self._want_write()

    def write_at(self, due_ms: int) -> None:
        """Have what changes from now on written at that time."""
        self._flushed_at_ms = due_ms - limits.STATE_FLUSH_INTERVAL_MS

    @property
    def is_dirty(self) -> bool:
        """Whether there is something to write."""
        return self._is_dirty

    def written(self, now_ms: int) -> None:
        """What changed is in a commit."""
        self._is_dirty = False
        self._flushed_at_ms = now_ms
        self.log.context.state_writes.forget(self)

    def write_whole_soon(self) -> None:
        """As `write_soon`, and so that buckets are complete in their three records."""
        self.claims.records.want_all_whole()
        self.write_soon()

    def write_whole(self, commit: Commit, now_ms: int) -> None:
        """As `write`, and so that buckets are complete in their three records."""
        self.claims.records.want_all_whole()
        if self._is_dirty:
            self.write(commit, now_ms)

    def write(self, commit: Commit, now_ms: int) -> None:
        """Put everything that changed since the last call into `commit`."""
        closed, runs = self.claims.write(commit)
        if runs:
            self.retention.release_unshared(self, runs)
        for bucket in closed:
            self.done_purges.schedule(bucket, now_ms)
            bucket.dissolve()
        if closed or any(bucket.done_written for bucket in self.claims.buckets.values()):
            self.done_purges.want()
        assert self.progress.position >= self.log.head_offset, f"{self.storage_id} is below the head"
        self.reader.advance_sequence()
        self.stored_place.write(self.reader.sequence, self.progress.position, commit)
        if self.progress.claimed is not None:
            self.progress.claimed.flush(self.storage_id, commit)
        self.rules.written(self, commit)
        self.written(now_ms)
        self.dispatcher.written(self)

    # reading back

    @property
    def log_id(self) -> str:
        """See `LoadTarget`."""
        return self.log.log_id

    def log_end(self) -> int:
        """See `LoadTarget`."""
        return self.log.tail.first_offset

    def is_over(self) -> bool:
        """See `LoadTarget`."""
        return self.log.deleted or self.is_removed

    def abandon(self, now_ms: int) -> None:
        """See `LoadTarget`."""
        self._owner.loaded(now_ms)

    def request_payloads(self) -> None:
        """Have the payloads read of what came back and is next."""
        claims = [claim for _, claim in nsmallest(limits.LOAD_MESSAGES_MAX, self.claims.returned)]
        self.reader.request_payloads([c.message for c in claims if c.message.body is None])

    def log_loaded(
        self, load: LogLoad, rows: list[Message], next_offset: int, sequence: int, now_ms: int
    ) -> None:
        """See `LoadTarget`."""
        self.reader.go_on()
        self.want_dispatch()
        if not self.dispatcher.log_loaded(self, load, rows, next_offset, sequence) and self.reader.loaded(
            load, rows, next_offset, sequence, self.release_gone
        ):
            self.mark_dirty()
        self._loaded(now_ms)

    def release_gone(self, start: int, end: int) -> None:
        """The offsets `start` to `end` have no payload any more."""
        if not self.is_removed:
            self.retention.release_gone(self, start, end)

    def payloads_loaded(
        self, load: PayloadLoad, bodies: dict[int, bytes], read_count: int, now_ms: int
    ) -> None:
        """See `LoadTarget`."""
        self.reader.go_on()
        gone: set[int] = set()
        for message in load.messages[:read_count]:
            body = bodies.get(message.message_id)
            message.set_body(body)
            if body is None:
                gone.add(message.message_id)
        if gone:
            came_back = [claim for _, claim in self.claims.returned]
            self.claims.drop_gone([*came_back, *self.dispatcher.drop(self, gone)], gone)
        self.want_dispatch()
        self._loaded(now_ms)

    def _loaded(self, now_ms: int) -> None:
        self._owner.loaded(now_ms)
        if not self.log.deleted:
            self.rules.loaded(self, now_ms)

    # its life

    def begin_at(self, position: int, sequence: int) -> None:
        """Begin at `position`: nothing was claimed yet."""
        self.progress.move(position)
        self.reader.begin_at(sequence)

    def await_history(self) -> None:
        """Be given nothing before it is known what the other groups let go of before the start."""
        self.awaits_history = True
        self.reader.hold()
        self.log.context.awaiting_history[self] = None

    def history_known(self) -> None:
        """See `await_history`: it is known."""
        self.awaits_history = False
        del self.log.context.awaiting_history[self]
        self.reader.go_on()
        self.progress.released.add_all(self.retention.released)
        self.pass_ranges()
        self.mark_dirty()
        self.want_dispatch()

    def keep_after_reset(self, keep: Kept) -> None:
        """Keep what a reset passed."""
        self.reset_keep = keep

    def forget_reset(self) -> None:
        """What a reset passed is not kept any more."""
        self.reset_keep = None

    def floor(self) -> int:
        """The lowest offset this group is not done with."""
        return min([self.progress.position, *(claim.message.offset for claim in self.claims.active_claims())])

    def unfinished(self) -> list[Message]:
        """The messages below the position that wait again or are in flight."""
        return [claim.message for claim in self.claims.active_claims()]

    def retire(self) -> None:
        """The group is deleted, or a reset puts another cursor in the place of this one."""
        self.is_removed = True
        self._leave()
        self._is_dirty = False
        self.claims.retire(self.waiting())
        if self.progress.claimed is not None:
            self.progress.claimed.erase(self.storage_id, self.log.context.commit)
        self.done_purges.clear()
        self.skipped.clear()
        self.reader.forget()

    def delete(self) -> None:
        """The queue is deleted."""
        self._leave()
        self.claims.delays.clear()

    def _leave(self) -> None:
        """Have nothing done for it any more."""
        context = self.log.context
        context.state_writes.forget(self)
        context.purgeable.pop(self.done_purges, None)
        context.skipping.pop(self.skipped, None)
        context.awaiting_history.pop(self, None)
        if self.reset_keep is not None:
            self.reset_keep.end()
        self.returning.drop()


def storage_id(log: QueueLog, group_id: str) -> str:
    """What the records of a group in a log are stored under."""
    return f"{log.name}\x1f{group_id}" if group_id else log.name


__all__ = ["AVAILABLE", "Cursor", "DeadLetters", "Dispatcher", "Owner", "Rules", "Wanted", "storage_id"]
