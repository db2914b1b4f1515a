"""The reads of a start before the first client is served."""

from __future__ import annotations

from broker.engine.log_steps import scan_records
from broker.engine.recovery.buckets import restore_buckets
from broker.engine.recovery.claims import restore_attempts, restore_released
from broker.engine.recovery.exchanges import restore_exchanges
from broker.engine.recovery.queues import restore_queues
from broker.engine.recovery.rules import restore_rules
from broker.engine.recovery.sessions import restore_sessions
from queue_manager.cursor.cursor import Cursor
from queue_manager.log.range_set import RangeSet
from queue_manager.log.removals import QueueRemoval
from queue_manager.manager import QueueManager
from storage.metadata_log import (
    SEQ_BLOCK_KEY,
    MetadataLog,
    decode_segment_meta,
    listing_bounds,
    parse_listing_key,
    parse_log_key,
    segment_meta_bounds,
)
from storage.records import message_ids, policy, removal, retained, vhost
from storage.sequence import SequenceAllocator, decode_block
from storage.store import Store


async def open_log(store: Store, instance_id: str) -> MetadataLog:
    """Open the metadata log as it was left. A store keeps the instance ID that its logs were begun with."""
    start, end = segment_meta_bounds()
    rows = await store.scan(start, end, limit=100_000)
    block = await store.get(SEQ_BLOCK_KEY)
    found = await _stored_instance_id(store, [decode_segment_meta(*row).segment_id for row in rows])
    return MetadataLog.recover(
        instance_id if found is None else found, rows, None if block is None else decode_block(block)
    )


async def _stored_instance_id(store: Store, segment_ids: list[int]) -> str | None:
    for segment_id in segment_ids:
        for key, _ in await store.scan(*listing_bounds(segment_id), limit=1):
            return parse_log_key(parse_listing_key(key)[1])[0]
    return None


async def open_message_ids(store: Store) -> SequenceAllocator:
    """Open the message IDs, beginning after everything that may have been given out."""
    block = await store.get(message_ids.key())
    return SequenceAllocator(message_ids.key(), None if block is None else decode_block(block))


async def recover(store: Store, manager: QueueManager, now_ms: int) -> dict[Cursor, RangeSet]:
    """Restore every durable queue with its groups; gives what each cursor had taken, for `recover_done`."""
    await _restore_removals(store, manager)
    groups = await restore_queues(store, manager, now_ms)
    await restore_exchanges(store, manager)
    cursors = {cursor.storage_id: cursor for cursor in groups}
    await restore_released(store, manager, cursors, groups)
    await restore_buckets(store, cursors, now_ms)
    await restore_rules(store, manager, now_ms)
    await restore_attempts(store, cursors)
    await restore_sessions(store, manager, now_ms)
    async for _, message in scan_records(store, retained):
        manager.retained.restore(message)  # those that have expired go with the first commit
    async for name, stored in scan_records(store, vhost):
        manager.vhosts.restore(name, stored)
    async for policy_key, stored_policy in scan_records(store, policy):
        manager.queues.policies.restore(policy_key, stored_policy)
    manager.queues.policies_restored()
    return {
        cursor: cursor.progress.taken()
        for cursor in groups
        if not cursor.log.policy.stream and not cursor.awaits_history
    }


async def _restore_removals(store: Store, manager: QueueManager) -> None:
    """Go on with deletions of queues that were under way."""
    async for log_id, pending in scan_records(store, removal):
        manager.queues.restore_removal(QueueRemoval.restored(log_id, pending))
