"""Taking away what only a deleted group kept, or a group before its reset."""

from __future__ import annotations

from collections.abc import Iterable

from broker.engine.deleting import Deleting
from broker.engine.log_steps import FittingSteps, scan_prefix
from config import limits
from queue_manager.log.removals import GroupRemoval
from queue_manager.queue.part import Part
from queue_manager.queue.queue_record_types import ACTIVE_TYPE, DONE_TYPE, FAILED_TYPE
from queue_manager.shard.record_types import HeldPayloads
from storage import layout
from storage.envelope import SHARED, read_head
from storage.records import DELETE, attempts, failed, metadata, payload
from storage.records.bucket_values import pack_settled


async def remove_group(at: Deleting, removal: GroupRemoval) -> None:
    """Do it to the end: payloads, references and what is left to do change together, in steps."""
    await _release_logged(at, removal)
    if removal.has_rows:
        await _remove_rows(at, removal)
    at.manager.group_removed(removal)
    # the next removal must not find the same rows again
    await at.commits.barrier()


async def _release_logged(at: Deleting, removal: GroupRemoval) -> None:
    """Let go of the payloads of `log_free`, which the log tells."""
    log = removal.log
    free = removal.log_free
    if not free.starts:
        return
    async for _, rows in at.entries(log.log_id, log.head_sequence, FittingSteps()):
        found = []
        offset = 0
        for _, value in rows:
            for message_id, envelope in metadata.decode(value):
                flags, offset, _ = read_head(envelope)
                if free.contains(offset):
                    found.append((message_id, bool(flags & SHARED)))
        if found or offset >= free.starts[0]:
            await _release(at, removal, found)
            free.discard(0, offset + 1)
            at.commit.put(removal.key(), removal.encode())
        await at.commits.room_for_deletes()
        if not free.starts:
            return
    for first, last in free.pairs():
        free.discard(first, last)  # the log has nothing of these


async def _release(at: Deleting, removal: GroupRemoval, found: list[tuple[int, bool]]) -> None:
    """Let go of payloads; whatever is added to the commit right after this goes with them."""
    own = [payload.key(message_id) for message_id, is_shared in found if not is_shared]
    shared = [message_id for message_id, is_shared in found if is_shared]
    async with at.letting_go(own, shared) as commit:
        if removal.of_queue is not None:
            removal.of_queue.note_let_go_before(shared, commit)


async def _remove_rows(at: Deleting, removal: GroupRemoval) -> None:
    """Delete the buckets of the group's earlier life; each row with what it tells in one commit."""
    storage_id = removal.storage_id
    # a message may be in two of them at a crash, never with a payload in none: failed ones go last
    for kind in (ACTIVE_TYPE, DONE_TYPE):
        async for row in scan_prefix(at.store, kind.record.prefix(storage_id), kind.rows_per_step):
            if _is_earlier(removal, row[0]):
                await _drop(at, removal, row[0], kind.held(row), None)
    async for key, value in scan_prefix(at.store, failed.prefix(storage_id), limits.REMOVAL_ENTRIES_PER_STEP):
        if not _is_earlier(removal, key):
            continue
        kept = [m for m in failed.decode(value) if removal.keeps_failed(read_head(m.metadata)[1])]
        held = FAILED_TYPE.held((key, value))
        gone = [h for h in held if h.offset is not None and not removal.keeps_failed(h.offset)]
        if gone:
            remaining = failed.encode([pack_settled(*message) for message in kept]) if kept else None
            await _drop(at, removal, key, gone, remaining)


async def _drop(
    at: Deleting,
    removal: GroupRemoval,
    key: bytes,
    gone: Iterable[HeldPayloads],
    remaining: bytes | None,
) -> None:
    gone = list(gone)
    part = at.manager.queues.part(removal.log.name)
    found = [
        (held.first_id, held.is_shared)
        for held in gone
        if held.offset is not None and _lets_go(removal, part, held.offset, held.first_id)
    ]
    await _release(at, removal, found)
    commit = at.commit
    own = None if part is None else part.cursors.get(removal.group_id)
    for held in gone:
        commit.delete(attempts.key(removal.storage_id, held.first_id))
        if own is not None:
            own.claims.buckets.attempt_log.forget(held.first_id)
    if remaining is None:
        commit.delete(key)
    else:
        commit.put(key, remaining)
    await at.commits.room_for_deletes()


def _lets_go(removal: GroupRemoval, part: Part | None, offset: int, message_id: int) -> bool:
    """Return whether the payload of a message in a row that goes is to go with it."""
    if part is not None:
        return part.retention.lets_go(removal, offset)
    # its queue was deleted meanwhile
    if removal.mode == DELETE:
        return removal.row_free.contains(offset)
    # what only this group kept; records of other groups may tell of it, too
    of_queue = removal.of_queue
    return offset < removal.head and of_queue is not None and not of_queue.is_let_go(message_id)


def _is_earlier(removal: GroupRemoval, key: bytes) -> bool:
    return int.from_bytes(key[-8:], "big") & layout.NUMBER_MASK < removal.claim_end
