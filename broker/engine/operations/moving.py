"""Moving and copying messages between queues, in steps, at a bearable rate."""

from __future__ import annotations

from broker.engine.operations import browsing
from broker.engine.operations.pace import Pace, bounded, loaded, note
from broker.engine.shard import Shard
from config import limits
from queue_manager.api import State
from queue_manager.cursor.cursor import Cursor
from queue_manager.errors import InvalidArgument
from queue_manager.group.group import Group
from queue_manager.log.levels import priority_of
from queue_manager.moving.move import FailedMove, append_copy, to_queue
from queue_manager.moving.redrive import Drain
from queue_manager.queue.queue import Queue
from queue_manager.queue.stream import Stream
from storage.encoding import prefix_end
from storage.records import done, failed


async def move(
    shard: Shard,
    source: Queue,
    group: Group | None,
    target: Queue,
    state: State,
    limit: int | None,
    per_second: float | None,
) -> int:
    """Move messages; see `MessageClient.move`."""
    if isinstance(source, Stream):
        raise InvalidArgument(f"queue {source.name!r} is a stream: its messages stay; copy them")
    pace = Pace(shard, per_second)
    bound = bounded(limit, limits.MOVED_MESSAGES_PER_CALL_MAX)
    if state == "ready":
        return await _move_ready(shard, source, group, target, bound, pace)
    if state == "failed":
        moved = 0
        for cursor in () if group is None or not source.durable else group.cursors:
            moved += await _move_failed(shard, source, cursor, target, bound - moved, pace)
        return moved
    raise InvalidArgument(f"only ready and failed messages can be moved, not {state}")


async def _move_ready(
    shard: Shard, source: Queue, group: Group | None, target: Queue, bound: int, pace: Pace
) -> int:
    manager = shard.manager
    moving = Drain(manager, source, to_queue(target), bound, group)
    try:
        while True:
            room = await pace.next_step()
            before = moving.left
            looked_at = moving.step(room, shard.clock.now_ms())
            note(shard, pace, before - moving.left)
            if looked_at is None:
                await loaded(shard, moving)
            elif not looked_at:
                break
            else:
                await shard.commits.room_to_write()
    finally:
        moving.end(shard.clock.now_ms())
        manager.dispatch(shard.clock.now_ms())
        shard.wake()
    await shard.barrier()
    return bound - moving.left


async def _move_failed(
    shard: Shard, source: Queue, cursor: Cursor, target: Queue, bound: int, pace: Pace
) -> int:
    await shard.sweeper.retention_known()
    async with shard.redriving:
        await shard.sweeper.groups_removed(source)
        moving = FailedMove(cursor, target, bound)
        start = failed.prefix(cursor.storage_id)
        while moving.left:
            cursor.stored.write_soon()
            await shard.barrier()
            rows = await shard.store.scan(start, prefix_end(failed.prefix(cursor.storage_id)), limit=1)
            if not rows:
                break
            key, value = rows[0]
            asked = moving.wanted(value, await pace.next_step())
            if not asked:
                start = key + b"\x00"
                continue
            bodies, read_count = await shard.reader.read_payloads(asked)
            bucket_id = failed.parse_key(key)[1]
            done_value: bytes | None = None
            is_open = moving.is_open(bucket_id)  # then memory knows better than the record
            if not is_open:
                # closed for good: what is durable now is all there will be
                await shard.barrier()
                value = await shard.store.get(key) or b""
                done_value = await shard.store.get(done.key(cursor.storage_id, bucket_id))
            if cursor.is_over() or not value:
                break
            if is_open and not moving.is_open(bucket_id):
                continue
            now_ms = shard.clock.now_ms()
            note(shard, pace, moving.move(bucket_id, value, done_value, bodies, asked[:read_count], now_ms))
            await shard.commits.room_to_write()
        await shard.barrier()
    return bound - moving.left


async def copy(
    shard: Shard,
    source: Queue,
    group: Group | None,
    target: Queue,
    state: State,
    limit: int | None,
    per_second: float | None,
    start: str | None = None,
) -> int:
    """Copy messages; see `MessageClient.copy`. `start`: the cursor they come behind."""
    if state == "scheduled":
        raise InvalidArgument("scheduled messages can be cancelled, not copied")
    pace = Pace(shard, per_second)
    left = bound = bounded(limit, limits.MOVED_MESSAGES_PER_CALL_MAX)
    ends = [part.log.next_offset for part in source.parts]
    after = start
    while left:
        count = min(left, await pace.next_step())
        found, more = await browsing.find(shard, source, group, state, after=after, limit=count)
        bodies, read_count = await browsing.read_bodies(shard, [item.message for item in found])
        copied = 0
        for item in found[:read_count]:
            after = item.cursor
            offset = item.message.offset
            body = bodies.get(item.message.message_id)
            if body is not None and offset < ends[priority_of(offset)]:  # what is newer came meanwhile
                copied += append_copy(target, item.message, body, shard.clock.now_ms())
            elif offset >= ends[0] and len(ends) == 1:
                more = False
        left -= copied
        note(shard, pace, copied)
        await shard.commits.room_to_write()
        if not more and read_count == len(found):
            break
    await shard.barrier()
    return bound - left
