"""Virtual hosts over HTTP."""

from __future__ import annotations

from typing import Final

from broker.http.endpoints import Endpoints
from broker.http.site import Site
from broker.vhosts.vhost import VhostView
from config.quota_settings import QuotaSettings
from config.settings import QueueType

vhosts: Final = Endpoints("vhosts")


@vhosts.endpoint("GET", "/vhosts")
async def list_vhosts(site: Site) -> list[VhostView]:
    """List all virtual hosts, by name."""
    return await site.admin.vhosts.all()


@vhosts.endpoint("GET", "/vhosts/{vhost}")
async def show_vhost(site: Site, vhost: str) -> VhostView:
    """Show one virtual host."""
    return await site.admin.vhosts.view(vhost)


class VhostChange(QuotaSettings):
    """What is to be said of a virtual host; what is left out stays."""

    description: str = ""
    tags: tuple[str, ...] = ()
    default_queue_type: QueueType = "classic"
    protected_from_deletion: bool = False


@vhosts.endpoint("PUT", "/vhosts/{vhost}")
async def declare_vhost(site: Site, vhost: str, body: VhostChange) -> VhostView:
    """Make a virtual host, or change its quotas (0: none) and what else is said of it; what is left out
    stays. 409 for what stands in the configuration.
    """
    await site.admin.vhosts.declare(vhost, **body.model_dump(exclude_unset=True))
    return await site.admin.vhosts.view(vhost)


@vhosts.endpoint("DELETE", "/vhosts/{vhost}")
async def delete_vhost(site: Site, vhost: str) -> None:
    """Delete a virtual host with all that is in it; its clients are sent away. 409: it is protected."""
    await site.admin.vhosts.delete(vhost)
