"""The HTTP of a broker, put together once the broker serves everybody else.

What serves HTTP takes as much of a processor to import and to put together as half of the rest of a start.
So a thread does that afterwards, and nobody does it where no listener is for HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.admin.admin import Admin
    from broker.admin.node import Node
    from broker.http.server import HttpServer
    from broker.vhosts.hub import Hub


class LateHttp:
    """The servers of one broker's HTTP listeners; none until `load` has made them."""

    def __init__(self) -> None:
        self._servers: dict[str, HttpServer] = {}

    async def load(
        self, hub: Hub, admin: Admin, node: Node, names: Collection[str]
    ) -> dict[str, Callable[[Callable[[], None]], asyncio.Protocol]]:
        """Make the servers of these listeners; gives what drives the connections of each."""
        self._servers = await asyncio.to_thread(_made, hub, admin, node, names)
        return {name: server.accept for name, server in self._servers.items()}

    @property
    def is_busy(self) -> bool:
        """Whether somebody is connected."""
        return any(server.is_busy for server in self._servers.values())

    def shut_down(self) -> None:
        """Take no further requests."""
        for server in self._servers.values():
            server.shut_down()

    def abort(self) -> None:
        """End what is left."""
        for server in self._servers.values():
            server.abort()


def _made(hub: Hub, admin: Admin, node: Node, names: Collection[str]) -> dict[str, HttpServer]:
    from broker.http.application import http_servers  # the web framework, only where it is needed

    return http_servers(hub, admin, node, names)
