"""The rules of a log on messages to give up: those that expired, and the oldest of too many.

A log has rules if its queue's policy lets messages expire, bounds their bytes, drops the oldest or says how
much is kept for groups to come, or once a message came that expires by itself; others pay nothing for it.

The queue's own TTL ends in the order of the log (`queue_ttl.py`). Messages with an expiry of their own are
let go of by all groups at once, also ahead of where they are (`own_expiry.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from config import limits
from queue_manager.claims.claim import Claim
from queue_manager.cursor.cursor import Cursor
from queue_manager.cursor.failures import EXPIRED, MAXLEN, REPLACED, RETENTION, DeadLetters
from queue_manager.log.levels import priority_of
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.retention import Retention
from queue_manager.model import Message, MessageBatch
from queue_manager.policy import DROP_HEAD, QueuePolicy
from queue_manager.rules.expiry import overflow
from queue_manager.rules.expiry.byte_count import ByteCount
from queue_manager.rules.expiry.last_values import LastValues
from queue_manager.rules.expiry.level import Level
from queue_manager.rules.expiry.own_expiry import OwnExpiry
from queue_manager.rules.expiry.queue_ttl import QueueTtl
from queue_manager.shard.commit import Commit
from storage.envelope import expires_at_ms
from storage.records import AccountBytes, LastValue


def expires_at(policy: QueuePolicy, message: Message) -> int:
    """Return when a message of the queue expires, in ms; 0: never."""
    own_ms = expires_at_ms(message.template, message.received_at_ms)
    ttl_ms = policy.message_ttl_ms
    if not ttl_ms:
        return own_ms
    end_ms = message.received_at_ms + ttl_ms
    return min(own_ms, end_ms) if own_ms else end_ms


def has_expired(policy: QueuePolicy, message: Message, now_ms: int) -> bool:
    """Return whether the message may not be handed out any more."""
    return 0 < expires_at(policy, message) <= now_ms


def is_too_late(policy: QueuePolicy, message: Message, now_ms: int) -> bool:
    """Return whether a message that was not given to anybody yet may not be any more.

    One with the least lifetime (`expiration: "0"`) is for a consumer that is ready when it comes: it may be
    taken until the timers let go of it, which run after the consumers had their turn.
    """
    end_ms = expires_at(policy, message)
    if end_ms == message.received_at_ms + limits.LIFETIME_MS_MIN:
        end_ms += limits.IMMEDIATE_TURN_MS
    return 0 < end_ms <= now_ms


class Levels:
    """The rules of the logs of one queue, the least urgent priority first."""

    __slots__ = ("_log", "_rules")

    def __init__(self, log: QueueLog) -> None:
        self._log = log
        self._rules: tuple[LogRules, ...] = ()

    def add(self, rules: LogRules) -> None:
        """Take in the rules of a log."""
        self._rules = tuple(sorted((*self._rules, rules), key=LogRules.priority))

    def readers(self) -> list[list[overflow.Reader]]:
        """Return for each group (or those to come) what it reads: the logs, the least urgent first."""
        rules = self._rules
        members = rules[0].retention.members
        if members:
            return [[(rule, rule.retention.members[key]) for rule in rules] for key in members]
        return [[(rule, rule.fronts.future()) for rule in rules]]

    def give_up(self, now_ms: int) -> None:
        """Give up the oldest of what is more than the policy lets wait, or keeps for groups to come."""
        policy = self._log.policy
        if self._log.deleted:
            return
        if policy.overflow == DROP_HEAD:
            self._drop_oldest(MAXLEN, now_ms)
        if policy.retains() and not self._rules[0].retention.members:
            self._drop_oldest(RETENTION, now_ms)
        discards = self._log.context.discards
        if discards.is_spent:
            discards.put_off(self)

    def _drop_oldest(self, reason: str, now_ms: int) -> None:
        if all(overflow.Excess(readers, reason).is_over() for readers in self.readers()):
            return
        for rules in self._rules:  # what has expired is not too much
            rules.end_expired(now_ms)
            if rules.has_due(now_ms):
                return  # we are called again
        for readers in self.readers():
            overflow.drop_oldest(readers, reason, now_ms)

    def waiting_bytes(self) -> int:
        """Return the bytes of payload that wait, in the group with most of them."""
        return max(map(overflow.waiting_bytes, self.readers())) if self._rules else 0

    def oldest_at_hand(self) -> bool:
        """Return whether what groups to come would get first is in memory."""
        return all(rule.fronts.future().position >= rule.log.tail.first_offset for rule in self._rules)


class LogRules(Level):
    """The rules of one log: what its queue, its cursors and time tell it (see `Rules` for the cursors).

    Each hook is one method; what follows is done by `OwnExpiry`, `QueueTtl`, `ByteCount` and `Levels`.
    """

    __slots__ = ("_last", "_levels", "_ttl", "own")

    def __init__(self, retention: Retention[Cursor], dead_letters: DeadLetters, levels: Levels) -> None:
        super().__init__(retention, dead_letters)
        self.own = OwnExpiry(self)
        self._last: LastValues | None = None
        self._ttl = QueueTtl(self)
        self._levels = levels
        levels.add(self)

    def priority(self) -> int:
        """Return the priority whose messages are in the log."""
        return priority_of(self.log.head_offset)

    # what happens to the queue

    def policy_changed(self) -> None:
        """Look at everything again."""
        if not (self.log.policy.counts_bytes() or self.log.is_counted):
            self.bytes = None
        elif self.bytes is None:
            self.bytes = ByteCount(self.log, self.fronts, self.call_at)
        header = self.log.policy.last_value
        if header != ("" if self._last is None else self._last.header):
            self._last = LastValues(self, self.own, header) if header else None
        self.call_at(0)

    def count(self, batch: MessageBatch, first_offset: int) -> None:
        """Count messages appended to the log; `appended` follows once the groups have looked at them."""
        if batch.template.expires_at_ms:
            self.own.add(batch, first_offset)
        if self.bytes is not None:
            self.bytes.add(self.fronts.holders(), batch.body_bytes)
        if self._last is not None:
            self._last.note(batch, first_offset)

    def appended(self, count: int, now_ms: int) -> None:
        """Give up what is too much now, and have time looked after, once so many messages were counted."""
        policy = self.log.policy
        if self._last is not None:
            self._last.replace(now_ms)
        if policy.message_ttl_ms:
            self.call_at(now_ms + policy.message_ttl_ms)
        is_retained = policy.retains() and not self.retention.members
        if is_retained and policy.retention_age_ms:
            self.call_at(now_ms + policy.retention_age_ms)
        if policy.overflow != DROP_HEAD:
            if not is_retained:
                return
            if not self._levels.oldest_at_hand():  # reading it for each publish would cost more than they do
                self.call_at(now_ms + limits.EXPIRY_READ_INTERVAL_MS)
                return
        if policy.keeps_nothing():  # consumers have the first chance
            self.call_at(now_ms)
            return
        self.budget.give_up(self._levels, now_ms, count)

    def log_written(self) -> None:
        """Note that the log was put into the open commit up to its end."""
        if self.bytes is not None:
            self.bytes.write_appended(self._context.commit)
        if self._last is not None:  # once for all that was replaced meanwhile
            self.retention.write_expired()

    def welcome(self, cursor: Cursor) -> None:
        """Begin with a group that was made: what was let go of before is not for it."""
        self.fronts.welcome(cursor)
        if self.bytes is not None:
            self.bytes.welcome(cursor)
        if self.log.policy.overflow == DROP_HEAD:
            self.call_at(0)

    def farewell(self, cursor: Cursor) -> None:
        """Forget a group that is gone, or begins anew; nothing that came back to it waits any more."""
        self.oldest.forget(cursor)
        self.fronts.farewell(cursor)
        if self.bytes is not None:
            self.bytes.forget(cursor)
        self.call_at(0)  # it may have been the last group, and what it held waits again

    def inherit(self, messages: list[Message]) -> None:
        """Let go once more of what expired meanwhile, of what the last group, which is gone, had not done."""
        self.own.expire_again([m for m in messages if self.retention.expired.ranges.contains(m.offset)])

    def purged_unread(self) -> None:
        """Note that everything was dropped from a queue that has no group."""
        if self.bytes is not None:
            self.bytes.of(self.fronts.future()).clear()
        self.fronts.forget_future()

    def delete(self) -> None:
        """End with the queue."""
        self._context.timers.forget(self)
        self.budget.forget(self)
        self.budget.forget(self._levels)

    # what happens to cursors (see `Rules`)

    def choose(self, cursor: Cursor, messages: list[Message], now_ms: int) -> list[Message]:
        policy = self.log.policy
        ttl_ms = policy.message_ttl_ms
        while messages:
            is_first_good = not ttl_ms or messages[0].received_at_ms + ttl_ms > now_ms
            if is_first_good and not self.retention.expired.is_used and not self.own.is_used:
                self.passed(cursor, messages)
                return messages
            good = []
            expired = []
            for message in messages:
                if self.retention.is_gone(message.offset):
                    continue
                if is_too_late(policy, message, now_ms):
                    expired.append(message)
                else:
                    good.append(message)
            self.passed(cursor, good)
            self.passed(cursor, expired)
            cursor.discard_fresh(expired, EXPIRED, now_ms)
            if good:
                return good
            messages = cursor.backlog.take(len(messages))
        return messages

    def choose_found(self, cursor: Cursor, messages: list[Message], now_ms: int) -> list[Message]:
        policy = self.log.policy
        good = [message for message in messages if not is_too_late(policy, message, now_ms)]
        self.passed(cursor, messages)
        if len(good) < len(messages):
            expired = [message for message in messages if is_too_late(policy, message, now_ms)]
            cursor.discard_fresh(expired, EXPIRED, now_ms)
        return good

    def claims_again(self, cursor: Cursor, claim: Claim, now_ms: int) -> bool:
        if self.bytes is not None:
            self.bytes.of(cursor).remove(claim)
        if self._last is not None and not self._last.claims_again(cursor, claim):
            cursor.failures.discard(claim, REPLACED, now_ms)
            return False
        if has_expired(self.log.policy, claim.message, now_ms):
            cursor.failures.discard(claim, EXPIRED, now_ms)
            return False
        return True

    def returned(self, cursor: Cursor, claim: Claim, body: bytes | None) -> None:
        if self.bytes is not None:
            self.bytes.of(cursor).add(claim, len(body or b""))
        self.oldest.add(cursor, claim)
        if self._last is not None:
            self._last.returned(cursor, claim)
        end_ms = expires_at(self.log.policy, claim.message)
        if end_ms:
            self.waiting.add(cursor, claim, end_ms)
            self.call_at(end_ms)
        if self.log.policy.overflow == DROP_HEAD:
            self.call_at(0)

    def revived(self, cursor: Cursor, claims: list[Claim]) -> None:
        if self.bytes is not None and claims:
            self.bytes.of(cursor).count_waiting(claims)

    def passed(self, cursor: Cursor, messages: list[Message]) -> None:
        self.note_passed(cursor, messages)

    def skipped(self, cursor: Cursor, messages: list[Message]) -> None:
        if self.bytes is not None:
            self.passed(cursor, [m for m in messages if not self.retention.is_gone(m.offset)])

    def purged(self, cursor: Cursor) -> None:
        if self.bytes is not None:
            self.bytes.of(cursor).clear()
        self.fronts.forget_future()

    def written(self, cursor: Cursor, commit: Commit) -> None:
        if self.bytes is not None:
            self.bytes.write_taken(cursor, commit)

    def loaded(self, cursor: Cursor, now_ms: int) -> None:
        """Look at everything: what was read may be what we wait for."""
        if not self.read(now_ms) and not any(cursor.consumers):
            cursor.backlog.forget_read()

    # time

    def on_timer(self, now_ms: int) -> None:
        """Look at everything, as far as there is a budget for this turn."""
        self.budget.give_up(self, now_ms)

    def read(self, now_ms: int) -> bool:
        """Look at everything, as something was read; returns whether that is not all over."""
        discards = self.budget
        discards.renew()
        discards.give_up(self, now_ms)
        return discards.is_put_off(self) or discards.is_put_off(self._levels)

    def give_up(self, now_ms: int) -> None:
        """Give up what has expired, as far as it is at hand; what is not is read and dealt with then."""
        if self.log.deleted:
            return
        for give_up in (self._end_waiting, self.own.end_due, self._ttl.end_due, self._levels.give_up):
            give_up(now_ms)
            if self.budget.is_spent:
                self.budget.put_off(self)
                return

    def reason_of(self, message: Message) -> str:
        return REPLACED if self._last is not None and self._last.is_replaced(message) else EXPIRED

    def _end_waiting(self, now_ms: int) -> None:
        """Give up claims that came back and have expired, or were replaced."""
        if self._last is not None:
            self._last.end_waiting(now_ms)
        due = self.waiting.take_due(now_ms)
        next_ms = self.waiting.next_ms()
        if next_ms is not None:
            self.call_at(next_ms)
        for cursor, claims in due.items():
            self.discard_waiting(cursor, claims, EXPIRED, now_ms)

    def end_expired(self, now_ms: int) -> None:
        """Give up what has expired by the queue's TTL, or waits."""
        self._end_waiting(now_ms)
        self._ttl.end_due(now_ms)

    def has_due(self, now_ms: int) -> bool:
        """Return whether something may have expired that could not be given up yet."""
        return self.waiting.has_due(now_ms) or self.own.has_due(now_ms) or self._ttl.is_reading()

    # after a start

    def restore_last_values(self, rows: Iterable[tuple[str, LastValue]]) -> None:
        """Know again which message of each value is the newest."""
        assert self._last is not None
        self._last.restore(rows)

    def restore_bytes(self, appended: AccountBytes | None, taken: dict[str, AccountBytes]) -> None:
        """Take over what was counted before the start, `taken` by groups' storage IDs, as far as it holds."""
        if self.bytes is None:
            return
        if appended is None and self.log.next_offset == 0:
            appended = AccountBytes(0, 0)
        holders = self.fronts.holders()
        if appended is not None and appended.next_offset == self.log.next_offset:
            self.bytes.restore(appended.body_bytes, holders, taken)
        for holder in holders:
            count = self.bytes.of(holder)
            count.count_waiting(holder.waiting() if isinstance(holder, Cursor) else [])
