"""One AMQP client, as the parts of its front-end see it."""

from __future__ import annotations

from typing import Any

from broker.access.login import Identity, Login
from broker.amqp.connection.shared import Shared
from broker.clients.entrance import Presence
from broker.connections.connection_views import told_properties
from broker.network.transport import Transport
from broker.vhosts.hub import Hub
from protocols.amqp091.connection import AmqpConnection
from protocols.amqp091.handshake import understands
from queue_manager.address import DEFAULT_VHOST


class AmqpClient:
    """The client, and how it is spoken to.

    `caller` is what the core knows it by; `login` is set once it was let in, `identity` once it is in a
    virtual host (`vhost`), where its queues and exchanges are. `cancel_notify`: it understands a
    basic.cancel from the broker. `client_properties` are those it says of itself that are texts for people.
    """

    __slots__ = (
        "_presence",
        "caller",
        "cancel_notify",
        "client_properties",
        "connection",
        "hub",
        "identity",
        "login",
        "shared",
        "transport",
        "vhost",
    )

    def __init__(self, hub: Hub, transport: Transport, connection: AmqpConnection, shared: Shared) -> None:
        self.hub = hub
        self.caller = hub.new_caller()
        self.transport = transport
        self.connection = connection
        self.shared = shared
        self.vhost = DEFAULT_VHOST
        self.login: Login
        self.identity: Identity
        self._presence: Presence | None = None
        self.cancel_notify = False
        self.client_properties: dict[str, str] = {}

    def enter(self, vhost: str) -> None:
        """Enter the virtual host the client works in; raises VhostNotFound, VhostFull, VhostRefused,
        LoginRefused.
        """
        hub = self.hub.of_vhost(vhost)
        self.login = hub.access.current(self.login)  # that was a while ago
        identity = self.login.enter(vhost)
        self._presence = Presence(hub, self.transport, identity)
        self.hub = hub
        self.identity = identity
        self.vhost = vhost

    def leave(self) -> None:
        """Leave: the client is gone."""
        if self._presence is not None:
            self._presence.end()
            self._presence = None

    def identify(self, login: Login, client_properties: dict[str, Any]) -> None:
        """Note who a client is that was let in, and what it says of itself."""
        self.login = login
        self.client_properties = told_properties(client_properties)
        self.cancel_notify = understands(client_properties, "consumer_cancel_notify")
