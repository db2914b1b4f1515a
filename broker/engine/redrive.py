"""Redriving: failed messages back into their group, dead letters back to their queue, at a bearable rate."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection
from typing import TYPE_CHECKING

from broker.engine.ending import resolve
from broker.engine.scan import scan_prefix
from config import limits
from queue_manager.errors import GroupNotFound, InvalidArgument
from queue_manager.redrive import DeadLetterRedrive, FailedRedrive
from storage.records import done, failed

if TYPE_CHECKING:
    from broker.engine.shard import Shard


class Pace:
    """How many messages may go now, at `per_second` (None: as many as a step takes)."""

    def __init__(self, shard: Shard, per_second: float | None) -> None:
        if per_second is not None and not 0 < per_second < math.inf:
            raise InvalidArgument(f"a rate is above 0 messages per second, not {per_second}")
        self._clock = shard.clock
        self._ending = shard.ending
        self._per_second = per_second
        self._begin_s = shard.clock.monotonic()
        self._gone = 0

    async def next_step(self) -> int:
        """Wait until at least one may go; give how many. Raises BrokerStopped."""
        if self._per_second is None:
            await asyncio.sleep(0)
            self._ending.check()
            return limits.REDRIVE_STEP_MESSAGES_MAX
        while True:
            elapsed_s = self._clock.monotonic() - self._begin_s
            count = 1 + int(elapsed_s * self._per_second) - self._gone
            if count > 0:
                return min(count, limits.REDRIVE_STEP_MESSAGES_MAX)
            await self._ending.sleep(max(0.001, self._gone / self._per_second - elapsed_s))

    def went(self, count: int) -> None:
        """So many went."""
        self._gone += count


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
    group = shard.manager.find(queue).groups.get(group_id)
    if group is None:
        raise GroupNotFound(f"queue {queue!r} has no consumer group {group_id!r}")
    if not group.queue.durable:
        return 0
    await shard.sweeper.retention_known()
    total = 0
    async with shard.redriving:
        for part in group.parts():
            await shard.sweeper.groups_removed(part.queue)
            if part.removed:
                return total
            redrive = FailedRedrive(part, _bounded(limit) - total, offsets)
            total += await _redrive_group(shard, redrive, pace)
    return total


async def _redrive_group(shard: Shard, redrive: FailedRedrive, pace: Pace) -> int:
    group = redrive.group
    total = 0
    await shard.barrier()
    prefix = failed.prefix(group.storage_id)
    async for key, value in scan_prefix(shard.store, prefix, limits.FAILED_ROWS_PER_SCAN):
        bucket_id = failed.parse_key(key)[1]
        if not redrive.wants(bucket_id, value):
            continue
        await pace.next_step()
        done_value = await shard.store.get(done.key(group.storage_id, bucket_id))
        if group.queue.deleted or group.removed:
            break
        total += note(shard, pace, redrive.take_closed(bucket_id, value, done_value, shard.clock.now_ms()))
        await shard.commits.room_for_deletes()
    while redrive.left and not (group.queue.deleted or group.removed):
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
    source = manager.find(dlq)
    destination = None if target is None else manager.find(target)
    if destination is source:
        raise InvalidArgument(f"queue {dlq!r} cannot be redriven into itself")
    pace = Pace(shard, per_second)
    bound = _bounded(limit)
    redrive = DeadLetterRedrive(manager, source, destination, bound)
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


def _bounded(limit: int | None) -> int:
    if limit is not None and limit < 0:
        raise InvalidArgument(f"a limit is at least 0, not {limit}")
    most = limits.REDRIVEN_MESSAGES_PER_CALL_MAX
    return most if limit is None else min(limit, most)


def note(shard: Shard, pace: Pace, count: int) -> int:
    """So many went: have them delivered and written."""
    pace.went(count)
    shard.manager.dispatch(shard.clock.now_ms())
    shard.wake()
    return count


async def loaded(shard: Shard, redrive: DeadLetterRedrive) -> None:
    """Wait for what is being read back."""
    if not shard.wakeups.is_running:
        await shard.load_once()
        return
    loaded = shard.ending.future()
    redrive.consumer.group.on_loaded.append(lambda now_ms: resolve(loaded))
    shard.wake()
    await loaded
