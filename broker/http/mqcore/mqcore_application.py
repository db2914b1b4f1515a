"""The listener `mqcore`: MQ-Core's six endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from broker.access.login import Identity
from broker.access.rights import Action
from broker.admin.admin import Admin
from broker.http.endpoints import Endpoints, openapi_of, routes_of, served
from broker.http.guard import DEFAULT_VHOST
from broker.http.lasting import run_lasting
from broker.http.mqcore import property_headers
from broker.http.mqcore.queues import Queues
from broker.http.problems import Problem
from broker.http.station import Delivery
from broker.http.values import UnfinishedBodies, body_of
from broker.vhosts.hub import Hub
from config import limits, units
from queue_manager.api import OPERATOR

_ID_DIGITS_MAX: Final = 19
_AS_DATA: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
    (b"cache-control", b"no-store"),
)
"""A body is whatever somebody published, also as a page: a browser does nothing with it, and keeps nothing of
what a fetch took away.
"""


def _duration_ms(least_ms: int, most_ms: int, text: str) -> int:
    """Read seconds, or a duration with a unit; raises ValueError."""
    found = units.parse_duration_ms(f"{text}s" if text.isascii() and text.isdigit() else text)
    if not least_ms <= found <= most_ms:
        raise ValueError(f"from {least_ms} ms to {most_ms // 1000} s")
    return found


_DURATION: Final = WithJsonSchema({"type": "string", "examples": ["30s", "5m", "20"]})
Wait = Annotated[int, BeforeValidator(partial(_duration_ms, 0, limits.MQCORE_WAIT_MS_MAX)), _DURATION]
Visibility = Annotated[int, BeforeValidator(partial(_duration_ms, 1, limits.EXTEND_MS_MAX)), _DURATION]


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """A queue, and how much is in it."""

    name: str
    ready: int
    consumers: int


mqcore: Final = Endpoints("mqcore", is_for_clients=True, headers=_AS_DATA)


@mqcore.endpoint("GET", "/{queue}", needs=Action.READ)
async def show_queue(queues: Queues, queue: str) -> QueueCounts:
    """Return whether a queue is there, and how much is in it."""
    found = await queues.look(queue, OPERATOR)
    return QueueCounts(queue, found.ready, found.consumers)


@mqcore.endpoint("PUT", "/{queue}", needs=Action.CONFIGURE, status=201)
async def create_queue(queues: Queues, queue: str) -> Response:
    """Make a durable queue: 201, or 200 where it was there."""
    return Response(status_code=201 if await queues.create(queue) else 200)


@mqcore.endpoint("DELETE", "/{queue}", needs=Action.CONFIGURE)
async def delete_queue(queues: Queues, queue: str) -> None:
    """Delete a queue with its messages."""
    await queues.delete(queue)


@mqcore.endpoint("POST", "/{queue}/messages", needs=Action.WRITE, status=201)
async def add_message(queues: Queues, queue: str, request: Request) -> Response:
    """Add a message, whose body is that of the request; it is durable when the answer comes, with the
    message's ID in `X-Message-Id`.
    """
    most = queues.find(queue).policy.message_bytes_max
    properties = property_headers.read(request.scope["headers"])
    offset = await queues.add(queue, await body_of(request, most, queues.bodies), properties)
    return Response(status_code=201, headers=None if offset is None else {"x-message-id": str(offset)})


@mqcore.endpoint("GET", "/{queue}/messages", needs=Action.READ)
async def fetch_message(
    queues: Queues,
    queue: str,
    request: Request,
    caller: Identity,
    *,
    group: str = "",
    wait: Wait = 0,
    visibility: Visibility | None = None,
) -> Response:
    """Fetch a message, or wait for one: nobody else is given it until it is deleted, or the time `visibility`
    is over. 204: none came.
    """
    fetching = queues.fetch(queue, group, wait / 1000, visibility)
    if wait:
        waiting = _while_there(request, fetching, partial(queues.give_back, queue, group))
        found = await run_lasting(queues.access, caller, waiting, tags=frozenset())
    else:
        found = await fetching
    if found is None:
        return Response(status_code=204)
    message, claim = found
    response = Response(message.body or b"")
    told = (
        (b"x-message-id", str(message.offset).encode()),
        (b"x-message-attempts", str(claim.attempts).encode()),
    )
    response.raw_headers.extend((*told, *property_headers.shown(message)))
    return response


@mqcore.endpoint("DELETE", "/{queue}/messages/{id}", needs=Action.READ)
async def delete_message(queues: Queues, queue: str, message_id: str, *, group: str = "") -> None:
    """Delete a message, fetched or not."""
    is_id = message_id.isascii() and message_id.isdigit() and len(message_id) <= _ID_DIGITS_MAX
    if not (is_id and await queues.remove(queue, group, int(message_id))):
        raise Problem(404, "not_found", f"no message {message_id!r} waits in queue {queue!r}")


async def _while_there(
    request: Request, fetching: Coroutine[Any, Any, Delivery | None], give_back: Callable[[Delivery], None]
) -> Delivery | None:
    """Return what is fetched, unless the client goes before it comes: then nothing stays claimed for it."""
    fetch = asyncio.ensure_future(fetching)
    gone = asyncio.ensure_future(_gone(request.receive))
    is_wanted = False
    try:
        await asyncio.wait((fetch, gone), return_when=asyncio.FIRST_COMPLETED)
        is_wanted = not gone.done()
    finally:
        fetch.cancel()
        gone.cancel()
        await asyncio.wait((fetch, gone))
        if not is_wanted and not fetch.cancelled() and fetch.exception() is None:
            found = fetch.result()
            if found is not None:
                give_back(found)
    return fetch.result() if is_wanted else None


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def mqcore_application(hub: Hub, admin: Admin) -> ASGIApp:
    """Make the application; `hub` is that of `/`."""
    bodies = UnfinishedBodies()
    by_vhost: dict[str, Queues] = {}

    def where(path: Mapping[str, str], caller: Identity | None) -> Queues:
        vhost = DEFAULT_VHOST if caller is None else caller.vhost
        queues = by_vhost.get(vhost)
        if queues is None:
            of_vhost = hub.of_vhost(vhost)
            queues = by_vhost[vhost] = Queues(of_vhost, admin.within(of_vhost.client), bodies)
        return queues

    def changed(hub: Hub, begins: bool) -> None:
        if not begins:
            by_vhost.pop(hub.vhost.name, None)

    hub.on_vhost(changed)
    document = openapi_of("MQ-Core", {"": mqcore.all})
    routes = routes_of(mqcore.all, "", where)
    for route in routes:
        route.methods = (route.methods or set()) - {"HEAD"}  # it would claim a message, as GET does
    routes.append(Route("/", lambda request: JSONResponse(document)))
    return served(Router(routes, redirect_slashes=False, default=_nowhere))


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise HTTPException(404, "paths are /QUEUE, /QUEUE/messages and /QUEUE/messages/ID")
