"""Quotas over HTTP: how much there is of what they bound; they are set with virtual hosts and users."""

from __future__ import annotations

from typing import Final

from broker.http.endpoints import Endpoints
from broker.http.site import Site
from queue_manager.api import QuotasView

quotas: Final = Endpoints("quotas")


@quotas.endpoint("GET", "/quotas")
async def list_quotas(site: Site) -> list[QuotasView]:
    """List virtual hosts and users that have something that a quota can bound: how much, what bounds it (0:
    nothing) and how often something was refused or had to wait, since the start.
    """
    return await site.client.quotas.whole_views()
