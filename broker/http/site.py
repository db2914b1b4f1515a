"""The common parts of the HTTP interface."""

from __future__ import annotations

import math

from broker.admin.admin import Admin
from broker.admin.admin_views import QueueView
from broker.admin.cluster import Cluster
from broker.admin.node import Node
from broker.http.totals import RateMeter
from broker.links.link_directory import Links
from broker.vhosts.hub import Hub
from config import limits


class Site:
    """The sources of the HTTP interface: administration, and the broker about itself.

    `hub` is the virtual host of the name `vhost`, `client` its way to the shard.
    """

    def __init__(self, hub: Hub, admin: Admin, node: Node, links: Links) -> None:
        self.hub = hub
        self.vhost = hub.vhost.name
        self.client = hub.client
        self.access = hub.access
        self.admin = admin
        self.node = node
        self.links = links
        self._views: list[QueueView] = []
        self._viewed_at = -math.inf
        self.meter = RateMeter(hub.clock)
        self._sites: dict[Hub, Site] = {hub: self}

    @property
    def cluster(self) -> Cluster | None:
        """The nodes, where this is one of several."""
        return self.node.cluster

    def of_vhost(self, name: str) -> Site:
        """Return the same for what is in a virtual host, made when it is first asked for; raises
        VhostNotFound.
        """
        hub = self.hub.of_vhost(name)
        site = self._sites.get(hub)
        if site is None:
            self._sites = {each: self._sites[each] for each in self._sites if each.is_there}
            site = self._sites[hub] = Site(hub, self.admin.within(hub.client), self.node, self.links)
        return site

    async def queues(self) -> list[QueueView]:
        """Return all queues; where they are many, as they were within the last second."""
        now = self.hub.clock.monotonic()
        if len(self._views) < limits.VIEWS_KEPT_MIN or now - self._viewed_at >= limits.VIEWS_KEPT_S:
            self._views = await self.admin.queues()
            self._viewed_at = now
        return self._views
