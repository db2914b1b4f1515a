"""The claims of a cursor, from the records of its buckets."""

from __future__ import annotations

from queue_manager.claims.claim import AVAILABLE, DONE, FAILED, SETTLED_MESSAGE, Bucket, Claim
from queue_manager.claims.purge import Purge
from queue_manager.cursor.cursor import Cursor
from queue_manager.model import Message
from storage import layout
from storage.envelope import TemplateCache, read_head
from storage.records import active, done
from storage.records.settled import SettledMessage
from storage.visible_at import without_visible_at


def restore_bucket(
    cursor: Cursor,
    bucket_id: int,
    active_value: bytes | None,
    done_value: bytes | None,
    failed_value: bytes | None,
    templates: TemplateCache,
    now_ms: int = 0,
) -> Bucket:
    """One bucket that still has something active, or is not yet full."""
    exponent = bucket_id >> layout.NUMBER_BITS
    first = bucket_id & layout.NUMBER_MASK
    claims = cursor.claims
    bucket = Bucket(claims, first, layout.bucket_capacity(exponent), exponent << layout.NUMBER_BITS)
    slots: dict[int, Claim] = {}
    delayed: list[tuple[Claim, int]] = []
    if active_value is not None:
        available, in_flight = active.decode(active_value)
        for message_id, claim_id, attempts, metadata in available:
            plain, due_ms = without_visible_at(metadata)
            claim = _claim(bucket, templates, message_id, claim_id, attempts, plain, AVAILABLE, 0)
            slots[claim.claim_number] = claim
            if due_ms > now_ms:
                delayed.append((claim, due_ms))
        for message_id, claim_id, claimed_at_ms, _, attempts, metadata in in_flight:
            claim = _claim(bucket, templates, message_id, claim_id, attempts, metadata, AVAILABLE, 0)
            slots[claim.claim_number] = claim
            claims.attempt_log.add(message_id, claimed_at_ms, "")
    for message in [] if done_value is None else done.decode(done_value):
        claim = _settled_claim(bucket, message)
        slots[claim.claim_number] = claim
    for message in [] if failed_value is None else done.decode(failed_value):
        claim = _claim(
            bucket,
            templates,
            message.message_id,
            message.claim_id,
            message.attempts,
            message.metadata,
            FAILED,
            message.settled_at_ms,
        )
        slots[claim.claim_number] = claim
    bucket.note_written(
        active=active_value is not None, done=done_value is not None, failed=failed_value is not None
    )
    waiting = [claim for claim in slots.values() if claim.state == AVAILABLE]
    end = min(bucket.end, claims.next_claim)
    bucket.restore([slots.get(number) for number in range(first, end)], len(waiting))
    claims.restore(bucket)
    if done_value is not None:
        cursor.want_purge()
    for claim, due_ms in delayed:
        claims.delays.add(claim, due_ms)
    for claim in waiting:
        if claim.message.offset < cursor.log.head_offset:  # it was redriven
            cursor.progress.keep_failed(claim.message.offset)
    if waiting:
        claims.put_returned(claim for claim in waiting if not claim.deadline_ms)
    return bucket


def _claim(
    bucket: Bucket,
    templates: TemplateCache,
    message_id: int,
    claim_id: int,
    attempts: int,
    metadata: bytes,
    state: int,
    at_ms: int,
) -> Claim:
    template = templates.find(metadata)
    _, offset, received_at_ms = read_head(metadata)
    message = Message(message_id, offset, None, template, received_at_ms)
    return Claim(message, claim_id & layout.NUMBER_MASK, bucket, attempts, state, None, at_ms)


def _settled_claim(bucket: Bucket, message: SettledMessage) -> Claim:
    return Claim(
        SETTLED_MESSAGE,
        message.claim_id & layout.NUMBER_MASK,
        bucket,
        message.attempts,
        DONE,
        None,
        message.settled_at_ms,
        packed=done.pack_done(*message),
    )


def settled_messages(value: bytes) -> list[SettledMessage]:
    """The messages of a done or failed record."""
    return done.decode(value)


def restore_failed(cursor: Cursor, bucket_id: int, value: bytes) -> None:
    """Account for a failed record."""
    number = bucket_id & layout.NUMBER_MASK
    resets = [
        removal
        for removal in cursor.retention.removals
        if removal.storage_id == cursor.storage_id and removal.has_rows and number < removal.claim_end
    ]
    for message in done.decode(value):
        _, offset, _ = read_head(message.metadata)
        if cursor.progress.failed.contains(offset):
            continue  # it failed since the start
        if not all(removal.keeps_failed(offset) for removal in resets):
            continue
        cursor.progress.keep_failed(offset)
        cursor.claims.begin_failed(cursor.claims.failed_count + 1)


def purge_of_record(cursor: Cursor, bucket_id: int, value: bytes) -> tuple[Purge | None, list[int]]:
    """The purge of a stored done record (None: kept for ever), and the offsets it holds."""
    messages = done.decode(value)
    offsets = [read_head(message.metadata)[1] for message in messages]
    retention_ms = cursor.log.policy.done_retention_ms
    if retention_ms < 0 or not messages:
        return None, offsets
    due_ms = max(message.settled_at_ms for message in messages) + retention_ms
    packed = [done.pack_done(*message) for message in messages]
    return Purge.of_packed(cursor, bucket_id, packed, cursor.claims.attempt_log, due_ms), offsets


def active_offsets(cursor: Cursor) -> list[int]:
    """The offsets of messages in open buckets that did not fail."""
    offsets = []
    for bucket in cursor.claims.buckets.values():
        for claim in bucket.claims:
            if claim is not None and claim.state != FAILED:
                offsets.append(read_head(claim.packed[30:48])[1] if claim.packed else claim.message.offset)
    return offsets
