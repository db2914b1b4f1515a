"""Consumer groups of a shard in this process."""

from __future__ import annotations

from broker.engine.local.commits import LocalCommits
from broker.engine.local.queues import find
from broker.engine.operations import counting, groups
from broker.engine.shard import Shard
from queue_manager.api import GroupDefinition, GroupStart, GroupView


class LocalGroups:
    """As `GroupClient`."""

    def __init__(self, shard: Shard, commits: LocalCommits) -> None:
        self._shard = shard
        self._commits = commits

    async def create(self, queue: str, wanted: GroupDefinition) -> GroupView:
        """See `GroupClient.create`."""
        group = await groups.create(self._shard, find(self._shard, queue), wanted)
        await self._shard.sweeper.retention_known()
        await self._commits.durable()
        return await counting.group_view(self._shard, group)

    async def ensure(self, queue: str, wanted: GroupDefinition) -> None:
        """See `GroupClient.ensure`."""
        await groups.ensure(self._shard, find(self._shard, queue), wanted)

    async def reset(self, queue: str, group_id: str, to: GroupStart, *, force: bool) -> GroupView:
        """See `GroupClient.reset`."""
        fresh = await groups.reset(self._shard, find(self._shard, queue), group_id, to, force)
        await self._commits.durable()
        return await counting.group_view(self._shard, fresh)

    async def delete(self, queue: str, group_id: str, *, force: bool) -> None:
        """See `GroupClient.delete`."""
        await groups.delete(self._shard, find(self._shard, queue), group_id, force)
        await self._commits.durable()

    async def delete_passing(self) -> int:
        """See `GroupClient.delete_passing`."""
        return await groups.delete_passing(self._shard)

    async def view(self, queue: str, group_id: str) -> GroupView:
        """See `GroupClient.view`."""
        await self._shard.sweeper.retention_known()
        found = find(self._shard, queue).groups.find(group_id)
        return await counting.group_view(self._shard, found)

    async def views(self, queue: str) -> list[GroupView]:
        """See `GroupClient.views`."""
        await self._shard.sweeper.retention_known()
        named = [g for g in find(self._shard, queue).groups if counting.has_name(g)]
        named.sort(key=lambda group: group.group_id)
        return [await counting.group_view(self._shard, group) for group in named]
