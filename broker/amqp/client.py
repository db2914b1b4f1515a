"""One AMQP client, as the parts of its front-end see it."""

from __future__ import annotations

from typing import Any

from broker.amqp.browse import BrowseSlots
from broker.hub import Hub
from broker.transport import Transport
from protocols.amqp091.connection import AmqpConnection
from queue_manager.address import DEFAULT_VHOST


class AmqpClient:
    """Who the client is and how it is spoken to.

    `caller` is what the core knows it by, `vhost` where its queues and exchanges are.
    `cancel_notify`: it understands a basic.cancel from the broker.
    """

    __slots__ = (
        "browse_slots",
        "caller",
        "cancel_notify",
        "connection",
        "hub",
        "transport",
        "username",
        "vhost",
    )

    def __init__(
        self, hub: Hub, transport: Transport, connection: AmqpConnection, browse_slots: BrowseSlots
    ) -> None:
        self.hub = hub
        self.caller = hub.new_caller()
        self.transport = transport
        self.connection = connection
        self.browse_slots = browse_slots
        self.username = ""
        self.vhost = DEFAULT_VHOST
        self.cancel_notify = False

    def identify(self, username: str, client_properties: dict[str, Any]) -> None:
        """What a client that was let in says of itself."""
        self.username = username
        capabilities = client_properties.get("capabilities")
        self.cancel_notify = isinstance(capabilities, dict) and bool(
            capabilities.get("consumer_cancel_notify")
        )
