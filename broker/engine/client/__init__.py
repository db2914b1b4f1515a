"""The calls of front-ends and administration to a shard: one client for each subject.

What crosses are the values of `queue_manager.api`, and while messages flow what `broker.engine.traffic`
states. Calls that change something take effect in the order they are made; that it is durable `CommitClient`
tells. Refusals are QueueManagerErrors; every call may come to StorageError, and to BrokerStopped once the
shard has stopped or its store has failed.
"""

from __future__ import annotations

from broker.engine.client.bans import BanRecords
from broker.engine.client.commits import BackupClient, CommitClient
from broker.engine.client.epochs import EpochClient
from broker.engine.client.exchanges import ExchangeClient
from broker.engine.client.federating import FederationClient
from broker.engine.client.groups import GroupClient
from broker.engine.client.listings import ListingClient
from broker.engine.client.message_flow import ConsumingClient, PublishingClient, SettlingClient, TurnClient
from broker.engine.client.messages import MessageClient
from broker.engine.client.noting import EventClient
from broker.engine.client.parameters import ParameterRecords
from broker.engine.client.policies import PolicyClient, VhostRecords
from broker.engine.client.queues import QueueClient
from broker.engine.client.quotas import QuotaClient
from broker.engine.client.replies import ReplyClient
from broker.engine.client.retained import RetainedClient
from broker.engine.client.sessions import SessionClient
from broker.engine.client.streams import StreamClient
from broker.engine.elsewhere import Elsewhere
from broker.engine.shard import Shard


class ShardClient:
    """The way to one shard."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.check = shard.ending.check  # raises BrokerStopped once the shard has ended
        self.commits = CommitClient(shard)
        self.backups = BackupClient(shard, self.commits)
        self.queues = QueueClient(shard)
        self.exchanges = ExchangeClient(shard)
        self.groups = GroupClient(shard, self.commits)
        self.messages = MessageClient(shard)
        self.streams = StreamClient(shard)
        self.epochs = EpochClient(shard)
        self.sessions = SessionClient(shard)
        self.retained = RetainedClient(shard)
        self.listings = ListingClient(shard)
        self.policies = PolicyClient(shard)
        self.quotas = QuotaClient(shard)
        self.vhosts = VhostRecords(shard)
        self.bans = BanRecords(shard)
        self.parameters = ParameterRecords(shard)
        self.federation = FederationClient(shard)
        self.events = EventClient(shard)
        self.publishing = PublishingClient(shard)
        self.consuming = ConsumingClient(shard)
        self.settling = SettlingClient(shard)
        self.turns = TurnClient(shard)
        self.replies = ReplyClient()
        self.elsewhere: Elsewhere | None = None  # there are no other workers
