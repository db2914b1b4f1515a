"""The claims of a cursor, from the records of its buckets."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

from queue_manager.claims.claim import AVAILABLE, DONE, FAILED, SETTLED_MESSAGE, Bucket, Claim
from queue_manager.claims.cursor_buckets import Buckets
from queue_manager.claims.purge import Purge
from queue_manager.cursor.cursor import Cursor
from queue_manager.model import Message
from storage import layout
from storage.envelope import TemplateCache, read_head, without_visible_at
from storage.errors import CorruptRecord
from storage.records import active, claim_state, done, settlements
from storage.records.bucket_values import AvailableMessage, InFlightMessage, SettledMessage, pack_settled


@dataclass(eq=False, slots=True)
class StoredBucket:
    """The values of a bucket's records; of settlements with their keys."""

    _: KW_ONLY
    active: bytes | None = None
    done: bytes | None = None
    failed: bytes | None = None
    settlements: list[tuple[bytes, bytes]] = field(default_factory=list, init=False)

    def add_settled(self, done: bytes | None, failed: bytes | None) -> None:
        """Take the records of what is done and failed."""
        self.done = done
        self.failed = failed


def restore_bucket(
    cursor: Cursor, bucket_id: int, stored: StoredBucket, templates: TemplateCache, now_ms: int
) -> Bucket:
    """One bucket that still has something active, or is not yet full."""
    exponent = bucket_id >> layout.NUMBER_BITS
    first = bucket_id & layout.NUMBER_MASK
    claims = cursor.claims
    buckets = claims.buckets
    bucket = Bucket(
        buckets.records.want, first, layout.bucket_capacity(exponent), exponent << layout.NUMBER_BITS
    )
    slots: dict[int, Claim] = {}
    released: set[int] = set()
    for key, value in stored.settlements:
        settled = settlements.decode(value)
        bucket.note_settlements(key, has_done=bool(settled.done))
        released.update(settled.released)
        _add_done(slots, bucket, settled.done)
    _add_done(slots, bucket, done.decode(stored.done) if stored.done is not None else [])
    delays = {}
    if stored.active is not None:
        delays = _add_active(slots, bucket, stored.active, released, templates, buckets)
    for message in [] if stored.failed is None else done.decode(stored.failed):
        at_ms = message.settled_at_ms
        claim = _claim(bucket, templates, message, message.attempts, message.metadata, FAILED, at_ms)
        slots[claim.claim_number] = claim
    if slots and max(slots) >= buckets.next_claim:
        raise CorruptRecord(claim_state.name, "next_claim_number", f"bucket {bucket_id:x} has a later claim")
    waiting = [claim for claim in slots.values() if claim.state == AVAILABLE]
    end = min(bucket.end, buckets.next_claim)
    bucket.restore(
        [slots.get(number) for number in range(first, end)],
        len(waiting),
        has_active=stored.active is not None,
        has_done=stored.done is not None,
        has_failed=stored.failed is not None,
    )
    buckets.restore(bucket)
    if bucket.done_written:
        cursor.done_purges.want()
    if bucket.settlement_keys and buckets.is_closed(bucket):
        bucket.settled()  # of a time when more went into a bucket
    for claim in waiting:
        due_ms = delays.get(claim.claim_number, 0)
        if due_ms > now_ms:
            claims.delay(claim, due_ms)
        if claim.message.offset < cursor.log.head_offset:  # it was redriven
            cursor.progress.keep_failed(claim.message.offset)
    if waiting:
        claims.returned.add_all(claim for claim in waiting if not claim.deadline_ms)
    return bucket


def _add_done(slots: dict[int, Claim], bucket: Bucket, messages: list[SettledMessage]) -> None:
    for message in messages:
        claim = _settled_claim(bucket, message)
        slots[claim.claim_number] = claim


def _add_active(
    slots: dict[int, Claim],
    bucket: Bucket,
    value: bytes,
    released: set[int],
    templates: TemplateCache,
    buckets: Buckets,
) -> dict[int, int]:
    """Add what is active and was not settled since; return when delayed claims are due, by claim number."""
    delays: dict[int, int] = {}
    available, in_flight = active.decode(value)
    messages: list[AvailableMessage | InFlightMessage] = [*available, *in_flight]
    for message in messages:
        number = message.claim_id & layout.NUMBER_MASK
        if number in slots or message.claim_id in released:
            continue
        metadata = message.metadata
        if isinstance(message, AvailableMessage):
            metadata, delays[number] = without_visible_at(metadata)
        else:
            buckets.use_attempt_log().add(message.message_id, message.claimed_at_ms, "")
        slots[number] = _claim(bucket, templates, message, message.attempts, metadata, AVAILABLE)
    return delays


class _Stored(Protocol):
    """A message of a bucket's records."""

    @property
    def message_id(self) -> int: ...

    @property
    def claim_id(self) -> int: ...


def _claim(
    bucket: Bucket,
    templates: TemplateCache,
    stored: _Stored,
    attempts: int,
    metadata: bytes,
    state: int,
    at_ms: int = 0,
) -> Claim:
    _, offset, received_at_ms = read_head(metadata)
    message = Message(stored.message_id, offset, None, templates.find(metadata), received_at_ms)
    return Claim(message, stored.claim_id & layout.NUMBER_MASK, bucket, attempts, state, None, at_ms)


def _settled_claim(bucket: Bucket, message: SettledMessage) -> Claim:
    return Claim(
        SETTLED_MESSAGE,
        message.claim_id & layout.NUMBER_MASK,
        bucket,
        message.attempts,
        DONE,
        None,
        message.settled_at_ms,
        packed=pack_settled(*message),
    )


def restore_failed(cursor: Cursor, bucket_id: int, value: bytes) -> None:
    """Account for a failed record."""
    number = bucket_id & layout.NUMBER_MASK
    resets = [
        removal
        for removal in cursor.retention.removals
        if removal.storage_id == cursor.storage_id and removal.has_rows and number < removal.claim_end
    ]
    buckets = cursor.claims.buckets
    for message in done.decode(value):
        _, offset, _ = read_head(message.metadata)
        if cursor.progress.failed.contains(offset):
            continue  # it failed since the start
        if not all(removal.keeps_failed(offset) for removal in resets):
            continue
        cursor.progress.keep_failed(offset)
        buckets.begin_failed(buckets.failed_count + 1)


def purge_of_record(cursor: Cursor, bucket_id: int, value: bytes) -> tuple[Purge | None, list[int]]:
    """Return the purge of a stored done record (None: kept for ever), and the offsets it holds."""
    messages = done.decode(value)
    offsets = [read_head(message.metadata)[1] for message in messages]
    retention_ms = cursor.log.policy.done_retention_ms
    if retention_ms < 0 or not messages:
        return None, offsets
    due_ms = max(message.settled_at_ms for message in messages) + retention_ms
    packed = [pack_settled(*message) for message in messages]
    return Purge.of_packed(
        cursor.done_purges, bucket_id, packed, cursor.claims.buckets.attempt_log, due_ms
    ), offsets


def active_offsets(cursor: Cursor) -> list[int]:
    """Return the offsets of messages in open buckets that did not fail."""
    return [
        read_head(claim.packed[30:48])[1] if claim.packed else claim.message.offset
        for bucket in cursor.claims.buckets.values()
        for claim in bucket.claims
        if claim is not None and claim.state != FAILED
    ]
