"""What the parts of the HTTP interface share."""

from __future__ import annotations

from broker.admin.admin import Admin
from broker.hub import Hub
from broker.node import Node
from config.settings import Settings


class Site:
    """Whom the HTTP interface asks: administration, and the broker about itself.

    `hub` is for who publishes and consumes.
    """

    def __init__(self, hub: Hub, admin: Admin, node: Node, settings: Settings) -> None:
        self.hub = hub
        self.admin = admin
        self.node = node
        self.settings = settings
