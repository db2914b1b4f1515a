"""The client of all workers' shards, which front-ends and administration have in place of that of one."""

from __future__ import annotations

from typing import Any

from broker.engine.client import ShardClient
from broker.workers.first_uses import FirstUses
from broker.workers.neighbours import Neighbours
from broker.workers.sharded_flow import (
    ShardedCommits,
    ShardedConsuming,
    ShardedPublishing,
    ShardedSettling,
    ShardedTurns,
)
from broker.workers.sharded_queues import (
    AskedQueues,
    OwnExchanges,
    OwnQueues,
    ShardedExchanges,
    ShardedQueues,
    by_name,
)


class ShardedClient(ShardClient):
    """The way to the shards of all workers. What is not stated here is that of this worker's shard alone."""

    def __init__(self, local: ShardClient, neighbours: Neighbours) -> None:
        vars(self).update(vars(local))
        self.own_queues = OwnQueues(local.queues, neighbours.directory)
        self.own_exchanges = OwnExchanges(local.exchanges, local.shard, neighbours.directory)
        first_uses = FirstUses(local.shard, neighbours)
        queues = ShardedQueues(local.queues, self.own_queues, neighbours, first_uses)
        self.asked_queues = AskedQueues(self.own_queues, queues)
        parts: dict[str, Any] = {
            "queues": queues,
            "exchanges": ShardedExchanges(local.exchanges, self.own_exchanges, neighbours, first_uses),
            "consuming": ShardedConsuming(local.consuming, local.shard, neighbours, first_uses),
            "turns": ShardedTurns(local.turns, neighbours),
        }
        publishing = ShardedPublishing(local.publishing, neighbours, first_uses)
        parts["publishing"] = publishing
        parts["commits"] = ShardedCommits(local.commits, publishing, neighbours)
        parts["settling"] = ShardedSettling(local.settling, publishing, neighbours)
        for name in ("groups", "messages", "streams", "epochs"):
            parts[name] = by_name(getattr(local, name), name, neighbours, first_uses)
        vars(self).update(parts)
