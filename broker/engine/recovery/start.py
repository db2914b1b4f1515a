"""What a start reads before anybody is served."""

from __future__ import annotations

from broker.engine.recovery.buckets import restore_buckets
from broker.engine.recovery.claims import restore_attempts, restore_released
from broker.engine.recovery.queues import restore_queues
from broker.engine.recovery.rules import (
    restore_identities,
    restore_keepers,
    restore_schedules,
    restore_stages,
)
from broker.engine.scan import scan_prefix
from queue_manager import recovery
from queue_manager.group import Group
from queue_manager.manager import QueueManager
from queue_manager.ranges import RangeSet
from queue_manager.removal import QueueRemoval
from queue_manager.streams.group import StreamGroup
from storage.metadata_log import SEQ_BLOCK_KEY, MetadataLog, segment_meta_bounds
from storage.records import message_ids, removal
from storage.sequence import SequenceAllocator, decode_block
from storage.store import Store


async def open_log(store: Store) -> MetadataLog:
    """The metadata log as it was left."""
    start, end = segment_meta_bounds()
    rows = await store.scan(start, end, limit=100_000)
    block = await store.get(SEQ_BLOCK_KEY)
    return MetadataLog.recover("i1", rows, None if block is None else decode_block(block))


async def open_message_ids(store: Store) -> SequenceAllocator:
    """The message IDs, beginning after everything that may have been given out."""
    block = await store.get(message_ids.KEY)
    return SequenceAllocator(message_ids.KEY, None if block is None else decode_block(block))


async def recover(store: Store, manager: QueueManager, now_ms: int) -> dict[Group, RangeSet]:
    """Restore every durable queue with its groups; gives what each group had taken, for `recover_done`."""
    await _restore_removals(store, manager)
    groups = await restore_queues(store, manager, now_ms)
    await restore_released(store, manager, groups)
    await restore_buckets(store, groups, now_ms)
    recovery.join_lanes(manager)
    await restore_schedules(store, manager)
    await restore_identities(store, manager, now_ms)
    await restore_stages(store, manager, now_ms)
    await restore_keepers(store, manager)
    await restore_attempts(store, groups)
    unborn = set(manager.unborn)
    return {
        group: group.taken()
        for group in groups.values()
        if not isinstance(group, StreamGroup) and group not in unborn
    }


async def _restore_removals(store: Store, manager: QueueManager) -> None:
    """Deletions of queues that were under way go on."""
    async for key, value in scan_prefix(store, removal.PREFIX):
        log_id = removal.parse_key(key)
        pending = removal.decode(value)
        manager.removing[pending.queue_name] = []
        manager.removals.append(QueueRemoval(pending.queue_name, log_id, pending.queue_ids, 0, None))
        manager.next_log_number = max(manager.next_log_number, int(log_id[1:]) + 1)
