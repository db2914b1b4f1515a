"""Consumer groups: where they begin, and their ends."""

from __future__ import annotations

from broker.engine.operations import log_view
from broker.engine.shard import Shard
from queue_manager.address import PASSING_GROUP_PREFIX
from queue_manager.api import GroupDefinition, GroupStart
from queue_manager.errors import InvalidArgument, PreconditionFailed, QueueManagerError, QueueNotFound
from queue_manager.filters import FilterError, parse_selector
from queue_manager.group.group import Group
from queue_manager.group.start import EARLIEST
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.stream_start import FIRST, NEXT, OFFSET, TIMESTAMP, StreamStart
from queue_manager.queue.groups import Place
from queue_manager.queue.queue import Queue
from queue_manager.queue.stream import Stream


def chosen(queue: Queue, group_id: str | None) -> Group | None:
    """The group of that ID; without one the default group, or the only one; None: there is none.

    Raises GroupNotFound, InvalidArgument when there are several to choose from.
    """
    if group_id is not None:
        return queue.groups.find(group_id)
    if "" in queue.groups or not len(queue.groups) or isinstance(queue, Stream):
        return queue.groups.get("")
    if len(queue.groups) > 1:
        raise InvalidArgument(f"queue {queue.name!r} has several consumer groups: say which")
    return next(iter(queue.groups))


async def create(shard: Shard, queue: Queue, wanted: GroupDefinition) -> Group:
    """Make a group; see `GroupClient.create`. It is written once it is known what the others let go of."""
    try:
        parse_selector(wanted.selector)
    except FilterError as error:
        raise InvalidArgument(error.reason) from None
    name, pattern, selector = wanted.name, wanted.pattern, wanted.selector
    if isinstance(queue, Stream):
        place = _stream_start(wanted.start)
        return shard.manager.create_group(queue, name, pattern, selector=selector, start=place)
    places = None
    if wanted.start != EARLIEST:
        _check_offset(queue, wanted.start)
        await shard.sweeper.retention_known()
        places = await _places(shard, queue, wanted.start)
    _check(queue)
    return shard.manager.create_group(queue, name, pattern, places, selector)


async def ensure(shard: Shard, queue: Queue, wanted: GroupDefinition) -> None:
    """Make a group if it is not there; see `GroupClient.ensure`."""
    known = queue.groups.get(wanted.group_id)
    if known is None:
        try:
            await create(shard, queue, wanted)
        except QueueManagerError as error:
            raise error.at(f"queue {queue.name!r}, group {wanted.name!r}") from error
    elif known.selector != wanted.selector:
        raise PreconditionFailed(
            f"group {known.group_id!r} of queue {queue.name!r} has the selector {known.selector!r}: "
            "that cannot change; delete the group first"
        )


async def reset(shard: Shard, queue: Queue, group_id: str, to: GroupStart, force: bool) -> Group:
    """Reset a group; see `GroupClient.reset`."""
    manager = shard.manager
    queue.groups.find(group_id)
    if isinstance(queue, Stream):
        now_ms = shard.clock.now_ms()
        return manager.reset_group(queue, group_id, (), now_ms, start=_stream_start(to), force=force)
    _check_offset(queue, to)
    await shard.sweeper.retention_known()
    async with shard.redriving:
        places = await _places(shard, queue, to)
        _check(queue)
        return manager.reset_group(queue, group_id, places, shard.clock.now_ms(), force=force)


async def delete(shard: Shard, queue: Queue, group_id: str, force: bool) -> None:
    """Delete a group; see `GroupClient.delete`."""
    queue.groups.find(group_id)
    await shard.sweeper.retention_known()
    async with shard.redriving:
        _check(queue)
        shard.manager.delete_group(queue, group_id, shard.clock.now_ms(), force=force)


async def delete_passing(shard: Shard) -> int:
    """Delete the groups whose clients were there before the start; gives how many they were."""
    left = [(queue, group) for queue in shard.manager.queues for group in queue.groups if _is_passing(group)]
    if not left:
        return 0
    await shard.sweeper.retention_known()
    async with shard.redriving:
        for queue, group in left:
            if not queue.deleted and queue.groups.get(group.group_id) is group:
                shard.manager.delete_group(queue, group.group_id, shard.clock.now_ms(), force=True)
    return len(left)


def _is_passing(group: Group) -> bool:
    return group.name.startswith(PASSING_GROUP_PREFIX) and not group.consumers.members


async def place_in(shard: Shard, log: QueueLog, start: GroupStart) -> Place:
    """The offset that `start` means in a log, and a log sequence at or before it (0: not known)."""
    if start.time_ms is not None:
        offset = await log_view.offset_at(shard, log, start.time_ms)
    else:
        offset = start.offset_in(log)
    if not log.durable or offset >= log.tail.first_offset:
        return offset, 0
    return offset, await log_view.sequence_of(shard, log, max(offset, log.head_offset))


async def cursor_at(shard: Shard, queue: Queue, start: GroupStart) -> str | None:
    """Behind which cursor a listing of ready messages begins at `start`."""
    if len(queue.parts) > 1:
        raise InvalidArgument(f"queue {queue.name!r} has priorities: it is looked at from its beginning")
    offset, _ = await place_in(shard, queue.log, start)
    return str(offset - 1) if offset else None


async def _places(shard: Shard, queue: Queue, start: GroupStart) -> list[Place]:
    return [await place_in(shard, part.log, start) for part in queue.parts]


def _check(queue: Queue) -> None:
    """Raise QueueNotFound if the queue was deleted while something was waited for."""
    if queue.deleted:
        raise QueueNotFound(f"no queue {queue.name!r}")


def _check_offset(queue: Queue, start: GroupStart) -> None:
    if start.is_place and len(queue.parts) > 1:
        raise InvalidArgument(
            f"queue {queue.name!r} has priorities, each with offsets of its own: begin at 'earliest', "
            "'latest' or a time"
        )


def _stream_start(start: GroupStart) -> StreamStart:
    if start.time_ms is not None:
        return StreamStart(TIMESTAMP, start.time_ms)
    if start.offset < 0:
        return StreamStart(NEXT)
    return StreamStart(OFFSET, start.offset) if start.offset else StreamStart(FIRST)
