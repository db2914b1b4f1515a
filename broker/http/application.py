"""What the listener `http` serves, put together."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from broker.http.endpoints import Endpoint, openapi_of, routes_of
from broker.http.guard import LocalOnly
from broker.http.metrics import metrics_endpoint
from broker.http.pages import Pages
from broker.http.problems import answer_of
from broker.http.server import HttpServer
from broker.http.site import Site
from broker.http.v1.overview import overview
from broker.http.v1.queues import queues

V1: Final = "/api/v1"
ENDPOINTS: Final[tuple[Endpoint, ...]] = tuple(chain(overview.all, queues.all))


def http_server(site: Site, loop: asyncio.AbstractEventLoop) -> HttpServer:
    """The server of the listener `http`."""
    return HttpServer(application(site), loop)


def application(site: Site) -> ASGIApp:
    """The page at `/`, `/metrics`, `/api/v1`."""
    pages = Pages(site)
    document = openapi_of("administration", ENDPOINTS, V1)

    async def openapi(request: Request) -> Response:
        return JSONResponse(document)

    app = Starlette(
        routes=[
            Route("/", pages.guarded(pages.queues)),
            Route("/metrics", metrics_endpoint(site)),
            Route(f"{V1}/openapi.json", openapi),
            *routes_of(site, ENDPOINTS, V1),
        ],
        exception_handlers={404: _refuse, 405: _refuse},
    )
    return LocalOnly(_by_raw_path(app))


async def _refuse(request: Request, error: Exception) -> Response:
    return answer_of(error)


def _by_raw_path(app: ASGIApp) -> ASGIApp:
    """Have paths matched as they were sent: a name may have an encoded slash in it."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "path": scope["raw_path"].decode("ascii")}, receive, send)

    return call
