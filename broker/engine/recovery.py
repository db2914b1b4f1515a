"""Bringing a shard up from its store: scan the records, let `queue_manager.recovery` make sense of them.

What serving needs is read first (`recover`): specs, cursors, open buckets, each log's last entry. What only
retention needs, the done and failed records, is read afterwards in the background (`recover_done`).
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker.engine.scan import scan_prefix
from config import limits
from queue_manager import recovery
from queue_manager.definitions import UNBORN, StoredQueue
from queue_manager.group import Group
from queue_manager.group_removal import GroupRemoval
from queue_manager.identities import Identities
from queue_manager.manager import QueueManager
from queue_manager.queue import Queue
from queue_manager.ranges import RangeSet
from queue_manager.removal import QueueRemoval
from queue_manager.retention import Purge
from queue_manager.staging.restoring import FoundAttempt, found_attempt, restore_stage
from queue_manager.streams.group import StreamGroup
from queue_manager.streams.stream import Stream
from storage import layout
from storage.encoding import prefix_end
from storage.envelope import TemplateCache, read_head
from storage.metadata_log import SEQ_BLOCK_KEY, MetadataLog, segment_meta_bounds
from storage.records import (
    active,
    attempts,
    claim_state,
    committed_epoch,
    done,
    epoch,
    expiry,
    failed,
    group_position,
    group_removal,
    holes,
    identified,
    log_cursor,
    message_ids,
    metadata,
    passed,
    producer,
    queue_account,
    queue_meta,
    queue_spec,
    removal,
    scheduled,
    staged_rows,
    stream_chunk,
    taken_ahead,
)
from storage.records.committed_epoch import CommittedEpoch
from storage.records.epoch import DecidedEpoch
from storage.records.identified import Identified
from storage.records.producer import ProducerProgress
from storage.records.queue_spec import QueueSpec
from storage.sequence import SequenceAllocator, decode_block
from storage.store import Store

SCANS_AT_ONCE: Final = 32  # one by one where there are no more queues than that


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
    specs = {
        queue_spec.parse_key(key): queue_spec.decode(value)
        async for key, value in scan_prefix(store, queue_spec.PREFIX)
    }
    metas = {
        queue_meta.parse_key(key): queue_meta.decode(value)
        async for key, value in scan_prefix(store, queue_meta.PREFIX)
    }
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
    await _restore_removals(store, manager)
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
            positions.get(storage_id),
            cursors.get(storage_id),
            claims.get(storage_id),
            spec.selector,
        )
        if UNBORN in spec.extensions:
            recovery.hold_back(groups[storage_id])
    await _restore_released(store, manager, groups)
    await _restore_buckets(store, groups, now_ms)
    recovery.join_lanes(manager)
    await _restore_schedules(store, manager)
    await _restore_identities(store, manager, now_ms)
    await _restore_stages(store, manager, now_ms)
    await _restore_keepers(store, manager)
    await _restore_attempts(store, groups)
    unborn = set(manager.unborn)
    return {
        group: group.taken()
        for group in groups.values()
        if not isinstance(group, StreamGroup) and group not in unborn
    }


async def _restore_released(store: Store, manager: QueueManager, groups: dict[str, Group]) -> None:
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


async def _restore_removals(store: Store, manager: QueueManager) -> None:
    """Deletions of queues that were under way go on."""
    async for key, value in scan_prefix(store, removal.PREFIX):
        log_id = removal.parse_key(key)
        pending = removal.decode(value)
        manager.removing[pending.queue_name] = []
        manager.removals.append(QueueRemoval(pending.queue_name, log_id, pending.queue_ids, 0, None))
        manager.next_log_number = max(manager.next_log_number, int(log_id[1:]) + 1)


async def _restore_attempts(store: Store, groups: dict[str, Group]) -> None:
    async for key, value in scan_prefix(store, attempts.PREFIX):
        storage_id, message_id = attempts.parse_key(key)
        group = groups.get(storage_id)
        if group is not None:
            group.attempts_log[message_id] = [
                *attempts.decode(value),
                *group.attempts_log.get(message_id, []),
            ]


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


async def _restore_buckets(store: Store, groups: dict[str, Group], now_ms: int) -> None:
    templates = TemplateCache()
    pending: dict[tuple[str, int], bytes | None] = {}
    async for key, active_value in scan_prefix(store, active.PREFIX):
        pending[active.parse_key(key)] = active_value
    for storage_id, group in groups.items():
        first = group.next_claim - group.next_claim % group.capacity
        if first != group.next_claim:
            pending.setdefault((storage_id, group.claim_base | first), None)
    for (storage_id, bucket_id), value in sorted(pending.items()):
        owner = groups.get(storage_id)
        if owner is not None and bucket_id & layout.NUMBER_MASK >= owner.first_claim:
            recovery.restore_bucket(
                owner,
                bucket_id,
                value,
                await store.get(done.key(storage_id, bucket_id)),
                await store.get(failed.key(storage_id, bucket_id)),
                templates,
                now_ms,
            )


async def _restore_keepers(store: Store, manager: QueueManager) -> None:
    """Find out what expires, and what was given up out of order."""
    counts: dict[tuple[str, int], queue_account.Bytes] = {}
    async for key, value in scan_prefix(store, queue_account.PREFIX):
        queue_id, kind, part = queue_account.parse_key(key)
        queue = manager.queues.get(layout.split_group_queue_id(queue_id)[0])
        if queue is None:
            continue
        if kind == queue_account.AHEAD:
            queue.keep().restore_ahead(part, queue_account.decode_ranges(value))
        elif queue.policy.counts_bytes():
            counts[queue_id, kind] = queue_account.decode_bytes(value)
        else:
            manager.journal.delete(key)  # the bound is gone
    start: bytes | None = expiry.PREFIX
    end = prefix_end(expiry.PREFIX)
    while start is not None:
        rows = await store.scan(start, end, limit=1)
        if not rows:
            break
        name = expiry.parse_key(rows[0][0]).queue_id
        if name in manager.queues:
            manager.queues[name].keep().restore_own()
        start = prefix_end(expiry.prefix(name))
    for queue in manager.queues.values():
        recovery.restore_keeper(queue, counts)


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


async def _restore_schedules(store: Store, manager: QueueManager) -> None:
    """Find the queues with scheduled messages: one look for each of them, and one for the end."""
    start: bytes | None = scheduled.PREFIX
    end = prefix_end(scheduled.PREFIX)
    while start is not None:
        rows = await store.scan(start, end, limit=1)
        if not rows:
            return
        name = scheduled.parse_key(rows[0][0]).queue_id
        queue = manager.queues.get(name)
        if queue is not None:
            manager.restore_schedule(queue)
        start = prefix_end(scheduled.prefix(name))


async def _restore_identities(store: Store, manager: QueueManager, now_ms: int) -> None:
    found: dict[str, tuple[list[tuple[str, Identified]], list[tuple[str, ProducerProgress]]]] = {}
    async for key, value in scan_prefix(store, identified.PREFIX):
        queue_name, name = identified.parse_key(key)
        found.setdefault(queue_name, ([], []))[0].append((name, identified.decode(value)))
    async for key, value in scan_prefix(store, producer.PREFIX):
        queue_name, name = producer.parse_key(key)
        found.setdefault(queue_name, ([], []))[1].append((name, producer.decode(value)))
    for queue_name, (seen, producers) in found.items():
        queue = manager.queues.get(queue_name)
        if queue is not None:
            queue.identities = Identities(queue)
            queue.identities.restore(seen, producers, now_ms)


async def _restore_stages(store: Store, manager: QueueManager, now_ms: int) -> None:
    """What is staged: of each attempt only its first and last record are read."""
    producers: dict[str, dict[str, CommittedEpoch]] = {}
    async for key, value in scan_prefix(store, committed_epoch.PREFIX):
        name, producer_id = committed_epoch.parse_key(key)
        producers.setdefault(name, {})[producer_id] = committed_epoch.decode(value)
    decided: dict[str, list[tuple[int, DecidedEpoch]]] = {}
    async for key, value in scan_prefix(store, epoch.PREFIX):
        name, number = epoch.parse_key(key)
        decided.setdefault(name, []).append((number, epoch.decode(value)))
    found: dict[str, list[FoundAttempt]] = {}
    start: bytes | None = staged_rows.PREFIX
    end = prefix_end(staged_rows.PREFIX)
    while start is not None and (rows := await store.scan(start, end, limit=1)):
        first_key, first_value = rows[0]
        prefix = staged_rows.attempt_prefix(*staged_rows.parse_key(first_key)[:5])
        start = prefix_end(prefix)
        last_key, last_value = (await store.scan(first_key, start, limit=1, reverse=True))[0]
        name = staged_rows.parse_key(first_key).queue_id
        found.setdefault(name, []).append(found_attempt(first_key, first_value, last_key, last_value))
    for name in {**producers, **decided, **found}:
        queue = manager.queues.get(name)
        if queue is not None:
            restore_stage(queue, producers.get(name, {}), decided.get(name, []), found.get(name, []), now_ms)


async def recover_done(store: Store, taken: dict[Group, RangeSet]) -> None:
    """Read the done and failed records of the recovered groups: what is to be purged when, what is gone.

    Nothing of these queues is purged before this has run. Groups that are dealt with leave `taken`, so
    that after a StorageError the call may be repeated.
    """
    open_buckets = {group: {bucket.bucket_id for bucket in group.buckets.values()} for group in taken}
    last_claims = {group: group.next_claim for group in taken}
    scheduled = {group: {purge.bucket_id for purge in group.purges} for group in taken}
    by_queue: dict[Queue, dict[Group, RangeSet]] = {}
    for group, offsets_taken in taken.items():
        by_queue.setdefault(group.queue, {})[group] = offsets_taken
    for queue, groups in by_queue.items():
        kept = {group: RangeSet() for group in groups}
        failures: list[tuple[Group, int, bytes]] = []
        purges: dict[Group, list[Purge]] = {group: [] for group in groups}
        for group in groups:
            async for key, value in scan_prefix(
                store, failed.prefix(group.storage_id), limits.RECOVERY_DONE_ROWS_PER_SCAN
            ):
                failures.append((group, failed.parse_key(key)[1], value))
            async for key, value in scan_prefix(
                store, done.prefix(group.storage_id), limits.RECOVERY_DONE_ROWS_PER_SCAN
            ):
                bucket_id = done.parse_key(key)[1]
                if bucket_id & layout.NUMBER_MASK < group.first_claim:
                    continue  # from before a reset
                if bucket_id in open_buckets[group] or bucket_id & layout.NUMBER_MASK >= last_claims[group]:
                    continue
                purge, offsets = recovery.purge_of_record(group, bucket_id, value)
                for offset in offsets:
                    kept[group].add(offset, offset + 1)
                if purge is not None and bucket_id not in scheduled[group]:
                    purges[group].append(purge)
        # nothing was changed before everything of this queue was read: an error until here may be retried
        for group, bucket_id, value in failures:
            recovery.restore_failed(group, bucket_id, value)
        for group, found in purges.items():
            group.purges.extendleft(reversed(found))
            group.mark_purgeable()
        recovery.restore_released(queue, groups, kept)
        for group in groups:
            del taken[group]
