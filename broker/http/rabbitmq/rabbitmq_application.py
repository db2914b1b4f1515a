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
from broker.http.rabbitmq import broker, definitions, messages, queues, users, vhosts
from broker.http.rabbitmq.asking import Asking, Call, Calls, refusal
from broker.http.rabbitmq.users import none_of
from broker.http.site import Site

PREFIX: Final = "/api"

_FROM_FILES: Final = "queues get theirs by arguments, or from a file of definitions"
_ABSENT: Final = (
    (("/policies", "/policies/{vhost}"), "/policies/{vhost}/{name}", "policies", _FROM_FILES),
    (
        ("/operator-policies", "/operator-policies/{vhost}"),
        "/operator-policies/{vhost}/{name}",
        "operator policies",
        _FROM_FILES,
    ),
    (
        ("/parameters", "/parameters/{component}", "/parameters/{component}/{vhost}"),
        "/parameters/{component}/{vhost}/{name}",
        "parameters",
        "limits of virtual hosts are set at /api/vhost-limits",
    ),
    (
        ("/global-parameters",),
        "/global-parameters/{name}",
        "global parameters",
        "the configuration file has the settings",
    ),
)
"""The things that RabbitMQ keeps and this broker does not: where it is listed, where one of it is, and what
there is instead.
"""


def rabbitmq_routes(site: Site) -> list[Route]:
    """Return the routes, to be matched by the path as it was sent."""
    parts = (broker, vhosts, queues, messages, definitions, users)
    rows = [*chain.from_iterable(part.calls for part in parts), *_absent_calls()]
    routes = [Route(PREFIX + path, _served(site, call), methods=[method]) for method, path, call in rows]
    return [*routes, Route(f"{PREFIX}/{{rest:path}}", _served(site, _nowhere))]


def _absent_calls() -> Calls:
    calls = Calls()
    for lists, item, kind, instead in _ABSENT:
        absent = none_of(kind, instead)
        calls.add("GET", *lists)(absent["list"])
        calls.add("GET", item)(absent["show"])
        calls.add("PUT", item)(absent["refuse"])
        calls.add("DELETE", item)(absent["refuse"])
    return calls


def _served(site: Site, call: Call) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        try:
            if "authorization" not in request.headers:
                raise Problem(401, "not_authorised", "log in first", headers=CHALLENGE)
            return await call(Asking(request, site))
        except Exception as error:
            return refusal(error)

    return serve


async def _nowhere(asking: Asking) -> Response:
    raise Problem(404, "not_found", "Not Found")
