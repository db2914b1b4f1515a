"""The HTTP of a broker, put together once the broker serves everybody else.

What serves HTTP takes as much of a processor to import and to put together as half of the rest of a start.
So a thread does that afterwards, and nobody does it where no listener is for HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.admin.admin import Admin
    from broker.admin.node import Node
    from broker.http.server import HttpServer
    from broker.vhosts.hub import Hub


async def load_http(hub: Hub, admin: Admin, node: Node, names: Collection[str]) -> dict[str, HttpServer]:
    """Make the servers of these listeners, by name."""
    return await asyncio.to_thread(_made, hub, admin, node, names)


def _made(hub: Hub, admin: Admin, node: Node, names: Collection[str]) -> dict[str, HttpServer]:
    from broker.http.application import http_servers  # the web framework, only where it is needed

    return http_servers(hub, admin, node, names)
