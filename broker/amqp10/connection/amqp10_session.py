"""One session, as the links of its front-end see it."""

from __future__ import annotations

from broker.amqp10.connection.amqp10_client import Amqp10Client
from broker.amqp10.connection.errors import refused
from protocols.amqp10.errors import AmqpError
from protocols.amqp10.link import Link
from queue_manager.errors import QueueManagerError


class Session:
    """A session of a client. `closed`: nothing more is done for it."""

    __slots__ = ("channel", "client", "closed", "connection", "core", "hub", "transport")

    def __init__(self, client: Amqp10Client, channel: int) -> None:
        self.client = client
        self.connection = client.connection
        self.transport = client.transport
        self.hub = client.hub
        self.core = client.hub.client
        self.channel = channel
        self.closed = False

    def close(self) -> None:
        """Do nothing more for it."""
        self.closed = True

    def is_open(self) -> bool:
        """Return whether the client still wants to hear something on it."""
        return not self.closed and self.connection.session_is_open(self.channel)

    def refused(self, error: QueueManagerError) -> AmqpError:
        """Return a refusal as the error that is sent."""
        return refused(error, self.client.vhost)

    def detach(self, link: Link, error: AmqpError) -> None:
        """End a link for an error."""
        self.connection.detach(link, error.condition, error.description)
        self.transport.want_flush()
