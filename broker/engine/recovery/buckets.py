"""Buckets that are open: something in them is active, or they are not full."""

from __future__ import annotations

from broker.engine.log_steps import scan_prefix
from config import limits
from queue_manager.cursor.cursor import Cursor
from queue_manager.recovery.buckets import StoredBucket, restore_bucket
from storage import layout
from storage.envelope import TemplateCache
from storage.records import active, done, failed, settlements
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
