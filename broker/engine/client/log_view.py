"""Reading a queue's log beside its groups, and finding a place in it by offset or time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from broker.engine.log_steps import Steps, walk_log
from broker.engine.shard import Shard
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.tail import RELEASED
from queue_manager.model import Message
from storage.envelope import TemplateCache, read_head
from storage.records import metadata

ENTRIES_PER_SCAN: Final = 16
SEARCH_STEPS_MAX: Final = 64

Place = tuple[int, int, int]  # sequence, offset and receipt time of the first message of a log entry


async def read_from(shard: Shard, log: QueueLog, offset: int) -> AsyncIterator[list[Message]]:
    """Return the messages of a log from `offset` on, in parts, those on the store without body. Nothing is
    touched.

    Messages whose payload was let go of are among them, as far as the log still tells of them.
    """
    templates = TemplateCache()
    offset = max(offset, log.head_offset)
    if offset < log.tail.first_offset:
        sequence = await sequence_of(shard, log, offset)
        steps = Steps(1)  # a page may come with the first entry
        ranges = shard.metadata_log.scan_bounds(log.log_id, sequence)
        async for _, rows in walk_log(shard.store, ranges, steps):
            steps.go_on_by(min(2 * steps.entry_count, ENTRIES_PER_SCAN))
            part = []
            for _, value in rows:
                for message_id, envelope in metadata.decode(value):
                    _, at, received_at_ms = read_head(envelope)
                    if offset <= at < log.tail.first_offset:
                        template = templates.find(envelope)
                        part.append(Message(message_id, at, None, template, received_at_ms))
            if part:
                offset = part[-1].offset + 1
                yield part
            if offset >= log.tail.first_offset or log.deleted:
                break
    while not log.deleted:
        offset = max(offset, log.tail.first_offset)
        tail_part = log.tail.slice(offset, 1_000)
        if not tail_part:
            return
        offset += len(tail_part)
        if kept := [message for message in tail_part if message is not RELEASED]:
            yield kept


async def sequence_of(shard: Shard, log: QueueLog, offset: int) -> int:
    """Return a metadata-log sequence at or before the entry that holds `offset`, near it."""
    known = log.sequence_at(offset)
    if known is not None:
        return known
    place = await _last_entry(shard, log, lambda place: place[1] <= offset)
    return log.head_sequence if place is None else place[0]


async def offset_at(shard: Shard, log: QueueLog, time_ms: int) -> int:
    """Return the offset of the first message kept that was published at `time_ms` or later."""
    await shard.barrier()
    start = log.head_offset
    if log.durable and start < log.tail.first_offset:
        place = await _last_entry(shard, log, lambda place: place[2] < time_ms)
        if place is not None:
            start = place[1]
    async for part in read_from(shard, log, start):
        for message in part:
            if message.received_at_ms >= time_ms:
                return message.offset
    return log.tail.next_offset


async def _last_entry(shard: Shard, log: QueueLog, is_before: Callable[[Place], bool]) -> Place | None:
    """Return the last entry of the queue's log that `is_before`, which holds for all entries up to some
    place.
    """
    low, high = log.head_sequence, shard.metadata_log.next_sequence
    found = None
    for _ in range(SEARCH_STEPS_MAX):
        if low >= high:
            break
        middle = (low + high) // 2
        place = await _first_entry(shard, log, middle)
        if place is None or not is_before(place):
            high = middle
        else:
            found = place
            low = place[0] + 1
    return found


async def _first_entry(shard: Shard, log: QueueLog, sequence: int) -> Place | None:
    ranges = shard.metadata_log.scan_bounds(log.log_id, sequence)
    async for scan, rows in walk_log(shard.store, ranges, Steps(1)):
        _, offset, received_at_ms = read_head(metadata.decode(rows[0][1])[0][1])
        return scan.sequence(rows[0][0]), offset, received_at_ms
    return None
