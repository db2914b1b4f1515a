"""Looking at scheduled messages, and cancelling them."""

from __future__ import annotations

from dataclasses import dataclass

from broker.engine.payload_references import drop_reference
from broker.engine.shard import Shard
from config import limits
from queue_manager.rules.stored_window import Key
from storage.encoding import prefix_end
from storage.envelope import SHARED, EnvelopeTemplate, TemplateCache, read_head
from storage.records import scheduled


@dataclass(frozen=True, slots=True)
class ScheduledMessage:
    """A message that is not due yet. `template` has its topic and properties; `body`: of one in memory."""

    due_ms: int
    message_id: int
    template: EnvelopeTemplate
    body: bytes | None = None


async def list_scheduled(
    shard: Shard, queue_name: str, *, after: Key = (0, 0), limit: int = 100
) -> list[ScheduledMessage]:
    """Return the next scheduled messages of a queue, at most `limit`, in the order they are due.

    `after` is the (due_ms, message_id) of the last one of the page before. Raises QueueNotFound,
    StorageError.
    """
    queue = shard.manager.queues.find(queue_name)
    limit = min(limit, limits.LISTED_MESSAGES_MAX)
    if not queue.durable:
        rows = queue.rules.schedule.rows_after(after, limit)
        return [ScheduledMessage(*key, row.template, row.body) for key, row in rows]
    await shard.barrier()
    prefix = scheduled.prefix(queue_name)
    start = scheduled.key(queue_name, *after) + b"\x00"
    templates = TemplateCache()
    found = []
    for key, value in await shard.store.scan(start, prefix_end(prefix), limit=limit):
        _, due_ms, message_id = scheduled.parse_key(key)
        found.append(ScheduledMessage(due_ms, message_id, templates.find(value)))
    return found


async def cancel_scheduled(shard: Shard, queue_name: str, due_ms: int, message_id: int) -> bool:
    """Cancel one scheduled message; True once that is durable, False if it is not there or is due.

    Raises QueueNotFound, StorageError.
    """
    manager = shard.manager
    queue = manager.queues.find(queue_name)
    key = (due_ms, message_id)
    if not queue.durable:
        if queue.rules.schedule.rows.get(key) is None:
            return False
        queue.rules.schedule.cancel(key)
        queue.rules.schedule.cancelled(key)
        return True
    await shard.barrier()
    raw = scheduled.key(queue_name, *key)
    async with shard.references.counted([message_id]) as counts:
        if shard.references.is_being_deleted(raw):
            return False
        value = await shard.store.get(raw)
        if value is None or queue.deleted or due_ms <= shard.clock.now_ms():
            return False
        is_shared = read_head(value)[0] & SHARED != 0
        manager.cancel_scheduled(queue, key, keep_payload=is_shared)
        if is_shared:
            drop_reference(manager.context.commit, message_id, counts[message_id])
    await shard.barrier()
    queue.rules.schedule.cancelled(key)
    return True
