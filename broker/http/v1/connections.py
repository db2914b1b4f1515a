"""Clients that are connected, over HTTP."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from broker.admin.admin_views import Listing
from broker.connections.connection_views import ConnectionView
from broker.http.endpoints import Endpoints, PageLimit
from broker.http.problems import Problem
from broker.http.site import Site
from config import limits

connections: Final = Endpoints("connections")


@connections.endpoint("GET", "/connections")
async def list_connections(
    site: Site,
    *,
    after: Annotated[int, Field(ge=0)] = 0,
    limit: PageLimit = limits.HTTP_PAGE_ITEMS_DEFAULT,
    user: str | None = None,
    vhost: str | None = None,
) -> Listing[ConnectionView, int]:
    """List clients connected by MQTT and AMQP, oldest first, with their channels, consumers and
    subscriptions: the first `limit` with a greater number than `after`; `user`, `vhost`: of these only.
    """
    views = await site.node.connections()
    if user is not None:
        views = [view for view in views if view.description.user == user]
    if vhost is not None:
        views = [view for view in views if view.description.vhost == vhost]
    behind = [view for view in views if view.id > after]
    following = behind[limit - 1].id if len(behind) > limit else None
    return Listing(items=behind[:limit], total=len(views), next=following)


@connections.endpoint("GET", "/connections/{connection}")
async def show_connection(site: Site, connection: str) -> ConnectionView:
    """Show one connection, by its number."""
    for view in await site.node.connections():
        if str(view.id) == connection:
            return view
    raise Problem(404, "not_found", f"no connection {connection!r}")


@connections.endpoint("DELETE", "/connections/{connection}")
async def close_connection(
    site: Site,
    connection: str,
    *,
    reason: Annotated[str, Field(max_length=255)] = "closed by an operator",
) -> None:
    """Send a client away; it is told why."""
    is_number = connection.isascii() and connection.isdigit() and len(connection) < 19
    if not is_number or not await site.node.close_connection(int(connection), reason):
        raise Problem(404, "not_found", f"no connection {connection!r}")
