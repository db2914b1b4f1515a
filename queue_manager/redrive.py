"""Giving failed messages and dead letters another chance, in steps that a driver takes.

A failed message returns to its group under its own claim number, attempts at 0. A dead letter is appended to
the queue it came from and done in the dead-letter queue, in one commit: a crash finds either or, never both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from heapq import heappush
from typing import TYPE_CHECKING, Final

from config import limits
from queue_manager import dead_letters, recovery
from queue_manager.bucket import Bucket
from queue_manager.consumer import Consumer
from queue_manager.model import AVAILABLE, FAILED, IN_FLIGHT, STALE, Entry, Message
from storage import layout
from storage.envelope import EnvelopeTemplate, TemplateCache, read_head
from storage.records import attempts, failed

if TYPE_CHECKING:
    from queue_manager.group import Group
    from queue_manager.manager import QueueManager
    from queue_manager.queue import Queue

CLAIM_LEASE_MS: Final = limits.DURATION_MS_MAX  # the driver ends its claims itself


class Origin:
    """What a dead letter was before it died: queue, topic, exchange, properties to publish again."""

    __slots__ = ("exchange", "properties", "properties_kind", "queue", "topic")

    def __init__(
        self, queue: str, topic: str, exchange: str, properties_kind: int, properties: bytes
    ) -> None:
        self.queue = queue
        self.topic = topic
        self.exchange = exchange
        self.properties_kind = properties_kind
        self.properties = properties


OriginOf = Callable[[EnvelopeTemplate], Origin | None]
"""Reads what a `Stamp` wrote; None for what is no dead letter."""


def no_origin(template: EnvelopeTemplate) -> Origin | None:
    """For queue managers without a front-end."""
    return None


class FailedRedrive:
    """The failed messages of a group, back into it.

    Made before a barrier: only buckets that were closed then have records that nobody changes meanwhile.
    `offsets` None: all of them. After the barrier the driver reads the failed records, calls `take_closed`
    with each that `wants`, and then, for the newest ones, `take_open`. What fails again is not taken twice.
    """

    __slots__ = ("_closed_below", "_open", "_taken", "_templates", "group", "left", "offsets")

    def __init__(self, group: Group, limit: int, offsets: Collection[int] | None) -> None:
        self.group = group
        self.left = limit
        self.offsets = None if offsets is None else set(offsets)
        self._taken: set[int] = set()
        self._open = {bucket.bucket_id for bucket in group.buckets.values()}
        self._closed_below = group.next_claim - group.next_claim % group.capacity
        self._templates = TemplateCache()

    def take_open(self, now_ms: int, count: int) -> int:
        """Redrive up to `count` messages of the buckets in memory; give how many it were."""
        taken = 0
        for first in sorted(self.group.buckets):
            taken += self._take(self.group.buckets[first], min(count - taken, self.left), now_ms)
            if taken >= count or not self.left:
                break
        return taken

    def wants(self, bucket_id: int, value: bytes) -> bool:
        """Whether the bucket of this failed record is closed and has messages to redrive."""
        number = bucket_id & layout.NUMBER_MASK
        if not self.left or bucket_id in self._open or number >= self._closed_below:
            return False
        if number in self.group.buckets:
            return False  # open again, by this redrive
        return self.offsets is None or any(
            read_head(message.metadata)[1] in self.offsets for message in failed.decode(value)
        )

    def take_closed(self, bucket_id: int, value: bytes, done_value: bytes | None, now_ms: int) -> int:
        """Open the bucket again and redrive what is wanted of it; give how many messages it were."""
        group = self.group
        kept = [purge for purge in group.purges if purge.bucket_id != bucket_id]
        if len(kept) < len(group.purges):
            group.purges.clear()
            group.purges.extend(kept)
        recovery.restore_bucket(group, bucket_id, None, done_value, value, self._templates, now_ms)
        return self._take(group.buckets[bucket_id & layout.NUMBER_MASK], self.left, now_ms)

    def _take(self, bucket: Bucket, count: int, now_ms: int) -> int:
        taken = 0
        unread: list[Entry] = []
        for index, entry in enumerate(bucket.entries):
            if taken >= count:
                break
            if entry is None or entry.state != FAILED:
                continue
            offset = entry.message.offset
            if offset in self._taken or (self.offsets is not None and offset not in self.offsets):
                continue
            bucket.entries[index] = new = revive(self.group, bucket, entry, now_ms)
            if new.message.body is None:
                unread.append(new)
            self._taken.add(offset)
            taken += 1
        keeper = self.group.queue.keeper
        if keeper is not None:
            keeper.count(self.group, unread)
        if taken:
            bucket.plain = False
            self.group.touch(bucket)
            self.group.flush_soon()
            self.left -= taken
        return taken


def revive(group: Group, bucket: Bucket, entry: Entry, now_ms: int) -> Entry:
    """Make a failed entry available again, as if it had never been tried; give the new one."""
    new = unfail(group, bucket, entry, now_ms)
    heappush(group.returned, (entry.message.offset, new))
    if group.queue.keeper is not None:
        group.queue.keeper.watch(group, new, entry.message.body)
    group.mark_dispatch()
    return new


def unfail(group: Group, bucket: Bucket, entry: Entry, now_ms: int) -> Entry:
    """As `revive`; but the new entry is not to be claimed yet."""
    message = entry.message
    offset = message.offset
    queue = group.queue
    new = Entry(message, group, entry.claim_number, bucket, 0, AVAILABLE, None, now_ms)
    entry.state = STALE
    bucket.open_count += 1
    group.failed_count -= 1
    if offset >= queue.head_offset:
        # the log stands for its payload again; below the head this group goes on keeping it by itself
        group.failed_offsets.discard(offset, offset + 1)
        group.released.discard(offset, offset + 1)
        queue.keep_again(offset, offset + 1)
    group.attempts_log.pop(message.message_id, None)
    group.attempts_dirty.discard(message.message_id)
    queue.manager.journal.delete(attempts.key(group.storage_id, message.message_id))
    return new


class DeadLetterRedrive:
    """The messages of a dead-letter queue's default group, back to the queues they came from.

    `target` None: each to the queue it came from. What cannot go back (no such queue, or it is full) keeps
    its place; so does what arrives after the beginning. `end` must be called.
    """

    __slots__ = ("_end_offsets", "_held", "_taken", "_target", "consumer", "left", "manager", "queue")

    def __init__(
        self,
        manager: QueueManager,
        queue: Queue,
        target: Queue | None,
        limit: int,
        group: Group | None = None,
    ) -> None:
        self.manager = manager
        self.queue = queue
        self.left = limit
        self._target = target
        self._end_offsets = {part: part.tail.next_offset for part in queue.parts()}
        self._held: list[Entry] = []
        self._taken: list[tuple[Message, Entry]] = []
        self.consumer = manager.puller(queue, self, "redrive", lease_ms=CLAIM_LEASE_MS, group=group)

    def step(self, count: int, now_ms: int) -> int | None:
        """Redrive up to `count` messages in the open commit; give how many of them were looked at or None.

        0: there are no more; None: they are being read back, `consumer.group.on_loaded` calls.
        """
        group = self.consumer.group
        count = min(count, self.left)
        if (
            self.queue.deleted
            or group.removed
            or count <= 0
            or len(self._held) >= limits.REDRIVE_HELD_MESSAGES_MAX
        ):
            return 0
        if self.consumer not in group.draining:
            group.draining.append(self.consumer)
        if not (claimed := group.pull(self.consumer, count, now_ms)):
            return claimed
        taken, self._taken = self._taken, []
        done = []
        beyond = False
        for message, entry in taken:
            if message.offset >= self._end_offsets[entry.group.queue]:
                beyond = True
                self._held.append(entry)
            elif self.append(message, now_ms):
                done.append(entry)
            else:
                self._held.append(entry)
        self.manager.ack(done, now_ms)
        for part in {entry.group for entry in done}:
            part.flush_soon()  # with the commit that holds the copies
        self.left -= len(done)
        return 0 if beyond else len(taken)

    def append(self, message: Message, now_ms: int) -> bool:
        """Put a copy where the message is to go; False if it cannot go there."""
        template = message.template
        origin = self.manager.origin_of(template)
        target = self._target
        if target is None:
            target = None if origin is None else self.manager.named(origin.queue)
        body = message.body
        if (
            target is None
            or target is self.queue
            or body is None
            or dead_letters.why_not(target, len(body), now_ms)
        ):
            return False
        if origin is None:
            origin = Origin(target.name, target.name, "", template.properties_kind, template.properties)
        copy = EnvelopeTemplate(
            origin.topic,
            origin.properties_kind,
            origin.properties,
            persistent=template.persistent,
            priority=template.priority,
            exchange=origin.exchange,
        )
        self.manager.append([target], copy, [body], len(body), int(target.durable), now_ms)
        return True

    def end(self, now_ms: int) -> None:
        """Put back, untried, what was claimed and did not leave."""
        for entry in self._held:
            if entry.state == IN_FLIGHT:
                entry.attempts -= 1
                entry.group.unclaim(entry, now_ms)
        self._held = []
        if not self.queue.deleted:
            self.manager.unsubscribe(self.consumer, now_ms)

    # the sink

    def deliver(self, consumer: Consumer, messages: list[Message], entries: list[Entry] | None) -> bool:
        """See `queue_manager.consumer.Sink`."""
        assert entries is not None
        self._taken += zip(messages, entries, strict=True)
        return True

    def revoked(self, consumer: Consumer, entries: list[Entry]) -> None:
        """See `queue_manager.consumer.Sink`."""

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """See `queue_manager.consumer.Sink`."""
