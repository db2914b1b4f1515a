"""Consumer groups of a shard: where they begin, how they are, their ends."""

from __future__ import annotations

from datetime import datetime

from broker.engine.call_names import Name
from broker.engine.checking import checks_calls
from broker.engine.client import counting, log_view
from broker.engine.client.commits import CommitClient
from broker.engine.client.queues import find
from broker.engine.shard import Shard
from queue_manager.address import PASSING_GROUP_PREFIX
from queue_manager.api import GroupDefinition, GroupStart, GroupView, read_start
from queue_manager.errors import InvalidArgument, PreconditionFailed, QueueManagerError, QueueNotFound
from queue_manager.filters import FilterError, parse_selector
from queue_manager.group.group import Group
from queue_manager.group.group_start import EARLIEST
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.stream_start import FIRST, NEXT, OFFSET, TIMESTAMP, StreamStart
from queue_manager.patterns import MATCH_ALL
from queue_manager.queue.queue import Queue
from queue_manager.queue.queue_groups import Place
from queue_manager.queue.stream import Stream

Start = str | int | datetime
"""`earliest`, `latest`, an offset, `timestamp=<ms since 1970>` or a datetime."""


@checks_calls
class GroupClient:
    """Consumer groups and where they are. What changes is durable when a call returns, but for `ensure`."""

    def __init__(self, shard: Shard, commits: CommitClient) -> None:
        self._shard = shard
        self._commits = commits
        self.check = shard.ending.check

    async def create(
        self,
        queue: Name,
        name: str,
        *,
        pattern: str = MATCH_ALL,
        selector: str = "",
        start: Start = "earliest",
    ) -> GroupView:
        """Make a group that begins at `start`. It is given what matches both `pattern` and `selector`.

        A queue with priorities has no offsets to begin at. Raises QueueNotFound, InvalidAddress,
        InvalidArgument, LimitReached, PreconditionFailed if it is there.
        """
        wanted = GroupDefinition(
            name=name, pattern=pattern, selector=selector, start=read_start("start", start)
        )
        group = await self._create(find(self._shard, queue), wanted)
        await self._shard.sweeper.retention_known()
        await self._commits.durable()
        return await counting.group_view(self._shard, group)

    async def ensure(self, queue: Name, wanted: GroupDefinition) -> None:
        """Make a group if it is not there; raises as `create`, and PreconditionFailed if it has another
        selector.
        """
        found = find(self._shard, queue)
        known = found.groups.get(wanted.group_id)
        if known is None:
            try:
                await self._create(found, wanted)
            except QueueManagerError as error:
                raise error.at(f"queue {found.name!r}, group {wanted.name!r}") from error
        elif known.selector != wanted.selector:
            raise PreconditionFailed(
                f"group {known.group_id!r} of queue {found.name!r} has the selector {known.selector!r}: "
                "that cannot change; delete the group first"
            )

    async def _create(self, queue: Queue, wanted: GroupDefinition) -> Group:
        """Make a group. It is written once it is known what the others let go of."""
        manager = self._shard.manager
        try:
            parse_selector(wanted.selector)
        except FilterError as error:
            raise InvalidArgument(error.reason) from None
        name, pattern, selector = wanted.name, wanted.pattern, wanted.selector
        if isinstance(queue, Stream):
            place = _stream_start(wanted.start)
            return manager.create_group(queue, name, pattern, selector=selector, start=place)
        places = None
        if wanted.start != EARLIEST:
            _check_offset(queue, wanted.start)
            await self._shard.sweeper.retention_known()
            places = await self._places(queue, wanted.start)
        _check_there(queue)
        return manager.create_group(queue, name, pattern, places, selector)

    async def reset(
        self, queue: Name, group: str, *, to: Start = "earliest", force: bool = False
    ) -> GroupView:
        """Have a group go on at `to` (as `create`'s `start`), with whatever is still kept.

        Messages before count as done, but those that failed stay failed. Refused while the group has
        consumers or claims, unless `force`: consumers then stay and their claims end. Raises QueueNotFound,
        GroupNotFound, InvalidArgument, PreconditionFailed.
        """
        fresh = await self._reset(find(self._shard, queue), group, read_start("to", to), force)
        await self._commits.durable()
        return await counting.group_view(self._shard, fresh)

    async def _reset(self, queue: Queue, group_id: str, to: GroupStart, force: bool) -> Group:
        shard = self._shard
        queue.groups.find(group_id)
        if isinstance(queue, Stream):
            now_ms, start = shard.clock.now_ms(), _stream_start(to)
            return shard.manager.reset_group(queue, group_id, (), now_ms, start=start, force=force)
        _check_offset(queue, to)
        await shard.sweeper.retention_known()
        async with shard.redriving:
            places = await self._places(queue, to)
            _check_there(queue)
            return shard.manager.reset_group(queue, group_id, places, shard.clock.now_ms(), force=force)

    async def delete(self, queue: Name, group: str, *, force: bool = False) -> None:
        """Delete a group with its progress and failed messages; what only it kept goes.

        Of the last group of a queue, what it had not done stays in the queue. Refused while the group has
        consumers or claims, unless `force`: its consumers are cancelled. Raises QueueNotFound, GroupNotFound,
        PreconditionFailed.
        """
        shard, found = self._shard, find(self._shard, queue)
        found.groups.find(group)
        await shard.sweeper.retention_known()
        async with shard.redriving:
            _check_there(found)
            found.groups.delete(group, shard.clock.now_ms(), force=force)
        await self._commits.durable()

    async def delete_passing(self) -> int:
        """Delete, after a start, the groups that should have gone with their clients before it; gives how
        many they were.
        """
        shard = self._shard
        left = [(queue, group) for queue in shard.manager.queues for group in queue.groups if _passes(group)]
        if not left:
            return 0
        await shard.sweeper.retention_known()
        async with shard.redriving:
            for queue, group in left:
                if not queue.deleted and queue.groups.get(group.group_id) is group:
                    queue.groups.delete(group.group_id, shard.clock.now_ms(), force=True)
        return len(left)

    async def view(self, queue: Name, group: str) -> GroupView:
        """Return one group; raises QueueNotFound, GroupNotFound."""
        await self._shard.sweeper.retention_known()
        return await counting.group_view(self._shard, find(self._shard, queue).groups.find(group))

    async def views(self, queue: Name) -> list[GroupView]:
        """Return the groups of a queue that have a name, by their IDs; raises QueueNotFound."""
        await self._shard.sweeper.retention_known()
        named = [group for group in find(self._shard, queue).groups if counting.has_name(group)]
        named.sort(key=lambda group: group.group_id)
        return [await counting.group_view(self._shard, group) for group in named]

    async def _places(self, queue: Queue, start: GroupStart) -> list[Place]:
        return [await _place_in(self._shard, part.log, start) for part in queue.parts]


