"""One AMQP 1.0 client, as the parts of its front-end see it."""

from __future__ import annotations

import socket
from typing import Any, Final

from broker.access.accounts_of_file import GUEST, USERS_FILE
from broker.access.credentials import LoginRefused, Password
from broker.access.login import Identity, Login
from broker.clients.entrance import Presence
from broker.connections.connection_views import TOLD_CHARACTERS_MAX, told_properties
from broker.network.transport import Transport
from broker.vhosts.hub import Hub
from protocols.amqp10.connection import Amqp10Connection
from queue_manager.address import DEFAULT_VHOST

NODE: Final = f"sluicemq@{socket.gethostname()}"
"""What the broker calls itself, as container and as node."""


class Amqp10Client:
    """The client, and how it is spoken to.

    `caller` is what the core knows it by; `login` is set once it was let in, `identity` once it is in a
    virtual host (`vhost`). `client_properties` are those it says of itself that are texts for people.
    """

    __slots__ = (
        "_presence",
        "caller",
        "client_properties",
        "connection",
        "container_id",
        "hub",
        "identity",
        "login",
        "transport",
        "vhost",
    )

    def __init__(self, hub: Hub, transport: Transport, connection: Amqp10Connection) -> None:
        self.hub = hub
        self.caller = hub.new_caller()
        self.transport = transport
        self.connection = connection
        self.vhost = DEFAULT_VHOST
        self.login: Login
        self.identity: Identity
        self._presence: Presence | None = None
        self.container_id = ""
        self.client_properties: dict[str, str] = {}

    def identify(self, login: Login) -> None:
        """Note who a client is that was let in."""
        self.login = login

    def introduce(self, container_id: str, properties: dict[Any, Any] | None) -> None:
        """Note what the client says of itself."""
        self.container_id = container_id[:TOLD_CHARACTERS_MAX]
        self.client_properties = told_properties(properties)

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

    async def renew(self, token: bytes) -> None:
        """Have the login last as long as another token says; raises LoginRefused.

        That of a user with a password lasts anyhow.
        """
        if self.login.source in (USERS_FILE, GUEST):
            return
        access, came_from = self.hub.access, self.transport.came_from
        shown = Password(self.login.user, token)
        found = access.login_at_once(shown, came_from) or await access.login(shown, came_from)
        if found.user != self.login.user:
            raise LoginRefused("it is another user's")
        if self.identity.is_narrowed_by(found):
            raise LoginRefused("it allows less")

    def leave(self) -> None:
        """Leave: the client is gone."""
        if self._presence is not None:
            self._presence.end()
            self._presence = None
