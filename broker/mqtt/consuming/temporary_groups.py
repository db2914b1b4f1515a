"""Groups of clients whose identifier was assigned: nobody comes back to them, so they go with the client."""

from __future__ import annotations

from typing import Final

import structlog

from broker.engine.client.groups import GroupClient
from broker.engine.shard_ending import BrokerStopped
from broker.vhosts.hub import Hub
from queue_manager.address import PASSING_GROUP_PREFIX
from queue_manager.errors import QueueManagerError

_log: Final = structlog.get_logger("sluicemq.mqtt")


class TemporaryGroups:
    """The groups that one client made, by queue and group ID."""

    __slots__ = ("_hub", "_made")

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._made: set[tuple[str, str]] = set()

    def name_for(self, client_id: str) -> str:
        """Return the name of the client's own group."""
        return PASSING_GROUP_PREFIX + client_id

    def note(self, queue: str, group_id: str) -> None:
        """Note that the client is in a group of its own."""
        self._made.add((queue, group_id))

    def end(self) -> None:
        """End the client's groups: it is gone."""
        if self._made:
            self._hub.spawn(_delete(self._hub.client.groups, self._made))
            self._made = set()


async def _delete(groups: GroupClient, made: set[tuple[str, str]]) -> None:
    for queue, group_id in made:
        try:
            await groups.delete(queue, group_id, force=True)
        except QueueManagerError as error:  # the queue went first
            _log.debug("mqtt.group_left", queue=queue, group=group_id, reason=error.reason)
        except BrokerStopped:  # the next start sees to it
            return


async def delete_left(groups: GroupClient) -> None:
    """Delete the groups of clients that were connected when the broker was killed."""
    count = await groups.delete_passing()
    if count:
        _log.info("mqtt.groups_deleted", count=count)
