"""What groups had taken out of order, attempts that failed, and what is left of deleted groups."""

from __future__ import annotations

from broker.engine.scan import scan_prefix
from queue_manager import recovery
from queue_manager.group import Group
from queue_manager.group_removal import GroupRemoval
from queue_manager.manager import QueueManager
from queue_manager.removal import QueueRemoval
from storage import layout
from storage.records import attempts, group_removal, holes, passed, taken_ahead
from storage.store import Store


async def restore_released(store: Store, manager: QueueManager, groups: dict[str, Group]) -> None:
    """What groups took or passed out of order, and what was let go of where they cannot tell."""
    async for key, value in scan_prefix(store, taken_ahead.PREFIX):
        storage_id, chunk = taken_ahead.parse_key(key)
        if storage_id in groups:
            recovery.restore_taken(groups[storage_id], chunk, taken_ahead.decode(value))
    async for key, value in scan_prefix(store, holes.PREFIX):
        recovery.restore_holes(manager, holes.parse_key(key), holes.decode(value))
    await _restore_group_removals(store, manager, groups)
    async for key, value in scan_prefix(store, passed.PREFIX):
        storage_id = passed.parse_key(key)
        if storage_id in groups:
            recovery.restore_passed(groups[storage_id], *passed.decode(value))


async def restore_attempts(store: Store, groups: dict[str, Group]) -> None:
    """What is known of the attempts at messages that are not done."""
    async for key, value in scan_prefix(store, attempts.PREFIX):
        storage_id, message_id = attempts.parse_key(key)
        group = groups.get(storage_id)
        if group is not None:
            group.attempts_log[message_id] = [
                *attempts.decode(value),
                *group.attempts_log.get(message_id, []),
            ]


async def _restore_group_removals(store: Store, manager: QueueManager, groups: dict[str, Group]) -> None:
    """Take up what is left of deleted and reset groups; with a deleted queue it goes by its removal."""
    deleted = {r.name: r for r in manager.removals if isinstance(r, QueueRemoval)}
    async for key, value in scan_prefix(store, group_removal.PREFIX):
        parsed = group_removal.parse_key(key)
        pending = group_removal.decode(value)
        name, _ = layout.split_group_queue_id(parsed.queue_id)
        queue = manager.queues.get(name)
        if queue is None or queue.log_id != pending.log_id:
            removal = deleted.get(name)
            if removal is not None and parsed.queue_id not in removal.storage_ids:
                removal.storage_ids = (*removal.storage_ids, parsed.queue_id)
            continue
        recovery.restore_group_removal(
            GroupRemoval.restored(queue, parsed, pending), groups.get(parsed.queue_id)
        )
