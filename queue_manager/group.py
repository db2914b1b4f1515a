"""One consumer group of one queue: who may have what, who holds what, what comes back.

A message is claimed straight from the queue's log when a consumer has credit for it; only then does it get a
claim number, an `Entry` and a place in a bucket. What lies in the log beyond `position` costs the
group nothing, however much it is. Claims that come back wait in `returned`, ordered by claim number, so
that they return to their original place before anything newer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush, nsmallest
from typing import TYPE_CHECKING, Final

from config import limits
from queue_manager.bucket import Bucket
from queue_manager.consumer import Consumer
from queue_manager.group_records import forget_attempts
from queue_manager.loads import LogLoad, PayloadLoad
from queue_manager.model import AVAILABLE, DONE, FAILED, IN_FLIGHT, STALE, Entry, Message
from queue_manager.patterns import MATCH_ALL, compile_pattern
from queue_manager.ranges import RangeSet
from queue_manager.removal import RangeRemoval
from queue_manager.retention import release_gone
from storage.layout import NUMBER_BITS, align_claim_number, bucket_capacity

if TYPE_CHECKING:
    from queue_manager.queue import Queue
    from queue_manager.retention import Purge

SCAN_MAX: Final = 16_384  # messages a pattern may look at in one dispatch before others have their turn


class Group:
    """The state of one (group, pattern) pair.

    `position` is the first offset not yet looked at; `cursor_sequence` a metadata-log sequence at or before
    the entry that holds it. `loaded` has been read back from the store: what is kept of the offsets from
    `position` to `ahead_offset`, where reading goes on at `ahead_sequence`. `marks` are the pairs of offset
    and sequence at which loads ended, for the cursor to advance to as the position does.
    """

    __slots__ = (
        "_turn",
        "ahead_offset",
        "ahead_sequence",
        "attempts_dirty",
        "attempts_log",
        "buckets",
        "capacity",
        "claim_base",
        "consumers",
        "cursor_sequence",
        "dirty",
        "dirty_buckets",
        "draining",
        "failed_count",
        "failed_offsets",
        "flushed_at_ms",
        "group_id",
        "loaded",
        "loaded_next",
        "loading",
        "marks",
        "matches",
        "name",
        "next_claim",
        "on_loaded",
        "pattern",
        "position",
        "purges",
        "queue",
        "redelivered_count",
        "released",
        "returned",
        "spec_written",
        "storage_id",
    )

    def __init__(self, queue: Queue, name: str, pattern: str, position: int, cursor_sequence: int) -> None:
        self.queue = queue
        self.name = name  # "" is the default group
        self.pattern = pattern
        self.matches: Callable[[str], bool] | None = (
            None if pattern == MATCH_ALL else compile_pattern(pattern)
        )
        self.group_id = name if pattern == MATCH_ALL else f"{name}@{pattern}"
        self.storage_id = f"{queue.name}\x1f{self.group_id}" if self.group_id else queue.name
        self.position = position
        self.cursor_sequence = cursor_sequence
        self.next_claim = 0
        self.capacity = 10**queue.policy.bucket_size
        self.claim_base = queue.policy.bucket_size << 60
        self.buckets: dict[int, Bucket] = {}
        self.consumers: list[Consumer] = []
        self.draining: list[Consumer] = []  # cancelled, or pulling one by one; they may hold claims
        self._turn = 0
        self.returned: list[tuple[int, Entry]] = []
        self.loaded: list[Message] = []
        self.loaded_next = 0
        self.ahead_offset = 0
        self.ahead_sequence = 0
        self.marks: deque[tuple[int, int]] = deque()
        self.loading = False
        self.on_loaded: list[Callable[[int], None]] = []
        self.dirty = False
        self.dirty_buckets: list[Bucket] = []
        self.attempts_log: dict[int, list[tuple[int, str]]] = {}
        self.attempts_dirty: set[int] = set()
        self.flushed_at_ms = 0
        self.purges: deque[Purge] = deque()
        self.released = RangeSet()
        self.failed_count = 0
        self.failed_offsets = RangeSet()
        self.redelivered_count = 0
        self.spec_written = False

    def resize_buckets(self) -> None:
        """Give out claim numbers for buckets of the size the queue's policy now says (R-24)."""
        exponent = self.queue.policy.bucket_size
        if exponent << NUMBER_BITS != self.claim_base:
            self.next_claim = align_claim_number(self.next_claim, exponent)
            self.capacity = bucket_capacity(exponent)
            self.claim_base = exponent << NUMBER_BITS
            self.mark_dirty()

    # counts

    def ready_count(self) -> int:
        """Messages waiting for a claim (with a pattern: at most so many)."""
        return self.queue.tail.next_offset - self.position + len(self.returned)

    def in_flight_count(self) -> int:
        """Messages claimed and not settled."""
        return sum(len(c.in_flight) for c in self.consumers) + sum(len(c.in_flight) for c in self.draining)

    def floor(self) -> int:
        """The lowest offset this group has not done with."""
        floor = self.position
        for bucket in self.buckets.values():
            for entry in bucket.entries:
                if entry is not None and entry.state in (AVAILABLE, IN_FLIGHT):
                    floor = min(floor, entry.message.offset)
        return floor

    # consumers

    def add(self, consumer: Consumer) -> None:
        """Let a consumer take part; nothing is delivered before the next dispatch."""
        self.consumers.append(consumer)
        self.mark_dispatch()

    def cancel(self, consumer: Consumer) -> None:
        """Deliver nothing more to the consumer; what it holds stays with it."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self.draining.append(consumer)
            self._forget(consumer)

    def remove(self, consumer: Consumer, now_ms: int) -> None:
        """Forget the consumer; what it holds returns at once."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        elif consumer in self.draining:
            self.draining.remove(consumer)
        self._forget(consumer)
        self.requeue(list(consumer.in_flight.values()), now_ms)

    def _forget(self, consumer: Consumer) -> None:
        consumer.active = False
        if consumer.pool is not None and consumer in consumer.pool.consumers:
            consumer.pool.consumers.remove(consumer)
        if not self.consumers:
            self.forget_loaded()

    def mark_dispatch(self) -> None:
        """Have the manager dispatch this group before it returns to its caller."""
        self.queue.manager.dispatchable[self] = None

    # claiming

    def dispatch(self, now_ms: int) -> None:
        """Hand out messages while there are both messages and credit, in even shares, in turn."""
        while self.consumers:
            waiting = len(self.returned) or self._fresh_at_hand()
            if not waiting:
                return
            turn = self._turn % len(self.consumers)
            in_turn = self.consumers[turn:] + self.consumers[:turn] if turn else self.consumers
            takers = [c for c in in_turn if c.credit() > 0]
            if not takers:
                return
            share = max(1, waiting // len(takers))
            for consumer in takers:
                count = min(share, consumer.credit())
                if count <= 0:
                    continue
                if not self.claim(consumer, count, now_ms):
                    break
                if len(self.consumers) > 1 and consumer in self.consumers:
                    self._turn = self.consumers.index(consumer) + 1
            else:
                continue
            if not self._fresh_at_hand() or (self.returned and self.returned[0][1].message.body is None):
                return

    def claim(self, consumer: Consumer, count: int, now_ms: int) -> int:
        """Claim and deliver up to `count` messages; give how many it were."""
        if self.returned:
            entries = self._claim_returned(consumer, count, now_ms)
            if entries:
                consumer.sink.deliver(consumer, [entry.message for entry in entries], entries)
            return len(entries)
        messages = self._take(count)
        if not messages:
            return 0
        entries_or_none = self._claim_fresh(messages, consumer, now_ms)
        consumer.sink.deliver(consumer, messages, entries_or_none)
        return len(messages)

    def _fresh_at_hand(self) -> int:
        """Messages beyond `position` that are in memory; asks for more from the store if there are none."""
        tail = self.queue.tail
        position = self.position
        if position >= tail.first_offset:
            if self.loaded:
                self.forget_loaded()
            return tail.next_offset - position
        at_hand = len(self.loaded) - self.loaded_next
        if at_hand < limits.LOADED_LOW_WATER and self.ahead_offset < tail.first_offset:
            self._request_log()
        return at_hand

    def _take(self, count: int) -> list[Message]:
        """The next `count` messages this group wants, `position` moved past them."""
        if self.matches is None:
            return self._take_unfiltered(count)
        messages: list[Message] = []
        scanned = 0
        matches = self.matches
        routing_key = self.queue.routing_key
        while len(messages) < count:
            want = count - len(messages)
            part = self._take_unfiltered(want)
            if not part:
                break
            wanted = [m for m in part if matches(routing_key(m.template.topic))]
            if len(wanted) < len(part):
                self._skip([m for m in part if not matches(routing_key(m.template.topic))])
            messages += wanted
            scanned += len(part)
            if scanned >= SCAN_MAX:
                self.mark_dispatch()
                break
        if scanned > len(messages):
            self.mark_dirty()
        return messages

    def _skip(self, messages: list[Message]) -> None:
        if self.queue.durable:
            skipped = self.queue.manager.skipped.setdefault(self, [])
            skipped += [(m.offset, m.message_id, m.template.shared) for m in messages]

    def _take_unfiltered(self, count: int) -> list[Message]:
        tail = self.queue.tail
        position = self.position
        if position >= tail.first_offset:
            if self.loaded:
                self.forget_loaded()
            messages = tail.slice(position, count)
            self.position = position + len(messages)
            return messages
        start = self.loaded_next
        messages = self.loaded[start : start + count]
        if not messages:
            self._request_log()
            return messages
        self.loaded_next = start + len(messages)
        self.position = messages[-1].offset + 1
        if self.loaded_next == len(self.loaded):
            self.loaded = []
            self.loaded_next = 0
            self.position = max(self.position, self.ahead_offset)
        return messages

    def _claim_fresh(self, messages: list[Message], consumer: Consumer, now_ms: int) -> list[Entry] | None:
        durable = self.queue.durable
        if consumer.no_ack and not durable:
            return None
        state = DONE if consumer.no_ack else IN_FLIGHT
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
            return None
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
        while returned and len(entries) < count and returned[0][1].message.body is not None:
            number, entry = heappop(returned)
            if entry.state != AVAILABLE:
                continue
            entry.attempts = min(entry.attempts + 1, limits.ATTEMPTS_MAX)
            entry.claimed_at_ms = now_ms
            entry.lease_deadline_ms = 0
            entry.consumer = consumer
            bucket = entry.bucket
            if bucket is not None:
                self._mark_bucket(bucket)
            if consumer.no_ack:
                entry.state = DONE
                if bucket is not None:
                    bucket.open_count -= 1
            else:
                entry.state = IN_FLIGHT
                consumer.in_flight[entry.message.offset] = entry
                consumer.bytes_in_flight += len(entry.message.body or b"")
                if consumer.pool is not None:
                    consumer.pool.in_flight += 1
            entries.append(entry)
        self.redelivered_count += len(entries)
        return entries

    def _bucket(self, claim_number: int) -> Bucket:
        first = claim_number - claim_number % self.capacity
        bucket = self.buckets.get(first)
        if bucket is None:
            bucket = self.buckets[first] = Bucket(self, first, self.capacity, self.claim_base)
            # claim numbers skipped at a change of bucket size
            bucket.entries += [None] * (claim_number - first)
        return bucket

    # settling

    def requeue(self, entries: list[Entry], now_ms: int, *, failed: bool = False) -> None:
        """Return claims to their original place, or fail them (`failed`, or attempts used up).

        Entries that are not in flight (any more) are passed over.
        """
        attempts_max = self.queue.policy.attempts_max
        for entry in entries:
            if entry.state != IN_FLIGHT:
                continue
            release_claim(entry)
            bucket = entry.bucket
            entry.state = STALE
            new = Entry(
                entry.message, self, entry.claim_number, bucket, entry.attempts, AVAILABLE, None, now_ms
            )
            if bucket is not None:
                bucket.plain = False
                bucket.entries[entry.claim_number - bucket.first] = new
                self._mark_bucket(bucket)
                holder = entry.consumer.consumer_id if entry.consumer is not None else ""
                self.log_attempt(entry.message.message_id, entry.claimed_at_ms, holder)
            if failed or (attempts_max and entry.attempts >= attempts_max):
                self.fail(new)
            else:
                heappush(self.returned, (entry.claim_number, new))
        self.mark_dispatch()

    def log_attempt(self, message_id: int, claimed_at_ms: int, consumer_id: str) -> None:
        """Remember an attempt that ended without success."""
        history = self.attempts_log.setdefault(message_id, [])
        history.append((claimed_at_ms, consumer_id))
        if len(history) > limits.ATTEMPTS_KEPT_MAX:
            del history[0]
        self.attempts_dirty.add(message_id)

    def expire(self, now_ms: int) -> int:
        """Return every claim whose lease has ended; give how many."""
        expired_count = 0
        for consumer in (*self.consumers, *self.draining):
            expired = []
            lease_ms = consumer.lease_ms
            extended = False
            for entry in consumer.in_flight.values():
                if entry.lease_deadline_ms:
                    if entry.lease_deadline_ms <= now_ms:
                        expired.append(entry)
                    else:
                        extended = True
                elif entry.claimed_at_ms + lease_ms <= now_ms:
                    expired.append(entry)
                elif not consumer.extended:
                    break  # claims are in order of time
            consumer.extended = extended
            if expired:
                expired_count += len(expired)
                self.requeue(expired, now_ms)
                consumer.sink.revoked(consumer, expired)
        self.draining = [c for c in self.draining if c.in_flight]
        return expired_count

    def find_claim(self, offset: int) -> Entry | None:
        """The in-flight entry of the message at `offset`, whoever holds it."""
        for consumer in (*self.consumers, *self.draining):
            entry = consumer.in_flight.get(offset)
            if entry is not None:
                return entry
        return None

    def purge_ready(self) -> None:
        """Drop everything that waits for a claim."""
        queue = self.queue
        end = queue.tail.next_offset
        if queue.durable and self.position < end:
            removal = RangeRemoval(self, self.position, end, self.cursor_sequence)
            queue.manager.removals.append(removal)
        self.position = end
        self.forget_loaded()
        for _, entry in self.returned:
            if entry.state == AVAILABLE:
                entry.state = DONE
                if entry.bucket is not None:
                    entry.bucket.open_count -= 1
                    self._mark_bucket(entry.bucket)
                    forget_attempts(self, entry, queue.manager.journal)
        self.returned = []
        self.mark_dirty()
        self.flushed_at_ms = 0  # with the next commit, before what is purged goes

    def fail(self, entry: Entry) -> None:
        """Count an entry as failed for good; its payload is kept with the failed record."""
        entry.state = FAILED
        bucket = entry.bucket
        if bucket is None:
            return
        bucket.open_count -= 1
        self.failed_count += 1
        queue = self.queue
        offset = entry.message.offset
        self.failed_offsets.add(offset, offset + 1)
        if offset < queue.head_offset:
            return  # nobody kept it for this group
        others = [group for group in queue.groups.values() if group is not self]
        if others:
            self.released.add(offset, offset + 1)
        if all(other.released.contains(offset) for other in others):
            queue.released.add(offset, offset + 1)
            queue.manager.trimmable[queue] = None

    # reading back

    def _request_log(self) -> None:
        if self.loading:
            return
        self.loading = True
        offset = max(self.position, self.ahead_offset)
        sequence = max(self.cursor_sequence, self.ahead_sequence)
        self.queue.manager.loads.append(LogLoad(self, sequence, offset))

    def forget_loaded(self) -> None:
        """Let go of what was read ahead; it is read again when it is wanted."""
        self.loaded = []
        self.loaded_next = 0
        self.ahead_offset = 0
        self.ahead_sequence = 0

    def advance_cursor(self) -> None:
        """Move `cursor_sequence` up to the position."""
        sequence = self.queue.sequence_at(self.position) or 0
        marks = self.marks
        while marks and marks[0][0] <= self.position:
            sequence = max(sequence, marks.popleft()[1])
        self.cursor_sequence = max(self.cursor_sequence, sequence)

    def _request_payloads(self) -> None:
        if self.loading:
            return
        self.loading = True
        entries = [entry for _, entry in nsmallest(limits.LOAD_MESSAGES_MAX, self.returned)]
        self.queue.manager.loads.append(
            PayloadLoad(self, [e.message for e in entries if e.message.body is None])
        )

    def log_loaded(self, load: LogLoad, rows: list[Message], next_offset: int, sequence: int) -> None:
        """Take what a LogLoad read: messages below `next_offset`; the rest continues at `sequence`."""
        self.loading = False
        self.mark_dispatch()
        if load.offset > max(self.position, self.ahead_offset):
            return  # what was read before it was forgotten meanwhile
        if self.loaded_next:
            del self.loaded[: self.loaded_next]
            self.loaded_next = 0
        start = load.offset
        for row in rows:
            release_gone(self, start, row.offset)
            start = row.offset + 1
        release_gone(self, start, next_offset)
        self.loaded += [row for row in rows if row.offset >= self.position]
        self.ahead_offset = next_offset
        self.ahead_sequence = sequence
        self.marks.append((next_offset, sequence))
        if not self.loaded and next_offset > self.position:
            # nothing of that stretch is kept any more
            self.position = next_offset
            self.mark_dirty()

    def payloads_loaded(self, load: PayloadLoad, bodies: dict[int, bytes], end_id: int) -> None:
        """Take what a PayloadLoad read: all IDs below `end_id`; what is missing there is done with."""
        self.loading = False
        gone: set[int] = set()
        for message in load.messages:
            if message.message_id < end_id:
                message.body = bodies.get(message.message_id)
                if message.body is None:
                    gone.add(message.message_id)
        if gone:
            for _, entry in self.returned:
                if entry.message.message_id in gone and entry.state == AVAILABLE:
                    entry.state = DONE
                    if entry.bucket is not None:
                        entry.bucket.open_count -= 1
                        self._mark_bucket(entry.bucket)
            self.returned = [item for item in self.returned if item[1].state == AVAILABLE]
            heapify(self.returned)
        self.mark_dispatch()

    # what is to be written

    def mark_dirty(self) -> None:
        """Have position and claim counter written with one of the next commits, if the queue is kept."""
        if not self.dirty and self.queue.durable and not self.queue.deleted:
            self.dirty = True
            self.queue.manager.dirty_groups[self] = None

    def _mark_bucket(self, bucket: Bucket) -> None:
        if not bucket.dirty:
            bucket.dirty = True
            self.dirty_buckets.append(bucket)
            if not self.dirty:
                self.mark_dirty()


def release_claim(entry: Entry) -> None:
    """Take an in-flight entry out of its holder's accounts."""
    consumer = entry.consumer
    if consumer is None or consumer.in_flight.pop(entry.message.offset, None) is None:
        return
    consumer.bytes_in_flight -= len(entry.message.body or b"")
    pool = consumer.pool
    if pool is not None:
        pool.in_flight -= 1
        for other in pool.consumers:
            other.group.mark_dispatch()
