"""The common parts of the connections of one virtual host: the way to the core, and the end of each loop
turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from typing import Any, Final, TypeAlias

from broker.access.access import Access
from broker.clock import Clock
from broker.configured import default_policy
from broker.connections.body_room import BodyRoom
from broker.connections.registry import Connections, Peer
from broker.engine.client import ShardClient
from broker.engine.vhost_client import VhostClient
from broker.events.event_facts import Events
from broker.logs.log_pace import RefusalLog
from broker.process.counters import Counters
from broker.vhosts.banning import Banning
from broker.vhosts.vhost import Vhost, VhostNotFound
from config import limits
from config.settings import Settings, VhostSettings
from queue_manager.address import DEFAULT_VHOST

__all__ = ["Hub", "Peer"]

VhostCall: TypeAlias = "Callable[[Hub, bool], None]"


class Hub:
    """Passed to every front-end; there is one for each virtual host of a running broker, none global. All of
    a broker share everything but the client of the core.
    """

    def __init__(
        self,
        settings: Settings,
        client: ShardClient,
        access: Access,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.settings = settings
        self.access = access
        self.client = client
        self.default_policy = default_policy(settings)
        self.clock = clock
        self.loop = loop
        self.counters = Counters()
        self.refusals = RefusalLog()
        self.events = Events(client)
        self.moves_to: Callable[[], str] = lambda: ""
        """Where clients are to go that end with this process."""
        self.server_properties: Final[dict[str, Any]] = {}  # told to AMQP clients, beside those of all
        self.vhost = Vhost(DEFAULT_VHOST)
        self._hubs: Final[dict[str, Hub]] = {DEFAULT_VHOST: self}
        self._vhost_calls: Final[list[VhostCall]] = []
        self.bodies: BodyRoom[Peer] = BodyRoom(limits.UNFINISHED_BYTES_MAX)
        self.bodies_of_strangers: BodyRoom[Peer] = BodyRoom(limits.UNFINISHED_OF_STRANGERS_BYTES_MAX)
        self._connections: Final = Connections(loop, self._settle_left, client.turns.announce)
        self.transports = self._connections.transports
        self.number_from = self._connections.number_from
        self.connected = self._connections.connected
        self.disconnected = self._connections.disconnected
        self.new_caller = self._connections.new_caller
        self.peers = self._connections.peers
        self.check_deadlines = self._connections.check_deadlines
        self.hold_back = self._connections.hold_back
        self.before_write = self._connections.before_write
        self.want_flush = self._connections.want_flush
        self.want_flushes = self._connections.want_flushes
        self.want_answer = self._connections.want_answer
        self.has_work = client.turns.has_work  # for `settle_turn`; asked for each chunk
        self.want_settle = self._connections.want_settle
        self.banning = Banning(client, access, clock, self._connections, self.events)
        self.progressed = self._connections.committed  # more is durable: who was held back may go on
        self.spawn = self._connections.spawn
        self.stop_tasks = self._connections.stop_tasks
        access.exchange_types.is_topic = self._is_topic
        client.commits.on_committed(self._connections.committed)

    def of_vhost(self, name: str) -> Hub:
        """Return the hub of a virtual host; raises VhostNotFound."""
        hub = self._hubs.get(name)
        if hub is None:
            raise VhostNotFound(name)
        return hub

    def _is_topic(self, vhost: str, exchange: str) -> bool:
        """Return whether that is a topic exchange, or could become one."""
        hub = self._hubs.get(vhost)
        return hub is None or hub.client.exchanges.type_of(exchange) in (None, "topic")

    @property
    def is_there(self) -> bool:
        """Whether the virtual host was not deleted."""
        return self._hubs.get(self.vhost.name) is self

    def check_there(self) -> None:
        """Raise VhostNotFound if the virtual host was deleted."""
        if not self.is_there:
            raise VhostNotFound(self.vhost.name)

    def vhosts(self) -> list[str]:
        """Return the names of all virtual hosts, sorted."""
        return sorted(self._hubs)

    def configure_vhost(self, settings: VhostSettings) -> None:
        """Have a virtual host as it is configured, made if it is not there."""
        hub = self._hubs.get(settings.name)
        if hub is None:
            hub = self._hubs[settings.name] = copy(self)
            hub._begin(Vhost(settings.name), VhostClient(self._hubs[DEFAULT_VHOST].client, settings.name))
            self._tell(hub, True)
        hub.vhost.settings = settings
        hub.client.quotas.bound_vhost(settings.name, settings.quotas())

    def drop_vhost(self, name: str) -> None:
        """Let nobody else into a virtual host; who is in it stays."""
        hub = self._hubs.pop(name)
        hub.client.quotas.bound_vhost(name, {})
        self._tell(hub, False)

    def on_vhost(self, call: VhostCall) -> None:
        """Have `call` called with each virtual host that is there or begins and, with False, that is
        deleted.
        """
        self._vhost_calls.append(call)
        for hub in list(self._hubs.values()):
            call(hub, True)

    def _tell(self, hub: Hub, begins: bool) -> None:
        for call in self._vhost_calls:
            call(hub, begins)

    def _begin(self, vhost: Vhost, client: ShardClient) -> None:
        self.vhost = vhost
        self.client = client
        self.has_work = client.turns.has_work

    def settle_turn(self) -> None:
        """Deliver what can be delivered and commit what must be, after something was done to the core."""
        self.client.turns.settle()

    def _settle_left(self) -> None:
        if self.has_work():
            self.settle_turn()
