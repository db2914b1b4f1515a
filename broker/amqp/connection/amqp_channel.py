"""One AMQP channel, as the parts of its front-end see it."""

from __future__ import annotations

from typing import Any

from broker.amqp.connection.amqp_client import AmqpClient
from broker.amqp.connection.errors import channel_error
from protocols.amqp091 import constants as c


class AmqpChannel:
    """A channel of a client; `last_queue` is what an empty queue name stands for (queue.declare, 1.7.2.1)."""

    __slots__ = ("client", "closed", "connection", "core", "hub", "last_queue", "number", "transport")

    def __init__(self, client: AmqpClient, number: int) -> None:
        self.client = client
        self.connection = client.connection
        self.transport = client.transport
        self.hub = client.hub
        self.core = client.hub.client
        self.number = number
        self.closed = False
        self.last_queue = ""

    def close(self) -> None:
        """Do nothing more for it."""
        self.closed = True

    def name_queue(self, name: str) -> None:
        """Remember the queue that the client declared last."""
        self.last_queue = name

    def queue_meant(self, name: str) -> str:
        """Return the queue of that name, or for "" the last one that was declared; raises a channel error."""
        if not name and not self.last_queue:
            raise channel_error(c.NOT_FOUND, "no previously declared queue")
        return name or self.last_queue

    def is_open(self) -> bool:
        """Return whether the client still wants to hear something on it."""
        return not self.closed and self.connection.channel_is_open(self.number)

    def send(self, method: Any) -> None:
        """Send a method."""
        self.connection.send_method(self.number, method)

    def send_content(self, method: Any, properties: bytes, body: bytes) -> None:
        """Send a method with a message."""
        self.connection.send_content(self.number, method, properties, body)
