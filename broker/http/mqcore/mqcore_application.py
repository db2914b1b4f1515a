"""The listener `mqcore`: MQ-Core's six endpoints, and what they can do beyond it.

Plain ASGI, for publishing has to be quick: what a request asks for is told from its path and method here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Receive, Scope, Send

from broker.access.login import NotPermitted
from broker.access.rights import Action, Kind
from broker.admin.admin import Admin
from broker.http.guard import identity_of
from broker.http.lasting import lasting
from broker.http.mqcore import property_headers
from broker.http.mqcore.document import document
from broker.http.mqcore.queues import Queues
from broker.http.problems import Problem, answer_of
from broker.http.station import Delivery
from broker.http.values import payload, shown
from broker.properties import amqp
from broker.publication import with_properties
from broker.vhosts.hub import Hub
from config import limits, units
from queue_manager.errors import InvalidArgument

MESSAGES: Final = "messages"
VHOST: Final = "vhost"
ID_HEADER: Final = b"x-message-id"
_ID_DIGITS_MAX: Final = 19
_AS_DATA: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
    (b"cache-control", b"no-store"),
)
"""A body is whatever somebody published, also as a page: a browser does nothing with it, and keeps nothing of
what a fetch took away.
"""


class Answer(NamedTuple):
    """What a request is answered with."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Batch(BaseModel):
    """Messages to be added together: all of them, or none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    class Item(BaseModel):
        """One message; with `encoding` base64 its body is any bytes."""

        model_config = ConfigDict(extra="forbid", frozen=True)

        body: str
        encoding: str = Field(default="text", pattern="^(text|base64)$")

        def data(self) -> bytes:
            """The bytes of the body; raises InvalidArgument where they cannot be told."""
            return payload(self.body, self.encoding)

    messages: list[Item] = Field(min_length=1, max_length=limits.MQCORE_BATCH_MESSAGES_MAX)
    content_type: str = Field(default="", max_length=255)
    headers: dict[str, str | int | float | bool | None] = {}
    properties: dict[str, str | int] = {}


class MqCore:
    """An ASGI application."""

    def __init__(self, hub: Hub, admin: Admin) -> None:
        """`hub` is that of `/`."""
        self._vhosts = _VhostQueues(hub, admin)
        self._access = hub.access
        self._body_bytes = 0  # of requests that have come in part

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            answer = await self._answer(scope, receive)
        except Exception as error:
            await answer_of(error)(scope, receive, send)
            return
        headers = [*answer.headers, *_AS_DATA]
        if answer.status != 204:
            headers.append((b"content-length", str(len(answer.body)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        parts = scope["raw_path"].split(b"/")
        method: str = scope["method"]
        calls: dict[str, Callable[..., Awaitable[Answer]]]
        arguments: tuple[Any, ...] = ()
        if len(parts) == 2 and not parts[1]:
            calls = {"GET": self._describe}
        elif len(parts) == 2:
            calls = {"GET": self._show, "PUT": self._create, "DELETE": self._delete}
            arguments = (self._vhosts.of(scope), _text(parts[1]), scope)
        elif len(parts) == 3 and parts[1] and parts[2] == b"messages":
            calls = {"POST": self._add, "GET": self._fetch, "DELETE": self._remove_many}
            arguments = (self._vhosts.of(scope), _text(parts[1]), scope, receive)
        elif len(parts) == 4 and parts[1] and parts[2] == b"messages" and parts[3]:
            calls = {"DELETE": self._remove, "PATCH": self._set_visibility}
            arguments = (self._vhosts.of(scope), _text(parts[1]), scope, _text(parts[3]))
        else:
            raise Problem(404, "not_found", "paths are /QUEUE, /QUEUE/messages and /QUEUE/messages/ID")
        call = calls.get(method)
        if call is None:
            allowed = ", ".join(calls)
            raise Problem(405, "method_not_allowed", f"{allowed} only", headers={"allow": allowed})
        return await call(*arguments)

    # queues

    async def _describe(self) -> Answer:
        return _json(200, document())

    async def _show(self, queues: Queues, name: str, scope: Scope) -> Answer:
        identity_of(scope).check(Action.READ, Kind.QUEUE, name)
        queue = await queues.look(name)
        counts = {"name": name, "ready": queue.ready, "consumers": queue.consumers}
        return _json(200, counts)

    async def _create(self, queues: Queues, name: str, scope: Scope) -> Answer:
        identity_of(scope).check(Action.CONFIGURE, Kind.QUEUE, name)
        return Answer(201 if await queues.create(name) else 200)

    async def _delete(self, queues: Queues, name: str, scope: Scope) -> Answer:
        identity_of(scope).check(Action.CONFIGURE, Kind.QUEUE, name)
        await queues.delete(name)
        return Answer(204)

    # messages

    async def _add(self, queues: Queues, name: str, scope: Scope, receive: Receive) -> Answer:
        identity_of(scope).check(Action.WRITE, Kind.QUEUE, name)
        if scope["query_string"]:
            batch = _query(scope, {"batch"}).get("batch")
            if batch is not None:
                return await self._add_batch(queues, name, batch, scope, receive)
        queue = queues.find(name)
        given = property_headers.read(scope["headers"])
        body = await self._body(receive, queue.policy.message_bytes_max)
        offsets = await queues.add(name, [body], given)
        return Answer(201, b"", tuple([(ID_HEADER, str(offset).encode()) for offset in offsets]))

    async def _add_batch(
        self, queues: Queues, name: str, asked: str, scope: Scope, receive: Receive
    ) -> Answer:
        if asked not in ("", "true"):
            raise InvalidArgument("batch: give batch=true, or leave it out")
        queues.find(name)
        batch = Batch.model_validate_json(await self._body(receive, limits.MQCORE_BATCH_BYTES_MAX))
        bodies = [item.data() for item in batch.messages]
        fields = {**batch.properties, **({"content_type": batch.content_type} if batch.content_type else {})}
        raw = amqp.write_fields(True, fields, batch.headers)
        with_properties.check_user_id(raw, identity_of(scope))
        offsets = await queues.add(name, bodies, raw)
        return _json(201, {"ids": list(map(str, offsets))})

    async def _fetch(self, queues: Queues, name: str, scope: Scope, receive: Receive) -> Answer:
        query = _query(scope, {"group", "count", "wait", "visibility"}) if scope["query_string"] else {}
        group = _group(scope, name, query)
        count = _whole(query, "count", 1, 1, limits.MQCORE_BATCH_MESSAGES_MAX)
        wait_ms = _duration(query, "wait", limits.MQCORE_WAIT_MS_MAX) or 0
        visibility_ms = _duration(query, "visibility", limits.EXTEND_MS_MAX)
        if visibility_ms == 0:
            raise InvalidArgument("visibility: a message cannot be fetched for no time")
        fetching = queues.fetch(name, group, count, wait_ms / 1000, visibility_ms)
        if wait_ms:
            found = await self._wait(fetching, partial(queues.give_back, name, group), scope, receive)
        else:
            found = await fetching
        if not found:
            return Answer(204)
        if "count" in query:
            return _json(200, {"messages": [_item(delivery) for delivery in found]})
        message, claim = found[0]
        headers = [(ID_HEADER, str(message.offset).encode())]
        headers.append((b"x-message-attempts", str(claim.attempts).encode()))
        return Answer(200, message.body or b"", (*headers, *property_headers.shown(message)))

    async def _wait(
        self,
        fetching: Awaitable[list[Delivery]],
        give_back: Callable[[list[Delivery]], None],
        scope: Scope,
        receive: Receive,
    ) -> list[Delivery]:
        """What is fetched, unless the client goes before it comes, or may not have it any more: then nothing
        stays claimed for it. Raises NotPermitted.
        """
        fetch = asyncio.ensure_future(fetching)
        gone = asyncio.ensure_future(_gone(receive))
        reasons: list[str] = []

        def end(reason: str) -> None:
            reasons.append(reason)
            fetch.cancel()

        is_wanted = False
        try:
            with lasting(self._access, identity_of(scope), end):
                await asyncio.wait((fetch, gone), return_when=asyncio.FIRST_COMPLETED)
            is_wanted = not reasons and not gone.done()
        finally:
            for task in (fetch, gone):
                if not task.done():
                    task.cancel()
            await asyncio.wait((fetch, gone))
            if not is_wanted and not fetch.cancelled() and fetch.exception() is None:
                give_back(fetch.result())
        if reasons:
            raise NotPermitted(reasons[0])
        return fetch.result() if is_wanted else []

    async def _remove(self, queues: Queues, name: str, scope: Scope, message_id: str) -> Answer:
        group = _group(scope, name, _query(scope, {"group"}))
        if not await queues.remove(name, group, _offset(message_id)):
            raise Problem(404, "not_found", f"no message {message_id!r} waits in queue {name!r}")
        return Answer(204)

    async def _remove_many(self, queues: Queues, name: str, scope: Scope, receive: Receive) -> Answer:
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        ids = [value for key, value in pairs if key == "id"]
        group = _group(scope, name, {key: value for key, value in pairs if key == "group"})
        if not 1 <= len(ids) <= limits.MQCORE_BATCH_MESSAGES_MAX:
            raise InvalidArgument(f"id: give 1 to {limits.MQCORE_BATCH_MESSAGES_MAX} of them")
        removed = await asyncio.gather(*[queues.remove(name, group, _offset(each)) for each in ids])
        return _json(200, {"removed": sum(removed)})

    async def _set_visibility(self, queues: Queues, name: str, scope: Scope, message_id: str) -> Answer:
        query = _query(scope, {"group", "visibility"})
        visibility_ms = _duration(query, "visibility", limits.EXTEND_MS_MAX)
        if visibility_ms is None:
            raise InvalidArgument("visibility: say for how long")
        group = _group(scope, name, query)
        queues.set_visibility(name, group, _offset(message_id), visibility_ms)
        return Answer(204)

    async def _body(self, receive: Receive, bytes_max: int) -> bytes:
        """The body of a request; raises Problem when it does not come whole, or is too large."""
        parts: list[bytes] = []
        byte_count = 0
        try:
            while True:
                event = await receive()
                if event["type"] == "http.disconnect":
                    raise Problem(400, "bad_request", "the body ended early")
                part = event.get("body", b"")
                if not event.get("more_body", False) and not parts:
                    if len(part) > bytes_max:
                        raise _too_large(bytes_max)
                    return bytes(part)
                parts.append(part)
                byte_count += len(part)
                self._body_bytes += len(part)
                if byte_count > bytes_max:
                    raise _too_large(bytes_max)
                if self._body_bytes > limits.UNFINISHED_BYTES_MAX:
                    headers = {"retry-after": "1"}
                    raise Problem(503, "unavailable", "too many bodies are on their way", headers=headers)
                if not event.get("more_body", False):
                    return b"".join(parts)
        finally:
            self._body_bytes -= byte_count


class _VhostQueues:
    """The queues of each virtual host, made when they are first asked for."""

    def __init__(self, hub: Hub, admin: Admin) -> None:
        self._hub = hub
        self._admin = admin
        self._by_vhost: dict[str, Queues] = {}
        hub.on_vhost(self._changed)

    def _changed(self, hub: Hub, begins: bool) -> None:
        if not begins:
            self._by_vhost.pop(hub.vhost.name, None)

    def of(self, scope: Scope) -> Queues:
        """Those where a request leads; raises VhostNotFound."""
        name = identity_of(scope).vhost
        queues = self._by_vhost.get(name)
        if queues is None:
            hub = self._hub.of_vhost(name)
            queues = self._by_vhost[name] = Queues(hub, self._admin.within(hub.client))
        return queues


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _json(status: int, value: Any) -> Answer:
    return Answer(status, json.dumps(value).encode(), ((b"content-type", b"application/json"),))


def _item(delivery: Delivery) -> dict[str, Any]:
    message, claim = delivery
    body, encoding = shown(message.body or b"")
    item = {"id": str(message.offset), "attempts": claim.attempts, "body": body, "encoding": encoding}
    return item | property_headers.as_json(message)


def _text(part: bytes) -> str:
    try:
        return unquote(part.decode("ascii"), errors="strict")
    except UnicodeDecodeError:
        raise Problem(400, "invalid_address", "a path is ASCII, with UTF-8 encoded by %") from None


def _query(scope: Scope, known: set[str]) -> dict[str, str]:
    query: dict[str, str] = {}
    for name, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name == VHOST:  # where the request leads is known
            continue
        if name not in known:
            raise InvalidArgument(f"{name}: unknown")
        if name in query:
            raise InvalidArgument(f"{name}: given twice")
        query[name] = value
    return query


def _group(scope: Scope, name: str, query: dict[str, str]) -> str:
    """The group whose messages are asked for; raises NotPermitted."""
    identity = identity_of(scope)
    identity.check(Action.READ, Kind.QUEUE, name)
    group = query.get("group", "")
    if group:
        identity.check(Action.READ, Kind.GROUP, group)
    return group


def _whole(query: dict[str, str], name: str, default: int, least: int, most: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < _ID_DIGITS_MAX and least <= int(text) <= most):
        raise InvalidArgument(f"{name}: a whole number from {least} to {most}")
    return int(text)


def _duration(query: dict[str, str], name: str, most_ms: int) -> int | None:
    """A duration: seconds, or with a unit; None if it is not given."""
    text = query.get(name)
    if text is None:
        return None
    try:
        found = units.parse_duration_ms(f"{text}s" if text.isascii() and text.isdigit() else text)
    except ValueError as error:
        raise InvalidArgument(f"{name}: {error}") from None
    if found > most_ms:
        raise InvalidArgument(f"{name}: at most {most_ms // 1000} s")
    return found


def _offset(message_id: str) -> int:
    if not (message_id.isascii() and message_id.isdigit() and len(message_id) <= _ID_DIGITS_MAX):
        raise Problem(404, "not_found", f"no message {message_id!r}")
    return int(message_id)


def _too_large(bytes_max: int) -> Problem:
    return Problem(413, "too_large", f"the body is larger than {bytes_max} bytes")
