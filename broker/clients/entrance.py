"""The way in, for front-ends: what a client shows becomes a `Login`, now or a little later."""

from __future__ import annotations

from collections.abc import Callable

from broker.access.credentials import Credentials, LoginRefused
from broker.access.login import Login
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
