"""Queues and groups with their places in the log."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from broker.engine.log_steps import scan_records
from queue_manager.cursor.cursor import Cursor
from queue_manager.group.group import Group
from queue_manager.log.levels import split_level_name
from queue_manager.manager import QueueManager
from queue_manager.queue.queue import Queue
from queue_manager.queue.stream import Stream
from queue_manager.recovery.queues import (
    StoredCursor,
    StoredLog,
    has_default_group,
    restore_group,
    restore_queue,
)
from queue_manager.spec_records import AWAITS_HISTORY, StoredQueue
from storage import layout
from storage.envelope import read_head
from storage.metadata_log import MetadataLog
from storage.records import (
    ClaimState,
    QueueSpec,
    claim_state,
    group_position,
    log_cursor,
    metadata,
    queue_meta,
    queue_spec,
    stream_chunk,
)
from storage.store import Store

SCANS_AT_ONCE: Final = 32  # one by one where there are no more queues than that


async def restore_queues(store: Store, manager: QueueManager, now_ms: int) -> dict[Cursor, Group]:
    """Restore every durable queue; gives the cursors of the groups."""
    specs = {queue_id: spec async for queue_id, spec in scan_records(store, queue_spec)}
    metas = {name: meta async for name, meta in scan_records(store, queue_meta)}
    places = await _Places.read(store)
    log_ends = await _log_ends(store, manager.context.metadata_log, specs)
    logs: dict[str, StoredLog] = {
        name: (specs[name], metas.get(name), log_end) for name, log_end in log_ends.items()
    }
    cursors: dict[Cursor, Group] = {}
    for spec_id, spec in sorted(specs.items()):
        name, group_id = layout.split_group_queue_id(spec_id)
        if split_level_name(name)[1]:
            continue  # goes with its queue
        if not group_id:
            queue = restore_queue(manager.context, manager.queues, name, logs, now_ms)
            if isinstance(queue, Stream):
                await _restore_chunks(store, queue, now_ms)
                continue
            if not has_default_group(spec):
                continue
        else:
            known = manager.queues.get(name)
            if known is None:
                continue  # its queue was being deleted
            queue = known
        stored = [places.of(part_id, specs) for part_id in _storage_ids(queue, group_id)]
        group = restore_group(queue, spec, group_id, stored)
        cursors.update(dict.fromkeys(group.cursors, group))
    return cursors


def _storage_ids(queue: Queue, group_id: str) -> list[str]:
    return [layout.group_queue_id(part.log.name, group_id) for part in queue.parts]


class _Places(NamedTuple):
    """How far each group was, by its storage ID."""

    cursors: dict[str, int]
    claims: dict[str, ClaimState]
    positions: dict[str, int]

    def of(self, storage_id: str, specs: dict[str, QueueSpec]) -> StoredCursor:
        """Return what the records tell of one group in one log."""
        spec = specs.get(storage_id)
        return StoredCursor(
            self.positions.get(storage_id),
            self.cursors.get(storage_id),
            self.claims.get(storage_id),
            awaits_history=spec is not None and AWAITS_HISTORY in spec.extensions,
        )

    @classmethod
    async def read(cls, store: Store) -> _Places:
        """Return all groups' places."""
        cursors = {key.queue_id: sequence async for key, sequence in scan_records(store, log_cursor)}
        claims = {queue_id: state async for queue_id, state in scan_records(store, claim_state)}
        positions = {queue_id: offset async for queue_id, offset in scan_records(store, group_position)}
        return cls(cursors, claims, positions)


async def _restore_chunks(store: Store, stream: Stream, now_ms: int) -> None:
    scan = scan_records(store, stream_chunk, stream.name)
    rows = [(key.first_offset, chunk) async for key, chunk in scan]
    stream.restore(rows, now_ms)


async def _log_ends(store: Store, log: MetadataLog, specs: dict[str, QueueSpec]) -> dict[str, int]:
    """Return the offset behind the last message in the log of each queue, by the queue's name."""
    ends: dict[str, int] = {}
    names = [name for name in specs if layout.GROUP_SEPARATOR not in name]
    for first in range(0, len(names), SCANS_AT_ONCE):
        part = names[first : first + SCANS_AT_ONCE]
        reads = [_log_end(store, log, StoredQueue(specs[name]).log_id) for name in part]
        if len(names) > SCANS_AT_ONCE:
            ends.update(zip(part, await asyncio.gather(*reads), strict=True))
        else:
            ends.update([(name, await read) for name, read in zip(part, reads, strict=True)])
    return ends


async def _log_end(store: Store, log: MetadataLog, log_id: str) -> int:
    for scan in reversed(log.scan_bounds(log_id)):
        rows = await store.scan(scan.start, scan.end, limit=1, reverse=True)
        if rows:
            _, envelope = metadata.decode(rows[0][1])[-1]
            return read_head(envelope)[1] + 1
    return 0
