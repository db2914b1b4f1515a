"""The face of both front-ends to the rest of the broker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from broker.connections.connection_views import Description
from broker.connections.registry import Goodbye
from protocols.sans_io_connection import Connection


class Frontend(ABC):
    """One client: between its connection (bytes and rules) and the queue manager.

    What the queue manager calls (sinks, waiters) goes through `Transport.guard`. `sends_heartbeats`: the
    protocol wants a sign of life from the broker too.
    """

    sends_heartbeats = False

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @abstractmethod
    def handle(self, events: list[Any]) -> None:
        """Act on what the client said, in order."""

    @abstractmethod
    def published_count(self, events: list[Any]) -> int:
        """Return how many messages the client published with these events."""

    @abstractmethod
    def pause(self) -> None:
        """Take no more deliveries for this client."""

    @abstractmethod
    def resume(self) -> None:
        """Go on with deliveries."""

    def held_back(self, reason: str) -> None:  # noqa: B027 - not every protocol has words for it
        """Note that nothing has been read from the client for a while, since the broker cannot take more of
        it.
        """

    def let_on(self) -> None:  # noqa: B027
        """Note that the client is read from again, after `held_back` or without it."""

    @abstractmethod
    def gone(self) -> None:
        """Give back everything: the transport is gone. Called once, last."""

    @abstractmethod
    def dissolve(self) -> None:
        """Let go of what refers back, so that this ends with its connection; nothing is called afterwards."""

    @abstractmethod
    def describe(self) -> Description:
        """Return who the client is, and what it does."""

    @abstractmethod
    def say_goodbye(self, why: Goodbye, reason: str) -> None:
        """Close in the protocol's words; with a `reason` of this client's own it is logged."""
