"""Queues and groups with their places in the log."""

from __future__ import annotations

import asyncio
from typing import Final

from broker.engine.scan import scan_prefix
from queue_manager import recovery
from queue_manager.definitions import UNBORN, StoredQueue
from queue_manager.group import Group
from queue_manager.manager import QueueManager
from queue_manager.streams.stream import Stream
from storage import layout
from storage.envelope import read_head
from storage.metadata_log import MetadataLog
from storage.records import (
    claim_state,
    group_position,
    log_cursor,
    metadata,
    queue_meta,
    queue_spec,
    stream_chunk,
)
from storage.records.claim_state import ClaimState
from storage.records.queue_spec import QueueSpec
from storage.store import Store

SCANS_AT_ONCE: Final = 32  # one by one where there are no more queues than that


async def restore_queues(store: Store, manager: QueueManager, now_ms: int) -> dict[str, Group]:
    """Restore every durable queue; gives the groups by their storage IDs."""
    specs = {
        queue_spec.parse_key(key): queue_spec.decode(value)
        async for key, value in scan_prefix(store, queue_spec.PREFIX)
    }
    metas = {
        queue_meta.parse_key(key): queue_meta.decode(value)
        async for key, value in scan_prefix(store, queue_meta.PREFIX)
    }
    places = await _Places.read(store)
    groups: dict[str, Group] = {}
    log_ends = await _log_ends(store, manager.log, specs)
    for storage_id, spec in sorted(specs.items()):
        name, group_id = layout.split_group_queue_id(storage_id)
        if not group_id:
            log_end = log_ends[storage_id]
            queue = recovery.restore_queue(manager, name, spec, metas.get(name), log_end, now_ms)
            if isinstance(queue, Stream):
                await _restore_chunks(store, queue, now_ms)
                continue
            if not recovery.has_default_group(spec):
                continue
        elif name not in manager.queues:
            continue  # its queue was being deleted
        else:
            queue = manager.queues[name]
        groups[storage_id] = recovery.restore_group(
            queue,
            spec if group_id else None,
            places.positions.get(storage_id),
            places.cursors.get(storage_id),
            places.claims.get(storage_id),
            spec.selector,
        )
        if UNBORN in spec.extensions:
            recovery.hold_back(groups[storage_id])
    return groups


class _Places:
    """How far each group was, by its storage ID."""

    __slots__ = ("claims", "cursors", "positions")

    def __init__(
        self, cursors: dict[str, int], claims: dict[str, ClaimState], positions: dict[str, int]
    ) -> None:
        self.cursors = cursors
        self.claims = claims
        self.positions = positions

    @classmethod
    async def read(cls, store: Store) -> _Places:
        """All groups' places."""
        cursors = {
            log_cursor.parse_key(key)[0]: log_cursor.decode(value)
            async for key, value in scan_prefix(store, log_cursor.PREFIX)
        }
        claims = {
            claim_state.parse_key(key): claim_state.decode(value)
            async for key, value in scan_prefix(store, claim_state.PREFIX)
        }
        positions = {
            group_position.parse_key(key): group_position.decode(value)
            async for key, value in scan_prefix(store, group_position.PREFIX)
        }
        return cls(cursors, claims, positions)


async def _restore_chunks(store: Store, stream: Stream, now_ms: int) -> None:
    rows = [
        (stream_chunk.parse_key(key).first_offset, stream_chunk.decode(value))
        async for key, value in scan_prefix(store, stream_chunk.prefix(stream.name))
    ]
    stream.restore(rows, now_ms)


async def _log_ends(store: Store, log: MetadataLog, specs: dict[str, QueueSpec]) -> dict[str, int]:
    """The offset behind the last message in the log of each queue, by the queue's name."""
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
