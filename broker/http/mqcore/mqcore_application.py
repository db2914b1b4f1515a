"""The listener `mqcore`: MQ-Core's six endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import unquote

from pydantic import BeforeValidator, WithJsonSchema
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from broker.access.login import Identity
from broker.access.rights import Action
from broker.admin.admin import Admin
from broker.http.bodies import UnfinishedBodies, body_of
from broker.http.endpoints import Endpoint, Endpoints, openapi_of, response_of
from broker.http.guard import identity_of
from broker.http.lasting import run_lasting
from broker.http.mqcore import property_headers
from broker.http.mqcore.queues import Queues
from broker.http.problems import Problem, answer_of
from broker.http.station import Delivery
from broker.vhosts.hub import Hub
from config import limits, units

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


mqcore: Final = Endpoints("mqcore", is_for_clients=True)


@mqcore.endpoint("GET", "/{queue}", needs=Action.READ)
async def show_queue(queues: Queues, queue: str) -> QueueCounts:
    """Return whether a queue is there, and how much is in it."""
    found = await queues.look(queue)
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


class MqCore:
    """An ASGI application. Which endpoint a request is for is told here, by its path: publishing has to be
    quick.
    """

    def __init__(self, hub: Hub, admin: Admin) -> None:
        """`hub` is that of `/`."""
        self._hub = hub
        self._admin = admin
        self._bodies = UnfinishedBodies()
        self._by_vhost: dict[str, Queues] = {}
        self._document = openapi_of("MQ-Core", {"": mqcore.all})
        hub.on_vhost(self._changed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            response = await self._answer(scope, receive)
            response.raw_headers.extend(_AS_DATA)
        except Exception as error:
            response = answer_of(error)
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        parts = scope["raw_path"].split(b"/")[1:]
        if parts == [b""] and scope["method"] == "GET":
            return JSONResponse(self._document)
        if b"" in parts or len(parts) > len(_ENDPOINTS) or parts[1:2] not in ([], [b"messages"]):
            raise Problem(404, "not_found", "paths are /QUEUE, /QUEUE/messages and /QUEUE/messages/ID")
        endpoints = _ENDPOINTS[len(parts) - 1]
        endpoint = endpoints.get(scope["method"])
        if endpoint is None:
            allowed = ", ".join(endpoints)
            raise Problem(405, "method_not_allowed", f"{allowed} only", headers={"allow": allowed})
        caller = identity_of(scope)
        path = dict(zip(endpoint.parts, map(_text, parts[::2]), strict=True))
        queues = self._queues(caller.vhost)
        arguments = await endpoint.arguments(Request(scope, receive), path, caller)
        return response_of(endpoint, await endpoint.call(queues, *path.values(), **arguments))

    def _queues(self, vhost: str) -> Queues:
        """Return those of a virtual host, made when they are first asked for; raises VhostNotFound."""
        queues = self._by_vhost.get(vhost)
        if queues is None:
            hub = self._hub.of_vhost(vhost)
            queues = self._by_vhost[vhost] = Queues(hub, self._admin.within(hub.client), self._bodies)
        return queues

    def _changed(self, hub: Hub, begins: bool) -> None:
        if not begins:
            self._by_vhost.pop(hub.vhost.name, None)


_ENDPOINTS: Final[tuple[Mapping[str, Endpoint], ...]] = tuple(
    {each.method: each for each in mqcore.all if each.path.count("/") == depth} for depth in (1, 2, 3)
)
"""By how many parts their paths have, and their methods."""


def _text(part: bytes) -> str:
    try:
        return unquote(part.decode("ascii"), errors="strict")
    except UnicodeDecodeError:
        raise Problem(400, "invalid_address", "a path is ASCII, with UTF-8 encoded by %") from None
