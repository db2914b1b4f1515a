"""Messages of a shard in this process, in whatever state."""

from __future__ import annotations

from collections.abc import Collection

from broker.engine.local.queues import find
from broker.engine.operations import browsing, groups, moving, redrive, removing, scheduled
from broker.engine.shard import Shard
from queue_manager.api import OPERATOR, BrowsedPage, BrowseRequest, GroupStart, State
from queue_manager.errors import InvalidArgument
from queue_manager.queue.queue import Queue


class LocalMessages:
    """As `MessageClient`."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    async def browse(self, queue: str, request: BrowseRequest, caller: str = OPERATOR) -> BrowsedPage:
        """See `MessageClient.browse`."""
        shard = self._shard
        found = find(shard, queue, caller)
        after = request.after
        if request.start is not None:
            if after is not None or request.state != "ready":
                raise InvalidArgument("start is for the first page of ready messages")
            after = await groups.cursor_at(shard, found, request.start)
        return await browsing.read_page(
            shard,
            found,
            groups.chosen(found, request.group),
            request.state,
            after=after,
            limit=request.limit,
            bodies=request.bodies,
        )

    async def move(
        self,
        queue: str,
        to: str,
        *,
        group: str | None,
        state: State,
        limit: int | None,
        per_second: float | None,
    ) -> int:
        """See `MessageClient.move`."""
        source, target = self._pair(queue, to)
        chosen = groups.chosen(source, group)
        return await moving.move(self._shard, source, chosen, target, state, limit, per_second)

    async def copy(
        self,
        queue: str,
        to: str,
        *,
        group: str | None,
        state: State,
        start: GroupStart | None,
        limit: int | None,
        per_second: float | None,
    ) -> int:
        """See `MessageClient.copy`."""
        source, target = self._pair(queue, to)
        after = None if start is None else await groups.cursor_at(self._shard, source, start)
        chosen = groups.chosen(source, group)
        return await moving.copy(self._shard, source, chosen, target, state, limit, per_second, after)

    async def redrive_failed(
        self,
        queue: str,
        group_id: str,
        *,
        offsets: Collection[int] | None,
        limit: int | None,
        per_second: float | None,
    ) -> int:
        """See `MessageClient.redrive_failed`."""
        return await redrive.redrive_failed(
            self._shard, queue, group_id, limit=limit, offsets=offsets, per_second=per_second
        )

    async def redrive_dead_letters(
        self, queue: str, *, target: str | None, limit: int | None, per_second: float | None
    ) -> int:
        """See `MessageClient.redrive_dead_letters`."""
        return await redrive.redrive_dead_letters(
            self._shard, queue, target=target, limit=limit, per_second=per_second
        )

    async def remove(self, queue: str, offset: int, *, group: str) -> bool:
        """See `MessageClient.remove`."""
        found = find(self._shard, queue)
        chosen = found.groups.find(group) if group else found.group("")
        return await removing.remove(self._shard, found, chosen, offset)

    async def cancel_scheduled(self, queue: str, name: str) -> bool:
        """See `MessageClient.cancel_scheduled`."""
        due_ms, message_id = browsing.scheduled_key(name)
        return await scheduled.cancel_scheduled(self._shard, queue, due_ms, message_id)

    def _pair(self, queue: str, to: str) -> tuple[Queue, Queue]:
        source, target = find(self._shard, queue), find(self._shard, to)
        if source is target:
            raise InvalidArgument(f"queue {queue!r} cannot be moved or copied into itself")
        return source, target
