"""Moving messages from a group to the end of another queue: copy and end of the original in one commit."""

from __future__ import annotations

from queue_manager.claims.claim import FAILED
from queue_manager.cursor.cursor import Cursor
from queue_manager.model import Message
from queue_manager.moving.redrive import Append
from queue_manager.queue.queue import Queue
from queue_manager.recovery.buckets import StoredBucket, restore_bucket
from queue_manager.routing.route import ForeignQueue
from storage import layout
from storage.envelope import EnvelopeTemplate, TemplateCache
from storage.records import failed

MoveTarget = Queue | ForeignQueue
"""Where messages go. One of another shard gets them by way of its own shard's outbox."""


def append_copy(target: MoveTarget, message: Message, body: bytes, now_ms: int) -> bool:
    """Put a copy of the message at the end of `target`; False if that does not take it."""
    if target.deleted or target.why_not(len(body), now_ms):
        return False
    template = message.template
    copy = EnvelopeTemplate(
        template.topic,
        template.properties_kind,
        template.properties,
        persistent=template.persistent,
        priority=template.priority,
        expires_at_ms=template.expires_at_ms,
        exchange=template.exchange,
    )
    if target.lets_go_of(copy):
        return False
    target.append_one(copy, body, now_ms)
    return True


def to_queue(target: MoveTarget) -> Append:
    """Put messages, as they are, at the end of a queue."""

    def append(message: Message, now_ms: int) -> bool:
        return message.body is not None and append_copy(target, message, message.body, now_ms)

    return append


class FailedMove:
    """The failed messages of a cursor, a bucket or a part of one at a time.

    The driver reads a failed record, asks `wanted`, reads the payloads and calls `move`, all before anything
    else has changed that cursor's failed messages. A message is looked at once.
    """

    __slots__ = ("_seen", "_target", "_templates", "cursor", "left")

    def __init__(self, cursor: Cursor, target: MoveTarget, limit: int) -> None:
        self.cursor = cursor
        self.left = limit
        self._target = target
        self._seen: set[int] = set()
        self._templates = TemplateCache()

    def wanted(self, value: bytes, count: int) -> list[int]:
        """Return the message IDs, at most `count`, that a failed record has for this move."""
        ids = [message.message_id for message in failed.decode(value)]
        return [message_id for message_id in ids if message_id not in self._seen][: min(count, self.left)]

    def is_open(self, bucket_id: int) -> bool:
        """Return whether the bucket is in memory."""
        return bucket_id & layout.NUMBER_MASK in self.cursor.claims.buckets

    def move(
        self,
        bucket_id: int,
        value: bytes,
        done_value: bytes | None,
        bodies: dict[int, bytes],
        asked: list[int],
        now_ms: int,
    ) -> int:
        """Move those of `asked` that have a body and are still failed; give how many it were."""
        cursor = self.cursor
        self._seen.update(asked)
        bucket = cursor.claims.buckets.get(bucket_id & layout.NUMBER_MASK)
        if bucket is None:
            cursor.done_purges.cancel(bucket_id)
            stored = StoredBucket(done=done_value, failed=value)
            bucket = restore_bucket(cursor, bucket_id, stored, self._templates, now_ms)
        moved = 0
        wanted = set(asked)
        for claim in list(bucket.claims):
            if claim is None or claim.state != FAILED or claim.message.message_id not in wanted:
                continue
            body = bodies.get(claim.message.message_id)
            if body is not None and append_copy(self._target, claim.message, body, now_ms):
                cursor.failures.revive(bucket, claim, now_ms).finish()
                moved += 1
        # it is closed again with the next commit, in the same that holds the copies
        bucket.touch()
        cursor.stored.write_soon()
        self.left -= moved
        return moved
