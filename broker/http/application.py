"""The applications of the listeners `http` and `mqcore`, with TLS or without."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import cache
from itertools import chain
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from broker.admin.admin import Admin
from broker.admin.node import Node
from broker.http.browser_sessions import BrowserSessions
from broker.http.endpoints import IN_VHOST, OPEN_PATHS, Endpoint, openapi_of, routes_of, served
from broker.http.guard import Guard, vhost_in_query
from broker.http.metrics import metrics_endpoint
from broker.http.mqcore.mqcore_application import mqcore_application
from broker.http.pages.page_routes import PAGE_OPEN_PATHS, STATIC, page_routes
from broker.http.problems import Problem, answer_of
from broker.http.rabbitmq.rabbitmq_application import OPEN_PATHS as RABBITMQ_OPEN_PATHS
from broker.http.rabbitmq.rabbitmq_application import rabbitmq_routes
from broker.http.server import HttpServer
from broker.http.site import Site
from broker.http.topic_tail import Tails
from broker.http.v1.backups import backups
from broker.http.v1.bans import bans
from broker.http.v1.configuration import configuration
from broker.http.v1.connections import connections
from broker.http.v1.exchanges import exchanges
from broker.http.v1.groups import groups
from broker.http.v1.link_parameters import links as link_calls
from broker.http.v1.listings import listings
from broker.http.v1.messages import messages
from broker.http.v1.nodes import nodes
from broker.http.v1.overview import overview
from broker.http.v1.policies import policies
from broker.http.v1.queues import queues
from broker.http.v1.quotas import quotas
from broker.http.v1.users import users
from broker.http.v1.vhosts import vhosts
from broker.links.link_directory import Links
from broker.vhosts.hub import Hub

V1: Final = "/api/v1"
_SUBJECTS: Final = (
    overview,
    queues,
    groups,
    messages,
    exchanges,
    policies,
    link_calls,
    vhosts,
    users,
    quotas,
    bans,
    connections,
    listings,
    configuration,
    backups,
    nodes,
)
ENDPOINTS: Final[tuple[Endpoint, ...]] = tuple(chain.from_iterable(subject.all for subject in _SUBJECTS))

IN_VHOSTS: Final[tuple[Endpoint, ...]] = (
    *queues.all,
    *groups.all,
    *messages.all,
    *exchanges.all,
    *policies.all,
    *link_calls.all,
    *listings.all,
)
"""The endpoints that each virtual host has, too."""


def http_servers(
    hub: Hub, admin: Admin, node: Node, links: Links, names: Collection[str]
) -> dict[str, HttpServer]:
    """Return the servers of those of the HTTP listeners that are open, by name."""
    servers: dict[str, HttpServer] = {}
    over = [name for name in ("http", "https") if name in names]
    if over:
        open_paths = RABBITMQ_OPEN_PATHS | {V1 + path for path in OPEN_PATHS} | PAGE_OPEN_PATHS
        sessions = BrowserSessions(hub.access, hub.clock)
        app = application(Site(hub, admin, node, links), sessions)
        guarded = Guard(app, hub.access, open_paths, sessions=sessions)
        servers |= {name: HttpServer(guarded, hub.loop) for name in over}
    over = [name for name in ("mqcore", "mqcores") if name in names]
    if over:
        app = mqcore_application(hub, admin)
        guarded = Guard(app, hub.access, vhost_of=vhost_in_query, harmless=frozenset())
        servers |= {name: HttpServer(guarded, hub.loop) for name in over}
    return servers


def application(site: Site, sessions: BrowserSessions) -> ASGIApp:
    """Make the page at `/`, `/metrics`, `/api/v1`."""
    tails = Tails(site)
    routes: list[BaseRoute] = [
        *page_routes(site, sessions),
        WebSocketRoute("/topics/tail", tails.serve_socket),
        Mount("/static", StaticFiles(directory=STATIC)),
        Route("/metrics", metrics_endpoint(site, detailed=False)),
        Route("/metrics/detailed", metrics_endpoint(site, detailed=True)),
        Route(f"{V1}/openapi.json", _openapi),
        Route(f"{V1}/topics/tail", tails.serve_lines),
        Route(f"{V1}/vhosts/{{vhost}}/topics/tail", tails.serve_lines),
        *routes_of(ENDPOINTS, V1, lambda path, caller: site),
        *routes_of(IN_VHOSTS, f"{V1}/vhosts/{IN_VHOST}", lambda path, caller: site.of_vhost(path["vhost"])),
        Route(f"{V1}/{{rest:path}}", _nowhere),
        *rabbitmq_routes(site),
    ]
    return served(Router(routes))


@cache
def _document() -> dict[str, Any]:
    """Made when it is first asked for: it takes more of a processor than all the rest of a start's HTTP."""
    return openapi_of("administration", {V1: ENDPOINTS, f"{V1}/vhosts/{IN_VHOST}": IN_VHOSTS})


async def _openapi(request: Request) -> Response:
    return JSONResponse(await asyncio.to_thread(_document))


async def _nowhere(request: Request) -> Response:
    return answer_of(Problem(404, "not_found", "no such path; /api/v1/openapi.json names them all"))
