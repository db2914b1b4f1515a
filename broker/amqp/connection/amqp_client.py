"""One AMQP client, as the parts of its front-end see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from broker.access.login import Login
from broker.amqp.connection.shared import Shared
from broker.clients.entrance import LoggedIn
from broker.connections.connection_views import told_properties
from protocols.amqp091.connection import AmqpConnection
from protocols.amqp091.handshake import understands


@dataclass(eq=False, repr=False, slots=True)
class AmqpClient(LoggedIn):
    """The client, and how it is spoken to. `cancel_notify`: it understands a basic.cancel from the broker."""

    connection: AmqpConnection
    shared: Shared
    cancel_notify: bool = field(default=False, init=False)

    def identify(self, login: Login, client_properties: dict[str, Any]) -> None:
        """Note who a client is that was let in, and what it says of itself."""
        self.login = login
        self.client_properties = told_properties(client_properties)
        self.cancel_notify = understands(client_properties, "consumer_cancel_notify")
