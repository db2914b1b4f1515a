"""The reads of a start before the first client is served: exchanges, rules, claims, open buckets."""

from __future__ import annotations

from collections.abc import AsyncIterator

from broker.engine.log_steps import scan_prefix, scan_records
from broker.engine.recovery.queues import restore_queues
from broker.engine.recovery.sessions import restore_sessions
from config import limits
from queue_manager.cursor.cursor import Cursor
from queue_manager.group.group import Group
from queue_manager.log.levels import split_level_name
from queue_manager.log.range_set import RangeSet
from queue_manager.log.removals import GroupRemoval, QueueRemoval
from queue_manager.manager import QueueManager
from queue_manager.queue.queue_record_types import RULES
from queue_manager.recovery import queues
from queue_manager.recovery.buckets import StoredBucket, restore_bucket
from queue_manager.shard.record_types import RecordType, Row
from storage import layout
from storage.encoding import prefix_end
from storage.envelope import TemplateCache
from storage.errors import CorruptRecord, StorageError
from storage.metadata_log import (
    SEQ_BLOCK_KEY,
    MetadataLog,
    decode_segment_meta,
    listing_bounds,
    parse_listing_key,
    parse_log_key,
    segment_meta_bounds,
)
from storage.records import (
    TO_EXCHANGE,
    active,
    attempts,
    ban,
    binding,
    claimed_bitmap,
    done,
    exchange,
    failed,
    group_removal,
    merge,
    message_ids,
    parameter,
    policy,
    released_offsets,
    removal,
    retained,
    settlements,
    skipped_offsets,
    vhost,
)
from storage.records.fields import queue_id_of
from storage.sequence import SequenceAllocator, decode_block
from storage.store import Store


async def restore_buckets(store: Store, cursors: dict[str, Cursor], now_ms: int) -> None:
    """Read the records of each open bucket, those of many buckets together."""
    templates = TemplateCache()
    found = await _open_buckets(store, cursors)
    for first in range(0, len(found), limits.RECOVERY_BUCKETS_AT_ONCE):
        part = found[first : first + limits.RECOVERY_BUCKETS_AT_ONCE]
        keys = [
            record.key(storage_id, bucket_id)
            for (storage_id, bucket_id), _ in part
            for record in (done, failed)
        ]
        settled = await store.get_many(keys)
        for ((storage_id, bucket_id), rows), done_value, failed_value in zip(
            part, settled[::2], settled[1::2], strict=True
        ):
            rows.add_settled(done_value, failed_value)
            restore_bucket(cursors[storage_id], bucket_id, rows, templates, now_ms)


async def _open_buckets(
    store: Store, cursors: dict[str, Cursor]
) -> list[tuple[tuple[str, int], StoredBucket]]:
    """Yield storage ID of the cursor and bucket ID of each, in order, with what the scans tell of it."""
    found: dict[tuple[str, int], StoredBucket] = {}
    async for key, value in scan_prefix(store, active.prefix()):
        found[active.parse_key(key)] = StoredBucket(active=value)
    async for key, value in scan_prefix(store, settlements.prefix()):
        storage_id, bucket_id, _ = settlements.parse_key(key)
        found.setdefault((storage_id, bucket_id), StoredBucket()).settlements.append((key, value))
    for storage_id, cursor in cursors.items():
        buckets = cursor.claims.buckets
        first = buckets.next_claim - buckets.next_claim % buckets.capacity
        if first != buckets.next_claim:
            found.setdefault((storage_id, buckets.claim_base | first), StoredBucket())
    return [
        ((storage_id, bucket_id), rows)
        for (storage_id, bucket_id), rows in sorted(found.items(), key=lambda item: item[0])
        if storage_id in cursors
        and bucket_id & layout.NUMBER_MASK >= cursors[storage_id].claims.buckets.first_claim
    ]


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
            cursor.claims.buckets.use_attempt_log().restore(message_id, known.made, known.spared)


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


async def restore_rules(store: Store, manager: QueueManager, now_ms: int) -> None:
    """Have each rule of each queue restored from its records."""
    for rule in RULES:
        found = [await _rows_by_queue(store, kind) for kind in rule.types]
        for queue in manager.queues:
            rule.restore(queue, [rows.get(queue.name, ()) for rows in found], now_ms)


async def _rows_by_queue(store: Store, kind: RecordType) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    rows = scan_prefix(store, kind.record.prefix()) if kind.run_fields is None else _ends_of_runs(store, kind)
    async for row in rows:
        log_name, _ = layout.split_group_queue_id(queue_id_of(row[0]))
        found.setdefault(split_level_name(log_name)[0], []).append(row)
    return found


async def _ends_of_runs(store: Store, kind: RecordType) -> AsyncIterator[Row]:
    """Yield of each run the first row, and the last where that is wanted."""
    record, run_fields = kind.record, kind.run_fields
    start: bytes | None = record.prefix()
    end = prefix_end(record.prefix())
    while start is not None and (rows := await store.scan(start, end, limit=1)):
        first = rows[0]
        yield first
        start = prefix_end(record.prefix(*record.parse_key(first[0])[:run_fields]))
        if kind.reads_last:
            yield (await store.scan(first[0], start, limit=1, reverse=True))[0]


async def restore_exchanges(store: Store, manager: QueueManager) -> None:
    """Restore every durable exchange, then every binding; what was there only for bindings that are gone
    ends.
    """
    exchanges = manager.queues.exchanges
    were_bound = []
    async for name, stored in scan_records(store, exchange):
        exchanges.restore(name, stored)
        if stored.was_bound:
            were_bound.append(name)
    async for found, stored_binding in scan_records(store, binding):
        source = exchanges.get(found.exchange)
        by_name = exchanges if found.kind == TO_EXCHANGE else manager.queues
        destination = by_name.get(found.destination)
        if source is None or destination is None:
            # both end together with their bindings, in one commit
            raise CorruptRecord(
                binding.name, "key", f"{found.exchange!r} or {found.destination!r} is missing"
            )
        exchanges.restore_binding(source, destination, found.routing_key, stored_binding)
    exchanges.end_unused(were_bound)


async def refuse_merging(store: Store) -> None:
    """Raise StorageError if a merge of shards was begun that has not come to its end."""
    if await store.get(merge.key()) is not None:
        raise StorageError(
            f"opening: a merge of the shards in {store.describe()} has not come to its end: run"
            " `sluicemq store merge` again"
        )


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
    async for policy_key, stored_policy in scan_records(store, policy):
        manager.queues.policies.restore(policy_key, stored_policy)
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
    async for ban_key, stored_ban in scan_records(store, ban):
        manager.bans.restore(ban_key, stored_ban)
    async for parameter_key, value in scan_records(store, parameter):
        manager.parameters.restore(parameter_key, value)
    manager.queues.policies_restored()
    manager.sessions.follow_policies()
    return {
        cursor: cursor.progress.taken()
        for cursor in groups
        if not cursor.log.policy.stream and not cursor.awaits_history
    }


async def _restore_removals(store: Store, manager: QueueManager) -> None:
    """Go on with deletions of queues that were under way."""
    async for log_id, pending in scan_records(store, removal):
        manager.queues.restore_removal(QueueRemoval.restored(log_id, pending))
