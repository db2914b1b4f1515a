"""RabbitMQ's API at `/api`: its paths, and what answers them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import chain
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker.http.guard import CHALLENGE
from broker.http.problems import Problem
from broker.http.rabbitmq import (
    absent,
    broker,
    definitions,
    messages,
    parameters,
    policies,
    queues,
    users,
    vhosts,
)
from broker.http.rabbitmq.asking import Asking, Call, OpenCall, refusal
from broker.http.site import Site

PREFIX: Final = "/api"
OPEN_PATHS: Final = frozenset(PREFIX + path for path in broker.OPEN_CALLS)
"""Those that need no login."""


def rabbitmq_routes(site: Site) -> list[Route]:
    """Return the routes, to be matched by the path as it was sent."""
    parts = (broker, vhosts, queues, messages, definitions, users, policies, parameters, absent)
    rows = chain.from_iterable(part.calls for part in parts)
    routes = [Route(PREFIX + path, _served(site, call), methods=[method]) for method, path, call in rows]
    routes += [Route(PREFIX + path, _opened(site, call)) for path, call in broker.OPEN_CALLS.items()]
    return [*routes, Route(f"{PREFIX}/{{rest:path}}", _served(site, _nowhere))]


def _served(site: Site, call: Call) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        try:
            if "authorization" not in request.headers:
                raise Problem(401, "not_authorised", "log in first", headers=CHALLENGE)
            return await call(Asking(request, site))
        except Exception as error:
            return refusal(error)

    return serve


def _opened(site: Site, call: OpenCall) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        try:
            return await call(site)
        except Exception as error:
            return refusal(error)

    return serve


async def _nowhere(asking: Asking) -> Response:
    raise Problem(404, "not_found", "Not Found")
