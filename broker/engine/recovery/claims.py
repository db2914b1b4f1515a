"""Recovery of claims: those out of order, attempts that failed, and what is left of deleted groups."""

from __future__ import annotations

from broker.engine.log_steps import scan_records
from queue_manager.cursor.cursor import Cursor
from queue_manager.group.group import Group
from queue_manager.log.removals import GroupRemoval, QueueRemoval
from queue_manager.manager import QueueManager
from queue_manager.recovery import queues
from storage import layout
from storage.records import attempts, claimed_bitmap, group_removal, released_offsets, skipped_offsets
from storage.store import Store


async def restore_released(
    store: Store, manager: QueueManager, cursors: dict[str, Cursor], groups: dict[Cursor, Group]
) -> None:
    """Restore what groups claimed or passed out of order, and what was let go of where they cannot tell."""
    async for (storage_id, chunk), bitmap in scan_records(store, claimed_bitmap):
        if storage_id in cursors:
            cursor = cursors[storage_id]
            queues.restore_claimed(groups[cursor], cursor, chunk, bitmap)
    async for name, released in scan_records(store, released_offsets):
        part = manager.queues.part(name)
        if part is not None:
            queues.restore_gaps(part, released)
    await _restore_group_removals(store, manager)
    async for storage_id, skipped in scan_records(store, skipped_offsets):
        if storage_id in cursors:
            queues.restore_reset(cursors[storage_id], *skipped)


async def restore_attempts(store: Store, cursors: dict[str, Cursor]) -> None:
    """Restore what is known of the attempts at messages that are not done."""
    async for (storage_id, message_id), known in scan_records(store, attempts):
        cursor = cursors.get(storage_id)
        if cursor is not None:
            cursor.claims.buckets.restore_attempts(message_id, known.made, known.spared)


async def _restore_group_removals(store: Store, manager: QueueManager) -> None:
    """Take up what is left of deleted and reset groups; with a deleted queue it goes by its removal."""
    deleted = {r.name: r for r in manager.context.removals if isinstance(r, QueueRemoval)}
    async for key, pending in scan_records(store, group_removal):
        name, _ = layout.split_group_queue_id(key.queue_id)
        part = manager.queues.part(name)
        if part is None or part.log.log_id != pending.log_id:
            removal = deleted.get(name)
            if removal is not None:
                removal.add_storage_id(key.queue_id)
                removal.keep(pending.log_ranges)
            continue
        queues.restore_group_removal(part, GroupRemoval.restored(part.log, key, pending))
