"""The way in, for front-ends: what a client shows becomes a `Login`, now or a little later."""

from __future__ import annotations

from collections.abc import Callable

from broker.access.credentials import Credentials, LoginRefused
from broker.access.login import Identity, Login
from broker.network.transport import Transport
from broker.vhosts.hub import Hub

Found = Login | LoginRefused


def log_in(hub: Hub, transport: Transport, credentials: Credentials, then: Callable[[Found], None]) -> None:
    """Call `then` with who that is, or why nobody comes in with that; maybe when the client has gone."""
    try:
        login = hub.access.login_at_once(credentials, transport.came_from)
    except LoginRefused as refused:
        then(refused)
        return
    if login is not None:
        then(login)
    else:
        hub.spawn(_log_in(hub, transport, credentials, then))


async def _log_in(
    hub: Hub, transport: Transport, credentials: Credentials, then: Callable[[Found], None]
) -> None:
    found: Found
    try:
        found = await hub.access.login(credentials, transport.came_from)
    except LoginRefused as refused:
        found = refused
    transport.guard(then, found)
    transport.want_flush()
    hub.settle_turn()


class Presence:
    """A client that is in its virtual host: counted there, and known to access control."""

    __slots__ = ("_hub", "_identity")

    def __init__(self, hub: Hub, transport: Transport, identity: Identity) -> None:
        """Enter the virtual host. Raises LoginRefused, VhostFull."""
        self._hub = hub
        self._identity = identity
        hub.vhost.enter()
        try:
            hub.access.present.enter(identity, transport.send_away)
        except LoginRefused:
            hub.vhost.leave()
            raise

    def end(self) -> None:
        """Leave: the client is gone."""
        self._hub.access.present.leave(self._identity)
        self._hub.vhost.leave()
