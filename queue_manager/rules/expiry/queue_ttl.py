"""The ends of messages by their age: the queue's TTL, and how long it keeps them unread.

It ends in the order of the log, so each group only looks at what is next for it.
"""

from __future__ import annotations

from config import limits
from queue_manager.cursor.failures import EXPIRED, RETENTION
from queue_manager.rules.expiry.front import Holder
from queue_manager.rules.expiry.level import Level


class QueueTtl:
    """Gives up the first messages of a log as long as they are too old."""

    __slots__ = ("_fronts", "_log", "_retention", "_rules")

    def __init__(self, rules: Level) -> None:
        self._rules = rules
        self._retention = rules.retention
        self._log = rules.log
        self._fronts = rules.fronts

    def end_due(self, now_ms: int) -> None:
        """Give up what is too old, as far as it is at hand."""
        policy = self._log.policy
        if policy.message_ttl_ms:
            for holder in self._fronts.holders():
                self._sweep(holder, policy.message_ttl_ms, EXPIRED, now_ms)
        if policy.retention_age_ms and not self._retention.members and not self._rules.has_due(now_ms):
            self._sweep(self._fronts.future(), policy.retention_age_ms, RETENTION, now_ms)

    def is_reading(self) -> bool:
        """Return whether something may be too old that has yet to be read."""
        policy = self._log.policy
        lives = policy.message_ttl_ms or (policy.retention_age_ms and not self._retention.members)
        return lives > 0 and self._fronts.is_loading()

    def _sweep(self, holder: Holder, ttl_ms: int, reason: str, now_ms: int) -> None:
        """Give up what is next for the group as long as it has been here for `ttl_ms`."""
        source = self._fronts.source(holder)
        seen_due_ms = self._fronts.seen_due_ms(source, ttl_ms, honours_until=reason == EXPIRED)
        if seen_due_ms > now_ms:
            self._rules.call_at(max(seen_due_ms, now_ms + limits.EXPIRY_READ_INTERVAL_MS))
            return
        budget = self._rules.budget
        step = 1
        while front := source.reader.peek(step):
            step = limits.EXPIRY_STEP_MESSAGES
            count = 0
            expired = []
            for message in front:
                if not self._fronts.is_over_for(holder, message):
                    if message.received_at_ms + ttl_ms > now_ms:
                        break
                    expired.append(message)
                count += 1
            discarded = holder.discard_fresh(expired, reason, now_ms, budget)
            self._rules.note_passed(holder, expired[:discarded])
            passed = count if discarded == len(expired) else front.index(expired[discarded])
            if passed:
                self._rules.pass_over(holder, source, passed)
            if budget.is_spent:
                return
            if passed < count:
                retry_ms = now_ms + limits.EXPIRY_RETRY_MS
                self._fronts.see(source, front[passed], retry_ms)
                self._rules.call_at(retry_ms)
                return
            if count < len(front):
                self._fronts.see(source, front[count], 0)
                due_ms = front[count].received_at_ms + ttl_ms
                if source.position < self._log.tail.first_offset:
                    due_ms = max(due_ms, now_ms + limits.EXPIRY_READ_INTERVAL_MS)
                self._rules.call_at(due_ms)
                return
