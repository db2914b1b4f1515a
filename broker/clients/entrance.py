"""The way in, for front-ends: what a client shows becomes a `Login`, now or a little later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from broker.access.credentials import Credentials, LoginRefused
from broker.access.login import Identity, Login
from broker.connections.connection_views import ConnectionView
from broker.connections.registry import Goodbye
from broker.network.transport import Transport
from broker.vhosts.hub import Hub
from queue_manager.address import DEFAULT_VHOST

Found = Login | LoginRefused


def log_in(hub: Hub, transport: Transport, credentials: Credentials, then: Callable[[Found], None]) -> None:
    """Call `then` with who that is, or why nobody comes in with that; maybe when the client has gone."""
    try:
        login = hub.access.login_at_once(credentials, transport.came_from)
    except LoginRefused as refused:
        _found(hub, transport, credentials, refused, then)
        return
    if login is not None:
        _found(hub, transport, credentials, login, then)
    else:
        hub.spawn(_log_in(hub, transport, credentials, then))


def _found(
    hub: Hub, transport: Transport, credentials: Credentials, found: Found, then: Callable[[Found], None]
) -> None:
    """Tell what a login came to."""
    if hub.events.is_wanted:
        view = transport.describe()
        headers: dict[str, Any] = {
            "name": found.user if isinstance(found, Login) else getattr(credentials, "user", ""),
            "connection_name": view.name,
            "connection_type": "network",
            "peer_host": transport.came_from.host,
            "protocol": view.description.protocol,
        }
        if isinstance(found, LoginRefused):
            hub.events.note("user.authentication.failure", {**headers, "error": found.reason})
        else:
            hub.events.note("user.authentication.success", headers)
    then(found)


async def _log_in(
    hub: Hub, transport: Transport, credentials: Credentials, then: Callable[[Found], None]
) -> None:
    found: Found
    try:
        found = await hub.access.login(credentials, transport.came_from)
    except LoginRefused as refused:
        found = refused
    transport.guard(_found, hub, transport, credentials, found, then)
    transport.want_flush()
    hub.settle_turn()


class Presence:
    """A client that is in its virtual host: counted there, known to access control, and told of in events
    once it was let in (`announce`).
    """

    __slots__ = (
        "_caller",
        "_events",
        "_identity",
        "_is_announced",
        "_present",
        "_quotas",
        "_transport",
        "_view",
    )

    def __init__(self, hub: Hub, transport: Transport, identity: Identity, caller: str) -> None:
        """Enter the virtual host. Raises LimitReached."""
        self._quotas = hub.client.quotas
        self._present = hub.access.present
        self._events = hub.events
        self._identity = identity
        self._caller = caller
        self._transport = transport
        self._view: ConnectionView | None = None
        self._is_announced = False
        transport.share = self._quotas.enter(caller, hub.vhost.name, identity.user)
        self._present.enter(identity, partial(transport.send_away, Goodbye.NOT_PERMITTED))

    def announce(self) -> None:
        """Tell that the client was let in."""
        self._is_announced = True
        self._view = self._events.connected(self._transport.describe)

    @property
    def view(self) -> ConnectionView:
        """The connection, as events tell of it."""
        if self._view is None:
            self._view = self._transport.describe()
        return self._view

    def end(self, reason: str = "closed") -> None:
        """Leave: the client is gone, for that reason."""
        if self._is_announced:
            self._is_announced = False
            self._events.disconnected(self._transport.describe, self._view, reason)
        self._present.leave(self._identity)
        self._quotas.leave(self._caller)


@dataclass(eq=False, repr=False, slots=True)
class LoggedIn:
    """A client that logs in first and says then which virtual host it works in.

    `caller` is what the core knows it by; `login` is set once it was let in, `identity` once it is in a
    virtual host (`vhost`), where its queues and exchanges are. `client_properties` are those it says of
    itself that are texts for people.
    """

    hub: Hub
    transport: Transport
    caller: str = field(init=False)
    vhost: str = field(default=DEFAULT_VHOST, init=False)
    login: Login = field(init=False)
    identity: Identity = field(init=False)
    client_properties: dict[str, str] = field(default_factory=dict, init=False)
    _presence: Presence | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.caller = self.hub.new_caller()

    def enter(self, vhost: str) -> None:
        """Enter the virtual host the client works in; raises VhostNotFound, LimitReached,
        VhostRefused, LoginRefused.
        """
        hub = self.hub.of_vhost(vhost)
        self.login = hub.access.current(self.login)  # that was a while ago
        identity = self.login.enter(vhost)
        self._presence = Presence(hub, self.transport, identity, self.caller)
        self.hub = hub
        self.identity = identity
        self.vhost = vhost
        self._presence.announce()

    def check_banned(self, client_id: str) -> None:
        """Raise LoginRefused if nobody may come in under this name of a client."""
        access = self.hub.access
        access.bans.check_client(client_id)

    def tell_channel(self, key: str, number: int) -> None:
        """Tell of a channel that was opened or closed."""
        events = self.hub.events
        if not events.is_wanted or self._presence is None:
            return
        view = self._presence.view
        headers: dict[str, Any] = {
            "pid": f"{view.pid[:-1]}.{number}>",
            "name": f"{view.name} ({number})",
            "number": number,
            "connection": view.pid,
            "user": self.identity.user,
            "vhost": self.vhost,
        }
        events.note(key, headers, self.identity.user)

    def leave(self) -> None:
        """Leave: the client is gone."""
        if self._presence is not None:
            self._presence.end()
            self._presence = None
