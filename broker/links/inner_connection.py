"""Connections of links to this broker: AMQP without the network, and without a login."""

from __future__ import annotations

import asyncio
import socket

from broker.access.accounts_of_file import itself
from broker.amqp.connection.shared import Shared
from broker.amqp.frontend import NO_OTHER_VERSIONS, AmqpFrontend
from broker.links.amqp_peer import Streams
from broker.network.transport import Transport
from broker.vhosts.hub import Hub
from protocols.amqp091 import events as ev


class InnerFrontend(AmqpFrontend):
    """Answers a link, which is the broker itself."""

    def _on_auth(self, event: ev.AuthRequested) -> None:
        self.client.identify(itself(), event.client_properties)
        self.connection.accept_auth()


class InnerConnections:
    """Opens connections to this broker."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._shared = Shared()

    def _accept(self, transport: Transport) -> InnerFrontend:
        return InnerFrontend(self._hub, transport, self._shared, NO_OTHER_VERSIONS)

    async def open(self, name: str) -> Streams:
        """Open a connection for the link of that name."""
        ours, theirs = socket.socketpair()
        transport = Transport(self._hub, self._accept, lambda: None)
        transport.come_from(name)
        try:
            await self._hub.loop.create_unix_connection(lambda: transport, sock=theirs)
            return await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()
            theirs.close()
            raise
