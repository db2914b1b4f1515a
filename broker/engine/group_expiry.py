"""Consumer groups that are not in use go: by their queue's policy, or an hour later if a name was made up."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final, NamedTuple

import structlog

from broker.clock import Clock
from broker.engine.sweeper import Sweeper
from broker.stepping import one_by_one
from config import limits
from queue_manager.errors import QueueManagerError
from queue_manager.group.group import Group
from queue_manager.group.stream_group import StreamGroup
from queue_manager.manager import QueueManager
from queue_manager.queue.queue import Queue

_GENERATED: Final = re.compile(r"(mosq-\w{18}|mqttjs_[0-9a-f]{8}|mqttx_[0-9a-f]{8}|paho-?\d{8,}|amq\.\S+)\Z")
"""The client identifiers that libraries make up where a program names none: nobody comes back under those."""

_log: Final = structlog.get_logger("sluicemq.groups")


class _Use(NamedTuple):
    """When a group was last seen in use, and how far it was then."""

    at_ms: int
    progress: object


class GroupExpiry:
    """Looks at all groups from time to time: who has consumers, holds messages or moved on is in use.

    Groups without a name do not go, nor those whose queue and name say nothing.
    """

    def __init__(
        self, manager: QueueManager, clock: Clock, sweeper: Sweeper, redriving: asyncio.Lock
    ) -> None:
        self._manager = manager
        self._clock = clock
        self._sweeper = sweeper
        self._redriving = redriving
        self._uses: dict[Group, _Use] = {}
        self.generated_expires_ms = limits.GENERATED_GROUP_EXPIRES_MS

    async def run(self) -> None:
        """Look every few seconds."""
        while True:
            await asyncio.sleep(limits.GROUP_EXPIRY_INTERVAL_S)
            await self.look()

    def idle_ms(self, group: Group) -> int:
        """Return for how long a group has not been in use, as far as that was seen since the start."""
        self._note(group, self._clock.now_ms())
        return self._clock.now_ms() - self._uses[group].at_ms

    def expires_ms(self, group: Group) -> int:
        """Return how long a group may be unused; 0: for ever."""
        if not group.name or (isinstance(group, StreamGroup) and group.is_anonymous):
            return 0
        of_queue: int = group.log.policy.group_expires_ms
        return of_queue or (self.generated_expires_ms if _GENERATED.match(group.name) else 0)

    async def look(self) -> None:
        """Note which groups are in use, and delete those that were not for too long."""
        now_ms = self._clock.now_ms()
        seen: dict[Group, _Use] = {}
        due: list[tuple[Queue, Group]] = []
        async for queue in one_by_one(list(self._manager.queues)):
            for group in [] if queue.deleted else list(queue.groups):
                self._note(group, now_ms)
                seen[group] = use = self._uses[group]
                expires_ms = self.expires_ms(group)
                if expires_ms and now_ms - use.at_ms >= expires_ms:
                    due.append((queue, group))
        self._uses = seen
        if due:
            await self._delete(due)

    def _note(self, group: Group, now_ms: int) -> None:
        known = self._uses.get(group)
        progress = _progress(group)
        if known is None or group.consumers.members or group.in_flight_count() or known.progress != progress:
            self._uses[group] = _Use(now_ms, progress)

    async def _delete(self, due: list[tuple[Queue, Group]]) -> None:
        await self._sweeper.retention_known()
        async with self._redriving:
            for queue, group in due:
                if queue.deleted or queue.groups.get(group.group_id) is not group or group.consumers.members:
                    continue
                told: dict[str, Any] = {"queue": queue.name, "group": group.group_id}
                try:
                    queue.groups.delete(group.group_id, self._clock.now_ms())
                except QueueManagerError as error:  # the next look tries again
                    _log.debug("group.not_expired", **told, reason=error.reason)
                else:
                    _log.info("group.expired", **told, after_ms=self.expires_ms(group))


def _progress(group: Group) -> object:
    """Return what changes when a group is given messages, or settles some."""
    if isinstance(group, StreamGroup):
        return group.position, group.cursor.committed_offset()
    return [(cursor.position, cursor.claims.buckets.next_claim) for cursor in group.cursors]
