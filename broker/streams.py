"""Deleting what a stream let go of: log entries with their payloads, and the records of its chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from queue_manager.bucket import Run
from queue_manager.queue import Queue
from queue_manager.retention import add_to_runs
from storage.encoding import prefix_end
from storage.envelope import read_head
from storage.records import metadata, payload, payload_refs, queue_meta, stream_chunk

if TYPE_CHECKING:
    from broker.shard import Shard

SHARED_FLAG: Final = 0x10
ENTRIES_PER_STEP: Final = 16
CHUNKS_PER_STEP: Final = 500


async def trim(shard: Shard, stream: Queue) -> None:
    """Delete what lies wholly below the head, each log entry in one commit with its payloads."""
    manager = shard.manager
    head = stream.head_offset
    for scan in manager.log.scan_bounds(stream.log_id, stream.head_sequence):
        start = scan.start
        while not stream.deleted:
            rows = await shard.store.scan(start, scan.end, limit=ENTRIES_PER_STEP)
            for key, value in rows:
                messages = metadata.decode(value)
                if read_head(messages[-1][1])[1] >= head:
                    stream.head_sequence = max(stream.head_sequence, scan.sequence(key))
                    await _finish(shard, stream, head)
                    return
                await _delete_entry(shard, stream, key, messages)
                stream.head_sequence = max(stream.head_sequence, scan.sequence(key))
                await shard.commit_room()
            if len(rows) < ENTRIES_PER_STEP:
                break
            start = rows[-1][0] + b"\x00"
    await _finish(shard, stream, head)


async def _delete_entry(shard: Shard, stream: Queue, key: bytes, messages: list[tuple[int, bytes]]) -> None:
    runs: list[Run] = []
    references: dict[int, int] = {}
    for message_id, envelope in messages:
        flags, offset, _ = read_head(envelope)
        if flags & SHARED_FLAG:
            references[message_id] = await shard.references(message_id)
        else:
            add_to_runs(runs, offset, message_id)
    if stream.deleted:
        return  # its removal finds the entry, and lets go of the payloads
    journal = shard.manager.journal
    journal.delete(key)
    for _, first_id, count in runs:
        journal.delete_run(payload.key_run(first_id, count))
    for message_id, count in references.items():
        if count > 1:
            journal.put(payload_refs.key(message_id), payload_refs.encode(count - 1))
        else:
            journal.delete(payload_refs.key(message_id))
            journal.delete(payload.key(message_id))


async def _finish(shard: Shard, stream: Queue, head: int) -> None:
    """Delete the records of chunks below `head`, and write down where the log begins."""
    start = stream_chunk.prefix(stream.name)
    end = stream_chunk.key(stream.name, head)
    while rows := await shard.store.scan(start, end, limit=CHUNKS_PER_STEP):
        if stream.deleted:
            return
        for key, _ in rows:
            shard.manager.journal.delete(key)
        start = rows[-1][0] + b"\x00"
    if not stream.deleted:
        where = queue_meta.encode(stream.head_offset, stream.head_sequence)
        shard.manager.journal.put(queue_meta.key(stream.name), where)


async def remove_chunks(shard: Shard, name: str) -> None:
    """Delete the chunk records of a queue that is gone."""
    start = stream_chunk.prefix(name)
    end = prefix_end(start)
    while rows := await shard.store.scan(start, end, limit=CHUNKS_PER_STEP):
        for key, _ in rows:
            shard.manager.journal.delete(key)
        await shard.commit_room()
        start = rows[-1][0] + b"\x00"
