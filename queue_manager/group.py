"""One consumer group of one queue: who may have what, who holds what, what comes back.

A message is claimed straight from the queue's log when a consumer has credit for it; only then does it get a
claim number, an `Entry` and a place in a bucket. What lies in the log beyond `position` costs the
group nothing, however much it is. Claims that come back wait in `returned`, ordered by offset, so
that they return to their original place before anything newer.
"""

from __future__ import annotations

from heapq import heappop
from typing import TYPE_CHECKING

from config import limits
from queue_manager import group_records, ranking
from queue_manager.bucket import Bucket
from queue_manager.consumer import Consumer
from queue_manager.groups.settling import GroupSettling
from queue_manager.model import AVAILABLE, DONE, IN_FLIGHT, Entry, Message
from queue_manager.selection import select

if TYPE_CHECKING:
    from queue_manager.journal import Journal


class Group(GroupSettling):
    """One (group, pattern) pair: who consumes in it and who gets what."""

    __slots__ = ()

    def add(self, consumer: Consumer) -> None:
        """Let a consumer take part; nothing is delivered before the next dispatch."""
        self._join_selection(consumer)
        self.consumers.append(consumer)
        if self.sticky is not None:
            self.sticky.join(consumer)
        self.is_ranked = self.is_ranked or consumer.priority != 0 or self.queue.policy.single_active
        self.queue.manager.consuming[self] = None
        self.mark_dispatch()

    def _join_selection(self, consumer: Consumer) -> None:
        if consumer.filter is not None or self.selection is not None:
            select(self).join(consumer)

    def cancel(self, consumer: Consumer) -> None:
        """Deliver nothing more to the consumer; what it holds stays with it."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self.draining.append(consumer)
            self._forget(consumer)
            if self.sticky is not None:
                self.sticky.leave(consumer)
            if not self.queue.policy.single_active:  # there what it holds had better come first
                self.mark_dispatch()

    def remove(self, consumer: Consumer, now_ms: int) -> None:
        """Forget the consumer; what it holds returns at once."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        elif consumer in self.draining:
            self.draining.remove(consumer)
        self._forget(consumer)
        self.requeue(list(consumer.in_flight.values()), now_ms, delay_ms=0)
        if self.sticky is not None:
            self.sticky.leave(consumer)
        self.mark_dispatch()  # others may have stood back for it

    def _forget(self, consumer: Consumer) -> None:
        consumer.active = False
        if consumer.late_held >= 0:
            self.queue.manager.timers.forget(consumer)
        if self.selection is not None:
            self.selection.leave(consumer)
        if consumer.pool is not None and consumer in consumer.pool.consumers:
            consumer.pool.consumers.remove(consumer)
        if self.active_consumer is consumer:
            self.active_consumer = None
        if not self.consumers:
            self.is_ranked = False
            self.forget_loaded()

    def parts(self) -> list[Group]:
        """The groups it consists of: more than one if its queue has priorities."""
        return [self]

    def pull(self, consumer: Consumer, count: int, now_ms: int) -> int | None:
        """As `claim`; None: what there is has to be read back first."""
        return self.claim(consumer, count, now_ms) or (None if self.loading else 0)

    def write(self, journal: Journal, now_ms: int) -> None:
        """Put everything that changed since the last call into `journal`."""
        group_records.flush(self, journal, now_ms)

    def dispatch(self, now_ms: int) -> None:
        """Hand out messages while there are both messages and credit, in even shares, in turn."""
        if self.selection is not None:
            self.selection.dispatch(now_ms)
            return
        if self.sticky is not None:
            self.sticky.dispatch(now_ms)
            return
        while self.consumers:
            waiting = len(self.returned) or self._fresh_at_hand()
            if not waiting or (self.delays is not None and not self.returned and self.delays.is_full()):
                return
            turn = self._turn % len(self.consumers)
            in_turn = self.consumers[turn:] + self.consumers[:turn] if turn else self.consumers
            takers = [c for c in in_turn if c.credit() > 0]
            if self.is_ranked:
                takers = ranking.entitled(self, takers)
            if not takers:
                return
            share = max(1, waiting // len(takers))
            for consumer in takers:
                count = min(share, consumer.credit())
                if count <= 0:
                    continue
                if not self._claim_in_order(consumer, count, now_ms):
                    break
                if len(self.consumers) > 1 and consumer in self.consumers:
                    self._turn = self.consumers.index(consumer) + 1
            else:
                continue
            if not self._fresh_at_hand() or (self.returned and self.returned[0][1].message.body is None):
                return

    def claim(self, consumer: Consumer, count: int, now_ms: int) -> int:
        """Claim and deliver up to `count` messages; give how many it were."""
        if self.selection is not None:
            return self.selection.claim(consumer, count, now_ms)
        if self.sticky is not None:
            return self.sticky.pull(consumer, count, now_ms)
        return self._claim_in_order(consumer, count, now_ms)

    def _claim_in_order(self, consumer: Consumer, count: int, now_ms: int) -> int:
        while self.returned:
            entries = self._claim_returned(consumer, count, now_ms)
            if entries:
                self.hand_out(consumer, entries)
            if entries or self.loading:
                return len(entries)
        messages = self._take(count)
        if self.queue.keeper is not None:
            messages = self.queue.keeper.choose(self, messages, now_ms)
        if not messages:
            return 0
        self.hand_out_fresh(consumer, messages, now_ms)
        return len(messages)

    def hand_out_fresh(self, consumer: Consumer, messages: list[Message], now_ms: int) -> None:
        """Claim and deliver messages just taken from the log, in order of offsets.

        To a `no_ack` consumer they are delivered first: what its sink did not take is claimed as anybody
        else's would be, what it took is claimed done.
        """
        if not consumer.no_ack:
            entries = self._claim_fresh(messages, consumer, IN_FLIGHT, now_ms)
            consumer.sink.deliver(consumer, messages, entries)
            return
        state = IN_FLIGHT
        try:
            if consumer.sink.deliver(consumer, messages, None):
                state = DONE
        finally:
            entries = self._claim_fresh(messages, consumer, state, now_ms)
            if state == IN_FLIGHT and not consumer.active:
                self.requeue(entries, now_ms, delay_ms=0)

    def hand_out(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Deliver claims; those of a `no_ack` consumer are done once its sink took them."""
        taken = consumer.sink.deliver(consumer, [entry.message for entry in entries], entries)
        if taken and consumer.no_ack:
            self.settle_sent(entries)

    def _claim_fresh(
        self, messages: list[Message], consumer: Consumer, state: int, now_ms: int
    ) -> list[Entry]:
        """First claims, in order of offsets: IN_FLIGHT, or DONE, which leaves no trace but in buckets."""
        durable = self.queue.durable
        if state == DONE and not durable:
            return []
        claim = self.next_claim
        count = len(messages)
        self.next_claim = claim + count
        if durable:
            entries: list[Entry] = []
            start = 0
            while start < count:
                bucket = self._bucket(claim + start)
                stop = start + bucket.capacity - len(bucket.entries)
                part = [
                    Entry(message, self, number, bucket, 1, state, consumer, now_ms)
                    for number, message in enumerate(messages[start:stop], claim + start)
                ]
                bucket.entries += part
                bucket.add_run(messages[start:stop])
                if state == IN_FLIGHT:
                    bucket.open_count += len(part)
                self._mark_bucket(bucket)
                entries += part
                start = stop
        else:
            entries = [
                Entry(message, self, number, None, 1, state, consumer, now_ms)
                for number, message in enumerate(messages, claim)
            ]
        if state == DONE:
            return entries
        consumer.in_flight.update(zip([message.offset for message in messages], entries, strict=True))
        consumer.bytes_in_flight += sum([len(message.body or b"") for message in messages])
        if consumer.pool is not None:
            consumer.pool.in_flight += count
        return entries

    def _claim_returned(self, consumer: Consumer, count: int, now_ms: int) -> list[Entry]:
        returned = self.returned
        if returned[0][1].message.body is None:
            self._request_payloads()
            return []
        entries: list[Entry] = []
        keeper = self.queue.keeper
        while returned and len(entries) < count and returned[0][1].message.body is not None:
            if entries and (returned[0][1].attempts > 0) != (entries[0].attempts > 1):
                break  # a redriven message is at its first attempt again
            _, entry = heappop(returned)
            if entry.state != AVAILABLE:
                continue
            if keeper is not None and not keeper.claims_again(self, entry, now_ms):
                continue
            self.claim_again(entry, consumer, now_ms)
            entries.append(entry)
        return entries

    def claim_again(self, entry: Entry, consumer: Consumer, now_ms: int) -> None:
        """Claim one that came back."""
        entry.attempts = min(entry.attempts + 1, limits.ATTEMPTS_MAX)
        entry.claimed_at_ms = now_ms
        entry.lease_deadline_ms = 0
        entry.consumer = consumer
        bucket = entry.bucket
        if bucket is not None:
            self._mark_bucket(bucket)
        entry.state = IN_FLIGHT
        consumer.in_flight[entry.message.offset] = entry
        consumer.bytes_in_flight += len(entry.message.body or b"")
        if consumer.pool is not None:
            consumer.pool.in_flight += 1
        if entry.attempts > 1:
            self.redelivered_count += 1

    def claim_number_for(self, message: Message, now_ms: int) -> Entry:
        """An available entry for a message that nobody claimed; of a durable queue."""
        number = self.next_claim
        self.next_claim = number + 1
        bucket = self._bucket(number) if self.queue.durable else None
        entry = Entry(message, self, number, bucket, 0, AVAILABLE, None, now_ms)
        if bucket is not None:
            bucket.plain = False
            bucket.entries.append(entry)
            bucket.open_count += 1
            self._mark_bucket(bucket)
        return entry

    def _bucket(self, claim_number: int) -> Bucket:
        first = claim_number - claim_number % self.capacity
        bucket = self.buckets.get(first)
        if bucket is None:
            bucket = self.buckets[first] = Bucket(self, first, self.capacity, self.claim_base)
            # claim numbers skipped at a change of bucket size
            bucket.entries += [None] * (claim_number - first)
        return bucket
