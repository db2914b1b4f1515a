"""Clients that are connected, over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import Field

from broker.connection_views import ConnectionView
from broker.http.endpoints import Ask, Endpoints, NoBody, NoQuery, Query
from broker.http.problems import Problem
from broker.http.site import Site
from config import limits

connections: Final = Endpoints("connections")


class ConnectionListing(Query):
    """Which connections: the first `limit` with a greater number than `after`; `user`, `vhost`: of these
    only.
    """

    after: int = Field(default=0, ge=0)
    limit: int = Field(default=limits.HTTP_PAGE_ITEMS_DEFAULT, ge=1, le=limits.HTTP_PAGE_ITEMS_MAX)
    user: str | None = None
    vhost: str | None = None


class Closing(Query):
    """Why; the client is told."""

    reason: str = Field(default="closed by an operator", max_length=255)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionPage:
    """Some connections, oldest first, how many there are, and where the next page begins; None: the last."""

    items: list[ConnectionView]
    total: int
    next: int | None


@connections.get("/connections", ConnectionPage, ConnectionListing)
async def list_connections(site: Site, ask: Ask[ConnectionListing, NoBody]) -> ConnectionPage:
    """Clients connected by MQTT and AMQP, with their channels, consumers and subscriptions."""
    query = ask.query
    views = await site.node.connections()
    if query.user is not None:
        views = [view for view in views if view.description.user == query.user]
    if query.vhost is not None:
        views = [view for view in views if view.description.vhost == query.vhost]
    behind = [view for view in views if view.id > query.after]
    items = behind[: query.limit]
    following = items[-1].id if len(behind) > len(items) else None
    return ConnectionPage(items=items, total=len(views), next=following)


@connections.get("/connections/{connection}", ConnectionView)
async def show_connection(site: Site, ask: Ask[NoQuery, NoBody]) -> ConnectionView:
    """One connection, by its number."""
    for view in await site.node.connections():
        if str(view.id) == ask.path["connection"]:
            return view
    raise _unknown(ask.path["connection"])


@connections.delete("/connections/{connection}", None, Closing)
async def close_connection(site: Site, ask: Ask[Closing, NoBody]) -> None:
    """Send a client away; it is told why."""
    number = ask.path["connection"]
    known = number.isascii() and number.isdigit() and len(number) < 19
    if not known or not await site.node.close_connection(int(number), ask.query.reason):
        raise _unknown(number)


def _unknown(number: str) -> Problem:
    return Problem(404, "not_found", f"no connection {number!r}")
