"""Who gives up a queue's messages in time: those that have expired, and the oldest where they are too many.

A queue has a keeper if its policy lets messages expire, bounds their bytes, drops the oldest or says how much
is kept for groups to come, or once a message came that expires by itself. Queues without one pay nothing for
it.

The queue's own TTL ends in the order of the log, so each group only looks at what is next for it. Messages
with an expiry of their own are given up by all groups at once, also ahead of where they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from config import limits
from queue_manager.ahead import Ahead
from queue_manager.byte_count import ByteCount
from queue_manager.dead_letters import EXPIRED
from queue_manager.giving_up import give_up_entry, give_up_fresh
from queue_manager.keeping.ending import Ending
from queue_manager.model import Entry, Message
from queue_manager.own_ttls import OwnTtls
from queue_manager.policy import DROP_HEAD
from storage.envelope import EnvelopeTemplate
from storage.records import queue_account

if TYPE_CHECKING:
    from queue_manager.group import Group
    from queue_manager.journal import Journal


class Keeper(Ending):
    """What the queue, its groups and the driver tell the keeper."""

    __slots__ = ()

    # after a start

    def restore_own(self) -> None:
        """The store holds records of messages that expire by themselves."""
        self.own = OwnTtls(self.queue)
        self.own.begin()

    def restore_bytes(
        self, appended: queue_account.Bytes | None, taken: dict[str, queue_account.Bytes]
    ) -> None:
        """Take over what was counted before the start, `taken` by groups' storage IDs, as far as it holds."""
        queue = self.queue
        if self.bytes is None:
            return
        if appended is None and queue.tail.next_offset == 0:
            appended = queue_account.Bytes(0, 0)
        if appended is not None and appended.next_offset == queue.tail.next_offset:
            self.bytes.appended = appended.body_bytes
            for group in self._groups():
                self.bytes.restore(group, taken.get(group.storage_id))
        for group in self._groups():
            count = self.bytes.of(group)
            count.count_waiting([entry for _, entry in group.returned] + group.delayed())

    def restore_ahead(self, part: int, ranges: list[tuple[int, int]]) -> None:
        """Take in offsets that were given up before the start."""
        if self.ahead is None:
            self.ahead = Ahead()
        self.ahead.restore(part, ranges)
        self.ahead_at_start = self.ahead.ranges.copy()

    # what happens to the queue

    def policy_changed(self) -> None:
        """Look at everything again."""
        if not self.queue.policy.counts_bytes():
            self.bytes = None
        elif self.bytes is None:
            self.bytes = ByteCount(self)
        self.queue.manager.timers.set(self, 0)

    def appended(
        self, template: EnvelopeTemplate, first_id: int, first_offset: int, bodies: list[bytes], now_ms: int
    ) -> None:
        """Messages were appended to the queue."""
        if template.expires_at_ms:
            if self.own is None:
                self.own = OwnTtls(self.queue)
            self.own.add(template, first_id, first_offset, bodies, now_ms)
        policy = self.queue.policy
        if policy.message_ttl_ms:
            self.call_at(now_ms + policy.message_ttl_ms)
        if self.bytes is not None:
            self.bytes.add(self._groups(), sum(map(len, bodies)))
        is_retained = policy.retains() and not self.queue.groups
        if is_retained and policy.retention_age_ms:
            self.call_at(now_ms + policy.retention_age_ms)
        if policy.overflow != DROP_HEAD:
            if not is_retained:
                return
            if not self._oldest_at_hand():  # reading it for each publish would cost more than they do
                self.call_at(now_ms + limits.EXPIRY_READ_INTERVAL_MS)
                return
        if not self.begin():
            self.call_at(now_ms)
            return
        try:
            self._drop_too_many(now_ms)
        finally:
            self.end()

    def welcome(self, group: Group) -> None:
        """A group was made: what was given up before is not for it."""
        if self._frontier > group.position:
            group.released.add(group.position, self._frontier)
            group.pass_to(self._frontier)
        if self.ahead is not None:
            group.released.add_all(self.ahead.ranges_from(group.position))
            group.pass_to(self.ahead.ranges.floor_from(group.position))
        if self.bytes is not None:
            self.bytes.welcome(group)
        if self.queue.policy.overflow == DROP_HEAD:
            self.queue.manager.timers.set(self, 0)

    def farewell(self, group: Group) -> None:
        """The group is gone, or begins anew; nothing that came back to it waits any more."""
        self.oldest.forget(group)
        self._stand_ins.pop(group, None)
        if self.bytes is not None:
            self.bytes.forget(group)
        self.call_at(0)  # it may have been the last group, and what it held waits again

    def inherit(self, messages: list[Message]) -> None:
        """The last group is gone: of what it had not done, what expired meanwhile is given up once more."""
        if self.ahead is None:
            return
        for message in messages:
            if self.ahead.contains(message.offset):
                self.ahead.discard(message.offset)
                self.queue.tail.put_back(message)
                if self.own is None:
                    self.own = OwnTtls(self.queue)
                self.own.add_again(message)
        if self.queue.durable:
            self.ahead.write(self.queue.name, self.queue.manager.journal)

    def choose(self, group: Group, messages: list[Message], now_ms: int) -> list[Message]:
        """Of what `group` has just taken what it may have, or what comes after it if that is nothing."""
        ttl_ms = self.queue.policy.message_ttl_ms
        while messages:
            is_first_good = not ttl_ms or messages[0].received_at_ms + ttl_ms > now_ms
            if is_first_good and self.ahead is None and self.own is None:
                self.passed(group, messages)
                return messages
            good = []
            expired = []
            for message in messages:
                if self.was_given_up(message.offset):
                    continue
                if self.has_expired(message, now_ms):
                    expired.append(message)
                else:
                    good.append(message)
            self.passed(group, good)
            self.passed(group, expired)
            give_up_fresh(group, expired, EXPIRED, now_ms)
            if good:
                return good
            messages = group.take(len(messages))
        return messages

    def choose_found(self, group: Group, messages: list[Message], now_ms: int) -> list[Message]:
        """Of what a selection is about to hand out what it may; the rest is given up."""
        good = [message for message in messages if not self.has_expired(message, now_ms)]
        self.passed(group, messages)
        if len(good) < len(messages):
            expired = [message for message in messages if self.has_expired(message, now_ms)]
            give_up_fresh(group, expired, EXPIRED, now_ms)
        return good

    def selection_begins(self, group: Group) -> None:
        """The group stops taking in order: from now on it keeps account of what was given up."""
        if self.ahead is not None and group.selection is not None:
            group.selection.pass_ranges(self.ahead.ranges_from(group.position))

    def purged(self, group: Group | None) -> None:
        """Everything that waited in the group was dropped; None: in the queue, which has no group."""
        if self.bytes is not None:
            self.bytes.of(self._groups()[0] if group is None else group).clear()
        self._nobody = None

    def watch(self, group: Group, entry: Entry, body: bytes | None) -> None:
        """A claim came back and waits."""
        if self.bytes is not None:
            self.bytes.of(group).add(entry, len(body or b""))
        self.oldest.add(group, entry)
        end_ms = self.expires_at(entry.message)
        if end_ms:
            self._wait_for(entry, end_ms)
            self.queue.manager.timers.set(self, end_ms)
        if self.queue.policy.overflow == DROP_HEAD:
            self.queue.manager.timers.set(self, 0)

    def count(self, group: Group, entries: list[Entry]) -> None:
        """Claims came back whose payloads are not in memory: how large they are has to be read."""
        if self.bytes is not None and entries:
            self.bytes.of(group).count_waiting(entries)

    def claims_again(self, group: Group, entry: Entry, now_ms: int) -> bool:
        """A claim that came back is to be claimed again; False: it has expired, and was given up instead."""
        if self.bytes is not None:
            self.bytes.of(group).remove(entry)
        if self.has_expired(entry.message, now_ms):
            give_up_entry(group, entry, EXPIRED, now_ms)
            return False
        return True

    def loaded(self, group: Group, now_ms: int) -> None:
        """Something was read for a group: it may be what we wait for."""
        self.on_timer(now_ms)
        if not group.consumers and not group.draining:
            group.forget_loaded()

    # records

    def log_written(self, journal: Journal) -> None:
        """The log was put into the open commit up to its end."""
        if self.bytes is not None:
            self.bytes.write_appended(self.queue, journal)

    def head_written(self, head: int) -> None:
        """The head was put into the open commit: what was given up below it need not be known any more."""
        if self.ahead is not None:
            for group in self.queue.groups.values():
                if group.selection is None:
                    group.pass_to(head)
            self.ahead.forget_before(head, self.queue.name, self.queue.manager.journal)
