"""Recovery of the rules of queues: schedules, identities of messages, staged epochs, what expires."""

from __future__ import annotations

from collections.abc import AsyncIterator

from broker.engine.log_steps import scan_prefix
from queue_manager.log.levels import split_level_name
from queue_manager.manager import QueueManager
from queue_manager.queue.queue_record_types import RULES
from queue_manager.shard.record_types import RecordType, Row
from storage import layout
from storage.encoding import prefix_end
from storage.records.fields import queue_id_of
from storage.store import Store


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
