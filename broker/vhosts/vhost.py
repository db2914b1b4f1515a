"""A virtual host, and how many connections may be in it."""

from __future__ import annotations

from dataclasses import dataclass

from queue_manager.errors import QueueManagerError


class VhostNotFound(QueueManagerError):
    """There is no virtual host of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"vhost {name} not found")


class VhostFull(Exception):
    """As many connections are in it as may be. `reason` is fit for the peer."""

    def __init__(self, name: str, connections_max: int) -> None:
        super().__init__(name)
        self.reason = f"access to vhost '{name}' refused: connection limit ({connections_max}) is reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class VhostView:
    """One virtual host. Limits are 0 where there is none; `configured`: it stands in the configuration."""

    name: str
    configured: bool
    max_connections: int
    max_queues: int
    connections: int
    queues: int


class Vhost:
    """Counts who is in it; `connections_max` 0 is as many as there may be."""

    __slots__ = ("_connection_count", "_connections_max", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._connections_max = 0
        self._connection_count = 0

    @property
    def connection_count(self) -> int:
        """How many are in it."""
        return self._connection_count

    def enter(self) -> None:
        """Count one connection more; raises VhostFull."""
        if self._connections_max and self._connection_count >= self._connections_max:
            raise VhostFull(self.name, self._connections_max)
        self._connection_count += 1

    def leave(self) -> None:
        """Count one connection less."""
        self._connection_count -= 1

    def limit(self, connections_max: int) -> None:
        """Let so many in; who is in stays."""
        self._connections_max = connections_max
