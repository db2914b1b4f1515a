"""One AMQP client, as the parts of its front-end see it."""

from __future__ import annotations

from typing import Any

from broker.access.login import Identity, Login
from broker.amqp.shared import Shared
from broker.hub import Hub
from broker.transport import Transport
from protocols.amqp091.connection import AmqpConnection
from protocols.amqp091.handshake import understands
from queue_manager.address import DEFAULT_VHOST


class AmqpClient:
    """Who the client is and how it is spoken to.

    `caller` is what the core knows it by; `login` is set once it was let in, `identity` once it is in a
    virtual host (`vhost`), where its queues and exchanges are. `cancel_notify`: it understands a
    basic.cancel from the broker.
    """

    __slots__ = (
        "caller",
        "cancel_notify",
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
        self.cancel_notify = False

    @property
    def username(self) -> str:
        """Whose connection it is."""
        return self.login.user

    def enter(self, vhost: str) -> None:
        """The virtual host the client works in; raises VhostRefused."""
        self.identity = self.login.enter(vhost)
        self.vhost = vhost

    def identify(self, login: Login, client_properties: dict[str, Any]) -> None:
        """Who a client is that was let in, and what it says of itself."""
        self.login = login
        self.cancel_notify = understands(client_properties, "consumer_cancel_notify")
