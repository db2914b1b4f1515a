"""Virtual hosts over HTTP."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from broker.http.endpoints import Ask, Body, Endpoints, NoBody, NoQuery
from broker.http.site import Site
from broker.vhost import VhostView
from config import limits

vhosts: Final = Endpoints("vhosts")


class Vhost(Body):
    """Limits of a virtual host; 0: none. What is left out stays as it is."""

    max_connections: int | None = Field(default=None, ge=0, le=limits.CONNECTIONS_MAX)
    max_queues: int | None = Field(default=None, ge=0, le=limits.QUEUES_MAX)


@vhosts.get("/vhosts", list[VhostView])
async def list_vhosts(site: Site, ask: Ask[NoQuery, NoBody]) -> list[VhostView]:
    """All virtual hosts, by name."""
    return await site.admin.vhosts.all()


@vhosts.get("/vhosts/{vhost}", VhostView)
async def show_vhost(site: Site, ask: Ask[NoQuery, NoBody]) -> VhostView:
    """One virtual host."""
    return await site.admin.vhosts.view(ask.path["vhost"])


@vhosts.put("/vhosts/{vhost}", VhostView, Vhost)
async def declare_vhost(site: Site, ask: Ask[NoQuery, Vhost]) -> VhostView:
    """Make a virtual host, or change its limits; 409 for what stands in the configuration."""
    name = ask.path["vhost"]
    directory = site.admin.vhosts
    await directory.declare(name, max_connections=ask.body.max_connections, max_queues=ask.body.max_queues)
    return await directory.view(name)


@vhosts.delete("/vhosts/{vhost}", None)
async def delete_vhost(site: Site, ask: Ask[NoQuery, NoBody]) -> None:
    """Delete a virtual host with all that is in it; its clients are sent away."""
    await site.admin.vhosts.delete(ask.path["vhost"])
