"""One AMQP client, as the parts of its front-end see it."""

from __future__ import annotations

from typing import Any

from broker.amqp.shared import Shared
from broker.hub import Hub
from broker.transport import Transport
from protocols.amqp091.connection import AmqpConnection
from protocols.amqp091.handshake import understands
from queue_manager.address import DEFAULT_VHOST


class AmqpClient:
    """Who the client is and how it is spoken to.

    `caller` is what the core knows it by, `vhost` where its queues and exchanges are.
    `cancel_notify`: it understands a basic.cancel from the broker.
    """

    __slots__ = (
        "caller",
        "cancel_notify",
        "connection",
        "hub",
        "shared",
        "transport",
        "username",
        "vhost",
    )

    def __init__(self, hub: Hub, transport: Transport, connection: AmqpConnection, shared: Shared) -> None:
        self.hub = hub
        self.caller = hub.new_caller()
        self.transport = transport
        self.connection = connection
        self.shared = shared
        self.username = ""
        self.vhost = DEFAULT_VHOST
        self.cancel_notify = False

    def identify(self, username: str, client_properties: dict[str, Any]) -> None:
        """What a client that was let in says of itself."""
        self.username = username
        self.cancel_notify = understands(client_properties, "consumer_cancel_notify")
