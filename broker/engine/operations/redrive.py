"""Redriving: failed messages back into their group, dead letters back to their queue, at a bearable rate."""

from __future__ import annotations

from collections.abc import Collection

from broker.engine.operations.pace import Pace, bounded, loaded, note
from broker.engine.scan import scan_prefix
from broker.engine.shard import Shard
from config import limits
from queue_manager.errors import InvalidArgument
from queue_manager.moving.redrive import Drain, FailedRedrive, to_origin
from storage.records import done, failed


async def redrive_failed(
    shard: Shard,
    queue: str,
    group_id: str,
    *,
    limit: int | None = None,
    offsets: Collection[int] | None = None,
    per_second: float | None = None,
) -> int:
    """Have a group try its failed messages again, at their original places; give how many it were.

    `offsets` are those meant, None is all; at most `limit`, and at most
    `limits.REDRIVEN_MESSAGES_PER_CALL_MAX`. Returns when it is durable. Raises QueueNotFound, GroupNotFound,
    InvalidArgument, StorageError.
    """
    pace = Pace(shard, per_second)
    source = shard.manager.queues.find(queue)
    group = source.groups.find(group_id)
    if not source.durable:
        return 0
    await shard.sweeper.retention_known()
    total = 0
    most = bounded(limit, limits.REDRIVEN_MESSAGES_PER_CALL_MAX)
    async with shard.redriving:
        await shard.sweeper.groups_removed(source)
        for cursor in group.cursors:
            if cursor.is_removed:
                return total
            redrive = FailedRedrive(cursor, most - total, offsets)
            total += await _redrive(shard, redrive, pace)
    return total


async def _redrive(shard: Shard, redrive: FailedRedrive, pace: Pace) -> int:
    cursor = redrive.cursor
    total = 0
    await shard.barrier()
    prefix = failed.prefix(cursor.storage_id)
    async for key, value in scan_prefix(shard.store, prefix, limits.FAILED_ROWS_PER_SCAN):
        bucket_id = failed.parse_key(key)[1]
        if not redrive.wants(bucket_id, value):
            continue
        await pace.next_step()
        done_value = await shard.store.get(done.key(cursor.storage_id, bucket_id))
        if cursor.is_over():
            break
        total += note(shard, pace, redrive.take_closed(bucket_id, value, done_value, shard.clock.now_ms()))
        await shard.commits.room_for_deletes()
    while redrive.left and not cursor.is_over():
        count = redrive.take_open(shard.clock.now_ms(), await pace.next_step())
        if not count:
            break
        total += note(shard, pace, count)
    await shard.barrier()
    return total


async def redrive_dead_letters(
    shard: Shard,
    dlq: str,
    *,
    target: str | None = None,
    limit: int | None = None,
    per_second: float | None = None,
) -> int:
    """Move what waits in a dead-letter queue back to where it came from, or to `target`.

    That is what its default group has waiting. Gives how many went; what could not go keeps its place. At
    most `limit`, and at most `limits.REDRIVEN_MESSAGES_PER_CALL_MAX`. Returns when it is durable. Raises
    QueueNotFound, InvalidArgument, StorageError.
    """
    manager = shard.manager
    source = manager.queues.find(dlq)
    destination = None if target is None else manager.queues.find(target)
    if destination is source:
        raise InvalidArgument(f"queue {dlq!r} cannot be redriven into itself")
    pace = Pace(shard, per_second)
    bound = bounded(limit, limits.REDRIVEN_MESSAGES_PER_CALL_MAX)
    redrive = Drain(manager, source, to_origin(manager, source, destination), bound)
    try:
        while True:
            room = await pace.next_step()
            before = redrive.left
            looked_at = redrive.step(room, shard.clock.now_ms())
            note(shard, pace, before - redrive.left)
            if looked_at is None:
                await loaded(shard, redrive)
            elif not looked_at:
                break
            else:
                await shard.commits.room_to_write()
    finally:
        redrive.end(shard.clock.now_ms())
        manager.dispatch(shard.clock.now_ms())
        shard.wake()
    await shard.barrier()
    return bound - redrive.left
