"""What federation asks of the shards of all workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from broker.engine.answers import Answer
from broker.engine.call_names import Name, VhostName
from broker.engine.client.federating import Federated, FederationClient
from broker.workers.neighbours import Neighbours
from queue_manager.address import DEFAULT_VHOST

AskOthers: TypeAlias = Callable[..., Awaitable[Mapping[int, Any]]]


class OwnFederation:
    """The part of this worker, for the others."""

    def __init__(self, local: FederationClient) -> None:
        self._local = local
        self.wants_more = local.wants_more

    async def all(self, vhost: str) -> list[Federated]:
        """See `FederationClient`."""
        return await self._local.all(vhost=vhost)


class SharedFederation(FederationClient):
    """As `FederationClient`, of all workers."""

    def __init__(self, local: FederationClient, neighbours: Neighbours, ask_others: AskOthers) -> None:
        vars(self).update(vars(local))
        self._local = local
        self._neighbours = neighbours
        self._ask_others = ask_others

    async def all(self, *, vhost: VhostName = DEFAULT_VHOST) -> list[Federated]:
        """See `FederationClient`: exchanges are the same everywhere."""
        found = await self._local.all(vhost=vhost)
        for others in (await self._ask_others("federation", "all", vhost)).values():
            found += [one for one in others if one.kind == "queue"]
        return found

    def wants_more(self, name: Name) -> Answer[bool]:
        """See `FederationClient`."""
        queue = self._neighbours.directory.get(name)
        if queue is None:
            return self._local.wants_more(name)
        return self._neighbours.link(queue.shard).call("federation", "wants_more", name)
