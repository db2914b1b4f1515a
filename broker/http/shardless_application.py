"""What a node answers over HTTP while it has no shard: that it lives, why it is not ready, what it knows of
nodes. What an operator wants of nodes is taken; everything else is at the others.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router

from broker.access.access import Access
from broker.admin.cluster import Cluster
from broker.http.endpoints import OPEN_PATHS, Endpoints, routes_of, served
from broker.http.guard import Guard, check_operator, identity_of
from broker.http.metrics import CONTENT_TYPE, cluster_lines
from broker.http.problems import NO_SHARD, RETRY_AFTER_S, Problem, answer_of
from broker.http.server import HttpServer
from broker.http.v1.nodes import nodes
from broker.http.v1.overview import Health, Impaired
from broker.nodes.node_keeper import Told

_V1: Final = "/api/v1"

health: Final = Endpoints("overview")


@dataclass(frozen=True, slots=True)
class ShardlessSite:
    """What there is to know of a node without a shard."""

    cluster: Cluster
    told: Told


@health.endpoint("GET", "/health")
async def show_health(site: ShardlessSite) -> Impaired:
    """Tell that the node lives."""
    return Impaired("impaired", site.told.why_idle())


@health.endpoint("GET", "/ready")
async def show_ready(site: ShardlessSite) -> Health:
    """Tell that it is not ready, and why."""
    raise _no_shard(site)


def shardless_server(told: Told, access: Access, loop: asyncio.AbstractEventLoop) -> HttpServer:
    """Return the server that answers so."""
    site = ShardlessSite(Cluster(told), told)

    async def metrics(request: Request) -> Response:
        try:
            check_operator(identity_of(request.scope), is_looking=True)
        except Problem as problem:
            return answer_of(problem)
        return Response("".join(cluster_lines(site.cluster)), media_type=CONTENT_TYPE)

    async def elsewhere(request: Request) -> Response:
        return answer_of(_no_shard(site))

    routes: list[BaseRoute] = [
        *routes_of(health.all, _V1, lambda path, caller: site),
        *routes_of(nodes.all, _V1, lambda path, caller: site),
        Route("/metrics", metrics),
        Route("/{rest:path}", elsewhere, methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]),
    ]
    open_paths = frozenset([_V1 + path for path in OPEN_PATHS])
    return HttpServer(Guard(served(Router(routes)), access, open_paths), loop)


def _no_shard(site: ShardlessSite) -> Problem:
    """Return the problem of what only a node with a shard can do."""
    return Problem(503, NO_SHARD, site.told.why_idle(), headers={"retry-after": str(RETRY_AFTER_S)})
