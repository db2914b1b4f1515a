"""Giving failed messages and dead letters another chance, in steps that a driver takes.

A failed message returns to its group under its own claim number, attempts at 0. A dead letter is appended to
the queue it came from and done in the dead-letter queue, in one commit: a crash finds either or, never both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import InitVar, dataclass, field
from typing import Final

from config import limits
from queue_manager.address import local_name, sibling
from queue_manager.claims.claim import FAILED, IN_FLIGHT, Bucket, Claim, Consumer
from queue_manager.cursor.cursor import Cursor
from queue_manager.group.group import Group
from queue_manager.log.queue_log import QueueLog
from queue_manager.manager import QueueManager
from queue_manager.model import Message
from queue_manager.queue.queue import Queue
from queue_manager.recovery.buckets import StoredBucket, restore_bucket
from queue_manager.routing.route import ForeignQueue
from queue_manager.rules.dead_letters import Origin
from storage import layout
from storage.envelope import EnvelopeTemplate, TemplateCache, read_head
from storage.records import failed

CLAIM_LEASE_MS: Final = limits.DURATION_MS_MAX  # the driver ends its claims itself


class FailedRedrive:
    """The failed messages of a cursor, back into it.

    Made before a barrier: only buckets that were closed then have records that nothing changes meanwhile.
    `offsets` None: all of them. After the barrier the driver reads the failed records, calls `take_closed`
    with each that `wants`, and then, for the newest ones, `take_open`. What fails again is not taken twice.
    """

    __slots__ = ("_closed_below", "_open", "_taken", "_templates", "cursor", "left", "offsets")

    def __init__(self, cursor: Cursor, limit: int, offsets: Collection[int] | None) -> None:
        self.cursor = cursor
        self.left = limit
        self.offsets = None if offsets is None else set(offsets)
        claims = cursor.claims
        self._taken: set[int] = set()
        self._open = {bucket.bucket_id for bucket in claims.buckets.values()}
        self._closed_below = claims.buckets.next_claim - claims.buckets.next_claim % claims.buckets.capacity
        self._templates = TemplateCache()

    def take_open(self, now_ms: int, count: int) -> int:
        """Redrive up to `count` messages of the buckets in memory; give how many it were."""
        taken = 0
        buckets = self.cursor.claims.buckets
        for first in sorted(buckets):
            taken += self._take(buckets[first], min(count - taken, self.left), now_ms)
            if taken >= count or not self.left:
                break
        return taken

    def wants(self, bucket_id: int, value: bytes) -> bool:
        """Return whether the bucket of this failed record is closed and has messages to redrive."""
        number = bucket_id & layout.NUMBER_MASK
        if not self.left or bucket_id in self._open or number >= self._closed_below:
            return False
        if number in self.cursor.claims.buckets:
            return False  # open again, by this redrive
        return self.offsets is None or any(
            read_head(message.metadata)[1] in self.offsets for message in failed.decode(value)
        )

    def take_closed(self, bucket_id: int, value: bytes, done_value: bytes | None, now_ms: int) -> int:
        """Open the bucket again and redrive what is wanted of it; give how many messages it were."""
        self.cursor.done_purges.cancel(bucket_id)
        stored = StoredBucket(done=done_value, failed=value)
        bucket = restore_bucket(self.cursor, bucket_id, stored, self._templates, now_ms)
        return self._take(bucket, self.left, now_ms)

    def _take(self, bucket: Bucket, count: int, now_ms: int) -> int:
        taken = 0
        unread: list[Claim] = []
        for claim in list(bucket.claims):
            if taken >= count:
                break
            if claim is None or claim.state != FAILED:
                continue
            offset = claim.message.offset
            if offset in self._taken or (self.offsets is not None and offset not in self.offsets):
                continue
            new = self.cursor.returning.revive(bucket, claim, now_ms)
            if new.message.body is None:
                unread.append(new)
            self._taken.add(offset)
            taken += 1
        self.cursor.rules.revived(self.cursor, unread)
        if taken:
            self.cursor.stored.write_soon()
            self.left -= taken
        return taken


Append = Callable[[Message, int], bool]
"""Puts a copy of a message where it is to go, with the time; False: it cannot go there."""


@dataclass(eq=False, repr=False, slots=True)
class Drain:
    """The messages that wait in a group, to another queue.

    What cannot go there keeps its place; so does what arrives after the beginning. `end` must be called.
    Implements `queue_manager.claims.claim.Sink`.
    """

    _manager: QueueManager
    _queue: Queue
    _append: Append
    left: int
    group: InitVar[Group | None] = None
    _end_offsets: dict[QueueLog, int] = field(init=False)
    _held: list[Claim] = field(default_factory=list, init=False)
    _taken: list[tuple[Message, Claim]] = field(default_factory=list, init=False)
    consumer: Consumer = field(init=False)

    def __post_init__(self, group: Group | None) -> None:
        self._end_offsets = {part.log: part.log.next_offset for part in self._queue.parts}
        self.consumer = self._manager.consumption.puller(
            self._queue, self, "redrive", lease_ms=CLAIM_LEASE_MS, group=group
        )

    def step(self, count: int, now_ms: int) -> int | None:
        """Move up to `count` messages in the open commit; give how many of them were looked at or None.

        0: there are no more; None: they are being read back, `consumer.group.when_loaded` calls.
        """
        group = self.consumer.group
        count = min(count, self.left)
        if (
            self._queue.deleted
            or group.is_removed
            or count <= 0
            or len(self._held) >= limits.REDRIVE_HELD_MESSAGES_MAX
        ):
            return 0
        assert isinstance(group, Group)
        group.drain(self.consumer)
        if not (claimed := group.take(self.consumer, count, now_ms)):  # a pause is for consumers
            return claimed
        taken, self._taken = self._taken, []
        done: list[Claim] = []
        cursors: dict[Cursor, None] = {}
        beyond = False
        for message, claim in taken:
            cursor = self._cursor_of(message)
            if message.offset >= self._end_offsets[cursor.log]:
                beyond = True
                self._held.append(claim)
            elif self._append(message, now_ms):
                done.append(claim)
                cursors[cursor] = None
            else:
                self._held.append(claim)
        self._manager.ack(done, now_ms)
        for cursor in cursors:
            cursor.stored.write_soon()  # with the commit that holds the copies
        self.left -= len(done)
        return 0 if beyond else len(taken)

    def _cursor_of(self, message: Message) -> Cursor:
        group = self.consumer.group
        assert isinstance(group, Group)
        return group.cursor_at(message.offset)

    def end(self, now_ms: int) -> None:
        """Put back, untried, what was claimed and did not leave."""
        for claim in self._held:
            if claim.state == IN_FLIGHT:
                self._cursor_of(claim.message).returning.unclaim(claim, now_ms)
        self._held = []
        if not self._queue.deleted:
            self._manager.consumption.unsubscribe(self.consumer, now_ms)

    # the sink

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        assert claims is not None
        self._taken += zip(messages, claims, strict=True)
        return True

    def revoked(self, consumer: Consumer, claims: list[Claim]) -> None:
        """See `queue_manager.claims.claim.Sink`."""

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """See `queue_manager.claims.claim.Sink`."""


def to_origin(manager: QueueManager, dlq: Queue, target: Queue | ForeignQueue | None) -> Append:
    """Put dead letters back where they came from, or into `target`."""

    def append(message: Message, now_ms: int) -> bool:
        template = message.template
        origin = manager.queues.dead_letters.origin_of(template)
        to = target
        if to is None:
            to = None if origin is None else _named(manager, sibling(dlq.name, origin.queue))
        body = message.body
        if to is None or to is dlq or body is None or to.why_not(len(body), now_ms):
            return False
        if origin is None:
            name = local_name(to.name)
            origin = Origin(name, name, "", template.properties_kind, template.properties)
        copy = EnvelopeTemplate(
            origin.topic,
            origin.properties_kind,
            origin.properties,
            persistent=template.persistent,
            priority=template.priority,
            exchange=origin.exchange,
        )
        if to.lets_go_of(copy):
            return False
        to.append_one(copy, body, now_ms)
        return True

    return append


def _named(manager: QueueManager, name: str) -> Queue | ForeignQueue | None:
    """Return the queue of a name, of this shard or another."""
    return manager.queues.get(name) or manager.queues.foreign.get(name)
