"""One AMQP 1.0 client, as the parts of its front-end see it."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Any, Final

from broker.access.accounts_of_file import GUEST, USERS_FILE
from broker.access.credentials import LoginRefused, Password
from broker.clients.entrance import LoggedIn
from broker.connections.connection_views import TOLD_CHARACTERS_MAX, told_properties
from protocols.amqp10.connection import Amqp10Connection

NODE: Final = f"sluicemq@{socket.gethostname()}"
"""What the broker calls itself, as container and as node."""


@dataclass(eq=False, repr=False, slots=True)
class Amqp10Client(LoggedIn):
    """The client, and how it is spoken to."""

    connection: Amqp10Connection
    container_id: str = field(default="", init=False)

    def introduce(self, container_id: str, properties: dict[Any, Any] | None) -> None:
        """Note what the client says of itself."""
        self.container_id = container_id[:TOLD_CHARACTERS_MAX]
        self.client_properties = told_properties(properties)

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
