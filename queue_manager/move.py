"""Moving messages from a group to the end of another queue: copy and end of the original in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queue_manager import dead_letters, recovery
from queue_manager.bucket import Bucket
from queue_manager.model import DONE, FAILED, Entry, Message
from queue_manager.redrive import DeadLetterRedrive, unfail
from storage import layout
from storage.envelope import EnvelopeTemplate, TemplateCache

if TYPE_CHECKING:
    from queue_manager.group import Group
    from queue_manager.manager import QueueManager
    from queue_manager.queue import Queue


def append_copy(manager: QueueManager, target: Queue, message: Message, body: bytes, now_ms: int) -> bool:
    """Put a copy of the message at the end of `target`; False if that does not take it."""
    if target.deleted or dead_letters.why_not(target, len(body), now_ms):
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
    manager.append([target], copy, [body], len(body), int(target.durable), now_ms)
    return True


class ReadyMove(DeadLetterRedrive):
    """What waits in a group, in steps as `DeadLetterRedrive` has them."""

    __slots__ = ("_to",)

    def __init__(
        self, manager: QueueManager, queue: Queue, group: Group | None, target: Queue, limit: int
    ) -> None:
        super().__init__(manager, queue, target, limit, group)
        self._to = target

    def append(self, message: Message, now_ms: int) -> bool:
        """See `DeadLetterRedrive`."""
        body = message.body
        return body is not None and append_copy(self.manager, self._to, message, body, now_ms)


class FailedMove:
    """The failed messages of a group, a bucket or a part of one at a time.

    The driver reads a failed record, asks `wanted`, reads the payloads and calls `move`, all before anything
    else has changed that group's failed messages. A message is looked at once.
    """

    __slots__ = ("_seen", "_target", "_templates", "group", "left")

    def __init__(self, group: Group, target: Queue, limit: int) -> None:
        self.group = group
        self.left = limit
        self._target = target
        self._seen: set[int] = set()
        self._templates = TemplateCache()

    def wanted(self, value: bytes, count: int) -> list[int]:
        """The message IDs, at most `count`, that a failed record has for this move."""
        ids = [message.message_id for message in recovery.settled_messages(value)]
        return [message_id for message_id in ids if message_id not in self._seen][: min(count, self.left)]

    def is_open(self, bucket_id: int) -> bool:
        """Whether the bucket is in memory."""
        return bucket_id & layout.NUMBER_MASK in self.group.buckets

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
        group = self.group
        self._seen.update(asked)
        bucket = group.buckets.get(bucket_id & layout.NUMBER_MASK)
        if bucket is None:
            kept = [purge for purge in group.purges if purge.bucket_id != bucket_id]
            if len(kept) < len(group.purges):
                group.purges.clear()
                group.purges.extend(kept)
            recovery.restore_bucket(group, bucket_id, None, done_value, value, self._templates, now_ms)
            bucket = group.buckets[bucket_id & layout.NUMBER_MASK]
        moved = 0
        wanted = set(asked)
        for index, entry in enumerate(bucket.entries):
            if entry is None or entry.state != FAILED or entry.message.message_id not in wanted:
                continue
            body = bodies.get(entry.message.message_id)
            manager = group.queue.manager
            if body is not None and append_copy(manager, self._target, entry.message, body, now_ms):
                bucket.entries[index] = self._finish(bucket, entry, now_ms)
                moved += 1
        bucket.plain = False
        group.touch(bucket)  # it is closed again with the next commit, in the same that holds the copies
        group.flush_soon()
        self.left -= moved
        return moved

    def _finish(self, bucket: Bucket, entry: Entry, now_ms: int) -> Entry:
        new = unfail(self.group, bucket, entry, now_ms)
        new.state = DONE
        bucket.open_count -= 1
        return new
