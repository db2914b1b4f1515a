"""What comes back to a group: requeued, expired, failed, purged."""

from __future__ import annotations

from heapq import heappush
from typing import TYPE_CHECKING, cast

from config import limits
from queue_manager import backoff, dead_letters, ranking
from queue_manager.delays import Delays
from queue_manager.group_records import forget_attempts
from queue_manager.groups.reading import GroupReading
from queue_manager.model import AVAILABLE, DONE, FAILED, IN_FLIGHT, STALE, Entry
from queue_manager.removal import RangeRemoval

if TYPE_CHECKING:
    from queue_manager.group import Group


class GroupSettling(GroupReading):
    """Claims that end otherwise than by an ack."""

    __slots__ = ()

    def requeue(
        self, entries: list[Entry], now_ms: int, *, failed: bool = False, delay_ms: int | None = None
    ) -> None:
        """Return claims to their original place, or fail them (`failed`, or attempts used up).

        They wait there for `delay_ms`; None: as the retry policy says. Entries that are not in flight (any
        more) are passed over.
        """
        policy = self.queue.policy
        attempts_max = policy.attempts_max
        wait_ms = delay_ms or 0
        keeper = self.queue.keeper
        backs_off = delay_ms is None and policy.retry_initial_ms > 0
        for entry in entries:
            if entry.state != IN_FLIGHT:
                continue
            release_claim(entry)
            bucket = entry.bucket
            entry.state = STALE
            new = Entry(
                entry.message,
                entry.group,
                entry.claim_number,
                bucket,
                entry.attempts,
                AVAILABLE,
                None,
                now_ms,
            )
            if bucket is not None:
                bucket.plain = False
                bucket.entries[entry.claim_number - bucket.first] = new
                self._mark_bucket(bucket)
                holder = entry.consumer.consumer_id if entry.consumer is not None else ""
                self.log_attempt(entry.message.message_id, entry.claimed_at_ms, holder)
            if failed:
                self.fail(new, dead_letters.REJECTED, now_ms)
            elif attempts_max and entry.attempts >= attempts_max:
                self.fail(new, dead_letters.DELIVERY_LIMIT, now_ms)
            else:
                if backs_off:
                    wait_ms = backoff.delay_ms(policy, entry.message.message_id, entry.attempts)
                if wait_ms:
                    self.delay(new, now_ms + wait_ms)
                else:
                    heappush(self.returned, (entry.message.offset, new))
                if keeper is not None:
                    keeper.watch(new.group, new, entry.message.body)
        self.mark_dispatch()

    def settle_sent(self, entries: list[Entry]) -> None:
        """Mark claims of a `no_ack` consumer done: its sink took them."""
        for entry in entries:
            if entry.state != IN_FLIGHT:
                continue
            release_claim(entry)
            entry.state = DONE
            bucket = entry.bucket
            if bucket is not None:
                bucket.open_count -= 1
                entry.group.touch(bucket)
        self.mark_dispatch()

    def give_back(
        self, entries: list[Entry], now_ms: int, *, failed: bool = False, delay_ms: int | None = None
    ) -> None:
        """As `requeue`, asked for by a client."""
        self.requeue(entries, now_ms, failed=failed, delay_ms=delay_ms)

    def delay(self, entry: Entry, due_ms: int) -> None:
        """Have an available entry come back to its place at `due_ms`."""
        if self.delays is None:
            self.delays = Delays(cast("Group", self))
        self.delays.add(entry, due_ms)

    def unclaim(self, entry: Entry, now_ms: int) -> None:
        """Put a claim back as if it had not been made; its attempts are the caller's to set right."""
        release_claim(entry)
        entry.state = STALE
        new = Entry(
            entry.message,
            entry.group,
            entry.claim_number,
            entry.bucket,
            entry.attempts,
            AVAILABLE,
            None,
            now_ms,
        )
        bucket = entry.bucket
        if bucket is not None:
            bucket.plain = False
            bucket.entries[entry.claim_number - bucket.first] = new
            self._mark_bucket(bucket)
        heappush(self.returned, (entry.message.offset, new))
        if self.queue.keeper is not None:
            self.queue.keeper.watch(new.group, new, new.message.body)
        self.mark_dispatch()

    def log_attempt(self, message_id: int, claimed_at_ms: int, consumer_id: str) -> None:
        """Remember an attempt that ended without success."""
        history = self.attempts_log.setdefault(message_id, [])
        history.append((claimed_at_ms, consumer_id))
        if len(history) > limits.ATTEMPTS_KEPT_MAX:
            del history[0]
        self.attempts_dirty.add(message_id)

    def expire(self, now_ms: int) -> int:
        """Return every claim whose lease has ended; give how many claims that ended.

        What a single active consumer holds besides comes back with them when another takes over.
        """
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
                group = cast("Group", self)
                held: list[Entry] = []
                if self.active_consumer is consumer and ranking.pass_on(group):
                    ended = set(expired)
                    held = [entry for entry in consumer.in_flight.values() if entry not in ended]
                expired_count += len(expired) + len(held)
                self.requeue(expired, now_ms)
                if held:
                    self.requeue(held, now_ms, delay_ms=0)  # no fault of theirs
                ranking.lease_ended(group, consumer, now_ms)
                consumer.sink.revoked(consumer, expired + held)
        self.draining = [c for c in self.draining if c.in_flight]
        return expired_count

    def find_claim(self, offset: int) -> Entry | None:
        """The in-flight entry of the message at `offset`, whoever holds it."""
        for consumer in (*self.consumers, *self.draining):
            entry = consumer.in_flight.get(offset)
            if entry is not None:
                return entry
        return None

    def purge_ready(self) -> RangeRemoval | None:
        """Drop everything that waits for a claim; gives what of the log is to be let go of, if anything."""
        queue = self.queue
        end = queue.tail.next_offset
        removal = None
        if queue.durable and self.position < end:
            removal = RangeRemoval(cast("Group", self), self.position, end, self.cursor_sequence)
            if self.selection is not None:
                removal.kept = self.selection.taken.ranges()
        self.position = end
        self.forget_loaded()
        delayed = [] if self.delays is None else self.delays.clear()
        waiting = [] if self.selection is None else self.selection.purge(end)
        placed = [] if self.sticky is None else self.sticky.drop(cast("Group", self))
        for entry in (*[entry for _, entry in self.returned], *delayed, *waiting, *placed):
            if entry.state == AVAILABLE:
                entry.state = DONE
                entry.lease_deadline_ms = 0
                if entry.bucket is not None:
                    entry.bucket.open_count -= 1
                    self._mark_bucket(entry.bucket)
                    forget_attempts(cast("Group", self), entry, queue.manager.journal)
        self.returned = []
        if queue.keeper is not None:
            queue.keeper.purged(cast("Group", self))
        self.mark_dirty()
        self.flushed_at_ms = 0  # with the next commit, before what is purged goes
        return removal

    def fail(self, entry: Entry, reason: str, now_ms: int) -> None:
        """Give an entry up for good: dead-lettered it is done here, else kept with its failed record."""
        bucket = entry.bucket
        if dead_letters.send(entry.group, entry.message, entry.attempts, reason, now_ms):
            entry.state = DONE
            if bucket is not None:
                bucket.open_count -= 1
                self.flushed_at_ms = 0  # with the commit that holds the copy
            return
        self.keep_failed(entry)

    def keep_failed(self, entry: Entry) -> None:
        """Keep an available entry as a failed one."""
        bucket = entry.bucket
        entry.state = FAILED
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
