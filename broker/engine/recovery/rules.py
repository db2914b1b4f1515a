"""What rules of queues keep: schedules, identities of messages, staged epochs, what expires."""

from __future__ import annotations

from broker.engine.scan import scan_prefix
from queue_manager.manager import QueueManager
from queue_manager.recovery.queues import restore_expiry
from queue_manager.rules.staging.restoring import FoundAttempt, found_attempt, restore_stage
from storage import layout
from storage.encoding import prefix_end
from storage.records import (
    committed_epoch,
    epoch,
    expiry,
    identified,
    producer,
    queue_account,
    scheduled,
    staged_rows,
)
from storage.records.committed_epoch import CommittedEpoch
from storage.records.epoch import DecidedEpoch
from storage.records.identified import Identified
from storage.records.producer import ProducerProgress
from storage.store import Store


async def restore_schedules(store: Store, manager: QueueManager) -> None:
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
            queue.restore_schedule()
        start = prefix_end(scheduled.prefix(name))


async def restore_identities(store: Store, manager: QueueManager, now_ms: int) -> None:
    """What queues remember of message and producer IDs."""
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
            queue.identities.restore(seen, producers, now_ms)


async def restore_stages(store: Store, manager: QueueManager, now_ms: int) -> None:
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
            restore_stage(
                queue.stage,
                name,
                producers.get(name, {}),
                decided.get(name, []),
                found.get(name, []),
                now_ms,
            )


async def restore_expiries(store: Store, manager: QueueManager) -> None:
    """Find out what expires, and what was let go of out of order."""
    counts: dict[tuple[str, int], queue_account.Bytes] = {}
    async for key, value in scan_prefix(store, queue_account.PREFIX):
        queue_id, kind, number = queue_account.parse_key(key)
        part = manager.queues.part(layout.split_group_queue_id(queue_id)[0])
        if part is None:
            continue
        if kind == queue_account.AHEAD:
            part.restore_expired(number, queue_account.decode_ranges(value))
        elif part.log.policy.counts_bytes():
            counts[queue_id, kind] = queue_account.decode_bytes(value)
        else:
            manager.context.commit.delete(key)  # the bound is gone
    start: bytes | None = expiry.PREFIX
    end = prefix_end(expiry.PREFIX)
    while start is not None:
        rows = await store.scan(start, end, limit=1)
        if not rows:
            break
        name = expiry.parse_key(rows[0][0]).queue_id
        part = manager.queues.part(name)
        if part is not None:
            part.use_rules().restore_own()
        start = prefix_end(expiry.prefix(name))
    for queue in manager.queues:
        for part in queue.parts:
            restore_expiry(part, counts)
