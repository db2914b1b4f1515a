"""What the parts of the HTTP interface share."""

from __future__ import annotations

from broker.admin.admin import Admin
from broker.node import Node
from config.settings import Settings


class Site:
    """Whom the HTTP interface asks: administration, and the broker about itself."""

    def __init__(self, admin: Admin, node: Node, settings: Settings) -> None:
        self.admin = admin
        self.node = node
        self.settings = settings