def chosen(queue: Queue, group_id: str | None) -> Group | None:
    """Return the group of that ID; without one the default group, or the only one; None: there is none.

    Raises GroupNotFound, InvalidArgument when there are several to choose from.
    """
    if group_id is not None:
        return queue.groups.find(group_id)
    if "" in queue.groups or not len(queue.groups) or isinstance(queue, Stream):
        return queue.groups.get("")
    if len(queue.groups) > 1:
        raise InvalidArgument(f"queue {queue.name!r} has several consumer groups: say which")
    return next(iter(queue.groups))


async def cursor_at(shard: Shard, queue: Queue, start: GroupStart) -> str | None:
    """Return the cursor behind which a listing of ready messages begins at `start`."""
    if len(queue.parts) > 1:
        raise InvalidArgument(f"queue {queue.name!r} has priorities: it is looked at from its beginning")
    offset, _ = await _place_in(shard, queue.log, start)
    return str(offset - 1) if offset else None


async def _place_in(shard: Shard, log: QueueLog, start: GroupStart) -> Place:
    """Return the offset that `start` means in a log, and a log sequence at or before it (0: not known)."""
    if start.time_ms is not None:
        offset = await log_view.offset_at(shard, log, start.time_ms)
    else:
        offset = start.offset_in(log)
    if not log.durable or offset >= log.tail.first_offset:
        return offset, 0
    return offset, await log_view.sequence_of(shard, log, max(offset, log.head_offset))


def _passes(group: Group) -> bool:
    return group.name.startswith(PASSING_GROUP_PREFIX) and not group.consumers.members


def _check_there(queue: Queue) -> None:
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
