"""Taking away what only a deleted group kept, or a group before its reset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.recovery import scan_prefix
from config import limits
from queue_manager.group_removal import GroupRemoval
from storage import layout
from storage.envelope import read_head
from storage.records import active, attempts, done, failed, metadata, payload, payload_refs

if TYPE_CHECKING:
    from broker.shard import Shard

SHARED_FLAG: Final = 0x10


async def remove_group(shard: Shard, removal: GroupRemoval) -> None:
    """Do it to the end: payloads, references and what is left to do change together, in steps."""
    await _release_logged(shard, removal)
    if removal.has_rows:
        await _remove_rows(shard, removal)
    shard.manager.group_removed(removal)
    # the next removal must not find the same rows again
    await shard.barrier()


async def _release_logged(shard: Shard, removal: GroupRemoval) -> None:
    """Let go of the payloads of `log_free`, which the log tells."""
    manager = shard.manager
    queue = removal.queue
    free = removal.log_free
    if not free.starts:
        return
    for scan in manager.log.scan_bounds(queue.log_id, queue.head_sequence):
        start = scan.start
        while free.starts:
            rows = await shard.store.scan(start, scan.end, limit=limits.REMOVAL_ENTRIES_PER_STEP)
            if not rows:
                break
            found = []
            offset = 0
            for _, value in rows:
                for message_id, envelope in metadata.decode(value):
                    flags, offset, _ = read_head(envelope)
                    if free.contains(offset):
                        found.append((message_id, bool(flags & SHARED_FLAG)))
            if found or offset >= free.starts[0]:
                await _release(shard, found)
                free.discard(0, offset + 1)
                manager.journal.put(removal.key(), removal.encode())
            await shard.commit_room()
            start = rows[-1][0] + b"\x00"
    for first, last in free.pairs():
        free.discard(first, last)  # the log has nothing of these


async def _release(shard: Shard, found: list[tuple[int, bool]]) -> None:
    """Let go of payloads; whatever is added to the journal right after this goes with them."""
    left = {
        message_id: await shard.references(message_id) - 1 for message_id, is_shared in found if is_shared
    }
    journal = shard.manager.journal
    for message_id, is_shared in found:
        if is_shared:
            if left[message_id] > 0:
                journal.put(payload_refs.key(message_id), payload_refs.encode(left[message_id]))
                continue
            journal.delete(payload_refs.key(message_id))
        journal.delete(payload.key(message_id))


async def _remove_rows(shard: Shard, removal: GroupRemoval) -> None:
    """Delete the buckets of the group's earlier life; each row with what it tells in one commit."""
    storage_id = removal.storage_id
    # a message may be in two of them at a crash, never with a payload in none: failed ones go last
    for prefix, decode in (
        (active.prefix(storage_id), _active_elements),
        (done.prefix(storage_id), _settled_elements),
    ):
        async for key, value in scan_prefix(shard.store, prefix, limits.REMOVAL_ENTRIES_PER_STEP):
            if _is_earlier(removal, key):
                await _drop(shard, removal, key, decode(value), None)
    async for key, value in scan_prefix(
        shard.store, failed.prefix(storage_id), limits.REMOVAL_ENTRIES_PER_STEP
    ):
        if not _is_earlier(removal, key):
            continue
        messages = failed.decode(value)
        kept = [m for m in messages if removal.keeps_failed(read_head(m.metadata)[1])]
        gone = [m for m in messages if not removal.keeps_failed(read_head(m.metadata)[1])]
        if gone:
            remaining = done.encode_packed([done.pack_done(*m) for m in kept]) if kept else None
            await _drop(shard, removal, key, [(m.message_id, m.metadata) for m in gone], remaining)


def _is_earlier(removal: GroupRemoval, key: bytes) -> bool:
    return int.from_bytes(key[-8:], "big") & layout.NUMBER_MASK < removal.claim_end


async def _drop(
    shard: Shard,
    removal: GroupRemoval,
    key: bytes,
    elements: list[tuple[int, bytes]],
    remaining: bytes | None,
) -> None:
    found = []
    for message_id, envelope in elements:
        flags, offset, _ = read_head(envelope)
        if removal.lets_go(offset):
            found.append((message_id, bool(flags & SHARED_FLAG)))
    await _release(shard, found)
    journal = shard.manager.journal
    own = removal.queue.groups.get(removal.group_id)
    for message_id, _ in elements:
        journal.delete(attempts.key(removal.storage_id, message_id))
        if own is not None:
            own.attempts_log.pop(message_id, None)
            own.attempts_dirty.discard(message_id)
    if remaining is None:
        journal.delete(key)
    else:
        journal.put(key, remaining)
    await shard.commit_room()


def _active_elements(value: bytes) -> list[tuple[int, bytes]]:
    available, in_flight = active.decode(value)
    return [(row[0], row[3]) for row in available] + [(row[0], row[5]) for row in in_flight]


def _settled_elements(value: bytes) -> list[tuple[int, bytes]]:
    return [(message.message_id, message.metadata) for message in done.decode(value)]
