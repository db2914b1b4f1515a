"""The client of a shard in this process, put together."""

from __future__ import annotations

from broker.engine.local.backups import LocalBackups
from broker.engine.local.commits import LocalCommits
from broker.engine.local.epochs import LocalEpochs
from broker.engine.local.exchanges import LocalExchanges
from broker.engine.local.groups import LocalGroups
from broker.engine.local.messages import LocalMessages
from broker.engine.local.queues import LocalQueues
from broker.engine.local.retained import LocalRetained
from broker.engine.local.sessions import LocalSessions
from broker.engine.local.streams import LocalStreams
from broker.engine.local.traffic import LocalConsuming, LocalPublishing, LocalSettling, LocalTurns
from broker.engine.local.vhosts import LocalVhosts
from broker.engine.shard import Shard


class LocalClient:
    """See `ShardClient`; `shard` is for who made it."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.commits = LocalCommits(shard)
        self.backups = LocalBackups(shard, self.commits)
        self.queues = LocalQueues(shard)
        self.exchanges = LocalExchanges(shard)
        self.groups = LocalGroups(shard, self.commits)
        self.messages = LocalMessages(shard)
        self.streams = LocalStreams(shard)
        self.epochs = LocalEpochs(shard)
        self.sessions = LocalSessions(shard)
        self.retained = LocalRetained(shard)
        self.vhosts = LocalVhosts(shard)
        self.publishing = LocalPublishing(shard)
        self.consuming = LocalConsuming(shard)
        self.settling = LocalSettling(shard)
        self.turns = LocalTurns(shard)

    def check(self) -> None:
        """See `ShardClient.check`."""
        self.shard.ending.check()
