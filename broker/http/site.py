"""What the parts of the HTTP interface share."""

from __future__ import annotations

import math

from broker.admin.admin import Admin
from broker.admin.views import QueueView
from broker.hub import Hub
from broker.node import Node
from config import limits
from config.settings import Settings


class Site:
    """Whom the HTTP interface asks: administration, and the broker about itself.

    `hub` is for who publishes and consumes.
    """

    def __init__(self, hub: Hub, admin: Admin, node: Node) -> None:
        self.hub = hub
        self.admin = admin
        self.node = node
        self._views: list[QueueView] = []
        self._viewed_at = -math.inf

    def of_vhost(self, name: str) -> Site:
        """The same for what is in a virtual host; raises VhostNotFound."""
        hub = self.hub.of_vhost(name)
        return Site(hub, self.admin.within(hub.client), self.node)

    @property
    def settings(self) -> Settings:
        """The settings that hold."""
        return self.admin.settings

    async def queues(self) -> list[QueueView]:
        """All queues; where they are many, as they were within the last second."""
        now = self.hub.clock.monotonic()
        if len(self._views) < limits.VIEWS_KEPT_MIN or now - self._viewed_at >= limits.VIEWS_KEPT_S:
            self._views = await self.admin.queues()
            self._viewed_at = now
        return self._views
