"""Deleting what a stream let go of: log entries with their payloads, and the records of its chunks."""

from __future__ import annotations

from typing import Final

from broker.engine.deleting import Deleting
from broker.engine.log_steps import Steps
from broker.engine.payload_references import drop_reference
from queue_manager.log.payloads import Run, add_to_runs
from queue_manager.log.queue_log import QueueLog
from storage.envelope import SHARED, read_head
from storage.records import metadata, payload_keys, queue_meta, stream_chunk

ENTRIES_PER_STEP: Final = 16
CHUNKS_PER_STEP: Final = 500


async def trim_stream(at: Deleting, stream: QueueLog) -> None:
    """Delete what lies wholly below the head, each log entry in one commit with its payloads."""
    head = stream.head_offset
    async for scan, rows in at.entries(stream.log_id, stream.head_sequence, Steps(ENTRIES_PER_STEP)):
        if stream.deleted:
            return
        for key, value in rows:
            messages = metadata.decode(value)
            if read_head(messages[-1][1])[1] >= head:
                stream.begin_reading_at(scan.sequence(key))
                await _finish(at, stream, head)
                return
            await _delete_entry(at, stream, key, messages)
            stream.begin_reading_at(scan.sequence(key))
            await at.commits.room_for_deletes()
    await _finish(at, stream, head)


async def _delete_entry(
    at: Deleting, stream: QueueLog, key: bytes, messages: list[tuple[int, bytes]]
) -> None:
    runs: list[Run] = []
    shared: list[int] = []
    for message_id, envelope in messages:
        flags, offset, _ = read_head(envelope)
        if flags & SHARED:
            shared.append(message_id)
        else:
            add_to_runs(runs, offset, message_id)
    async with at.references.counted(shared) as counts:
        if stream.deleted:
            return  # its removal finds the entry, and lets go of the payloads
        commit = at.commit
        commit.delete(key)
        for _, first_id, count in runs:
            commit.delete_run(payload_keys(first_id, count))
        for message_id, count in counts.items():
            drop_reference(commit, message_id, count)


async def _finish(at: Deleting, stream: QueueLog, head: int) -> None:
    """Delete the records of chunks below `head`, and write down where the log begins."""
    start = stream_chunk.prefix(stream.name)
    end = stream_chunk.key(stream.name, head)
    while rows := await at.store.scan(start, end, limit=CHUNKS_PER_STEP):
        if stream.deleted:
            return
        for key, _ in rows:
            at.commit.delete(key)
        start = rows[-1][0] + b"\x00"
    if not stream.deleted:
        where = queue_meta.encode(stream.head_offset, stream.head_sequence)
        at.commit.put(queue_meta.key(stream.name), where)
