"""Virtual hosts over HTTP."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from broker.http.endpoints import Endpoints
from broker.http.site import Site
from broker.vhosts.vhost import VhostView
from config import limits

vhosts: Final = Endpoints("vhosts")


@vhosts.endpoint("GET", "/vhosts")
async def list_vhosts(site: Site) -> list[VhostView]:
    """List all virtual hosts, by name."""
    return await site.admin.vhosts.all()


@vhosts.endpoint("GET", "/vhosts/{vhost}")
async def show_vhost(site: Site, vhost: str) -> VhostView:
    """Show one virtual host."""
    return await site.admin.vhosts.view(vhost)


@vhosts.endpoint("PUT", "/vhosts/{vhost}")
async def declare_vhost(
    site: Site,
    vhost: str,
    *,
    max_connections: Annotated[int | None, Field(ge=0, le=limits.CONNECTIONS_MAX)] = None,
    max_queues: Annotated[int | None, Field(ge=0, le=limits.QUEUES_MAX)] = None,
) -> VhostView:
    """Make a virtual host, or change its limits (0: none; what is left out stays); 409 for what stands in the
    configuration.
    """
    await site.admin.vhosts.declare(vhost, max_connections=max_connections, max_queues=max_queues)
    return await site.admin.vhosts.view(vhost)


@vhosts.endpoint("DELETE", "/vhosts/{vhost}")
async def delete_vhost(site: Site, vhost: str) -> None:
    """Delete a virtual host with all that is in it; its clients are sent away."""
    await site.admin.vhosts.delete(vhost)
