"""A virtual host, and what there is to tell of it."""

from __future__ import annotations

from config.settings import VhostSettings, VhostTraits
from queue_manager.errors import QueueManagerError


class VhostNotFound(QueueManagerError):
    """There is no virtual host of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"vhost {name} not found")


class VhostView(VhostTraits):
    """One virtual host with its settings; `configured`: it stands in the configuration."""

    configured: bool
    connections: int
    queues: int


class Vhost:
    """A virtual host by its `name`, with its `settings` as they are now."""

    __slots__ = ("name", "settings")

    def __init__(self, name: str) -> None:
        self.name = name
        self.settings = VhostSettings(name=name)
