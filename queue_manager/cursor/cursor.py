"""One consumer group's cursor in one log: how far it is, what it has claimed, what of that is written down.

A queue has one log, or one for each priority; a group has a cursor in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from typing import Protocol

from config import limits
from queue_manager.claims.claim import AVAILABLE, DONE, IN_FLIGHT, RETURNING, Bucket, Claim, Consumer
from queue_manager.claims.consumers import Consumers
from queue_manager.claims.ledger import Claims
from queue_manager.cursor import backoff
from queue_manager.cursor.backlog import Backlog, Wanted
from queue_manager.cursor.done_purges import DonePurges
from queue_manager.cursor.reasons import DELIVERY_LIMIT, REJECTED
from queue_manager.cursor.returning import Returning, Verdict
from queue_manager.cursor.skipped_rows import SkippedRows
from queue_manager.cursor.stored_state import StoredState
from queue_manager.log.progress import Progress
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.ranges import RangeSet
from queue_manager.log.reader import Reader
from queue_manager.log.removals import RangeRemoval
from queue_manager.log.retention import Retention
from queue_manager.model import Message
from queue_manager.shard.commit import Commit
from queue_manager.shard.loads import LogLoad, PayloadLoad


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
    """A group's place in a log: what it has yet to be given (`backlog`), what it has claimed (`claims`), what
    came back, and what of all that is on the store (`stored`).

    `is_removed`: the group was deleted, or a reset replaced it.
    """

    __slots__ = (
        "_owner",
        "awaits_history",
        "backlog",
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
        "stored",
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
        is_kept: bool = True,
    ) -> None:
        log = retention.log
        self.log = log
        self.retention = retention
        self._owner = owner
        self.consumers = consumers
        self.group_id = group_id
        self.storage_id = storage_id(log, group_id)
        self.stored = StoredState(self, log, self.storage_id, is_kept=is_kept)
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
        self.backlog = self._make_backlog(wants)

    def _make_claims(self) -> Claims:
        return Claims(self.log, self.storage_id, self.stored.mark_dirty, self.want_dispatch)

    def _make_backlog(self, wants: Wanted | None) -> Backlog[Cursor]:
        return Backlog(self, self.retention, self.progress, self.reader, self.stored, self.skipped, wants)

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

    def has_consumers(self) -> bool:
        """Whether anybody consumes in the group."""
        return bool(self.consumers.members)

    # counting

    def ready_count(self) -> int:
        """Messages waiting for a claim (with a pattern: at most so many)."""
        count = self.log.tail.next_offset - self.progress.position + len(self.claims.returned)
        count += self.returning.count
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

    # handing out

    def passed_unwanted(self, messages: list[Message]) -> None:
        """See `BacklogOwner`."""
        self.rules.skipped(self, messages)

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
                self.stored.write_soon()  # with the commit that holds the copy
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
        self.stored.mark_dirty()
        self.stored.write_soon()

    def discard_claim(self, claim: Claim, reason: str, now_ms: int) -> None:
        """Let go of an available claim. Where dead letters are wanted its body must be in memory."""
        self.claims.stamp(claim, now_ms)
        if claim.bucket is not None:
            self.claims.records.touch(claim.bucket)
            self.stored.write_soon()
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
                if not self.backlog.selects(message) or self.dead_letters.send(
                    self.group_id, message, 0, reason, now_ms
                ):
                    done_with.append(message)
                else:
                    self.keep_fresh_failed(message, now_ms)
        self.backlog.discard(done_with)
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
        self.backlog.skip_to(end)
        self.dispatcher.purged(self)
        self.claims.drop(waiting, log.context.commit)
        self.rules.purged(self)
        self.stored.mark_dirty()
        self.stored.write_soon()  # before what is purged goes
        return removal

    # writing

    def write_soon(self) -> None:
        """See `Member`."""
        self.stored.write_soon()

    def write_whole_soon(self) -> None:
        """As `write_soon`, and so that buckets are complete in their three records."""
        self.claims.records.want_all_whole()
        self.stored.write_soon()

    def write_whole(self, commit: Commit, now_ms: int) -> None:
        """As `write`, and so that buckets are complete in their three records."""
        self.claims.records.want_all_whole()
        if self.stored.is_dirty:
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
        self.stored.write_place(self.reader.sequence, self.progress.position, commit)
        if self.progress.claimed is not None:
            self.progress.claimed.flush(self.storage_id, commit)
        self.rules.written(self, commit)
        self.stored.written(now_ms)
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
            self.stored.mark_dirty()
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
        self.log.note_sizes(bodies.values())
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
        self.backlog.pass_released()
        self.stored.mark_dirty()
        self.want_dispatch()

    def keep_after_reset(self, keep: Kept) -> None:
        """Keep what a reset passed."""
        self.reset_keep = keep

    def forget_reset(self) -> None:
        """What a reset passed is not kept any more."""
        self.reset_keep = None

    def unfinished(self) -> list[Message]:
        """The messages below the position that wait again or are in flight."""
        return [claim.message for claim in self.claims.active_claims()]

    def retire(self) -> None:
        """The group is deleted, or a reset puts another cursor in the place of this one."""
        self.is_removed = True
        self._leave()
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
        self.stored.leave()
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
