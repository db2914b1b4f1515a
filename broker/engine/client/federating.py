"""What federation asks of a shard in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker.engine.answers import answered
from broker.engine.call_names import Name, VhostName
from broker.engine.shard import Shard
from queue_manager.address import DEFAULT_VHOST, local_name, vhost_of

UPSTREAM: Final = "federation-upstream"
UPSTREAM_SET: Final = "federation-upstream-set"


class Federated(NamedTuple):
    """An exchange or queue (`kind`) that a policy gives upstreams."""

    kind: str
    name: str
    definition: Mapping[str, Any]


class FederationClient:
    """What is federated, and which queues could take more."""

    def __init__(self, shard: Shard) -> None:
        self._queues = shard.manager.queues

    async def all(self, *, vhost: VhostName = DEFAULT_VHOST) -> list[Federated]:
        """Return what policies of a virtual host give upstreams; streams and what is not durable have
        none.
        """
        kept = self._queues.policies.of_vhost(vhost)
        policies = [each for each in kept if _names_upstreams(each.definition)]
        if not policies:
            return []
        found = []
        for exchange in self._queues.exchanges.of_vhost(vhost):
            held = self._queues.exchanges.policies_of(exchange).definition()
            if _names_upstreams(held) and exchange.name and not exchange.definition.internal:
                found.append(Federated("exchange", local_name(exchange.name), held))
        for queue in self._queues:
            if vhost_of(queue.name) != vhost or not queue.durable or queue.is_stream:
                continue
            if any(each.matcher.search(local_name(queue.name)) for each in policies):
                held = self._queues.policies_of(queue).definition()
                if _names_upstreams(held):
                    found.append(Federated("queue", local_name(queue.name), held))
        return found

    @answered
    def wants_more(self, name: Name) -> bool:
        """Return whether a queue has nothing that waits, and a consumer that would take something at once;
        those of negative priority do not count, as which other brokers consume.
        """
        queue = self._queues.get(name)
        if queue is None or queue.ready_count():
            return False
        return any(
            consumer.priority >= 0 and consumer.credit() > 0
            for group in queue.groups
            for consumer in group.consumers.members
        )


def _names_upstreams(definition: Mapping[str, Any]) -> bool:
    return UPSTREAM in definition or UPSTREAM_SET in definition
