"""What a request to `/management` does: queues, exchanges, bindings, tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from broker.access.credentials import LoginRefused
from broker.access.login import NotPermitted
from broker.access.rights import Action, Kind
from broker.amqp.connection import permissions
from broker.amqp.topology.declarations import queue_declaration
from broker.amqp10.connection.addresses import decoded, encoded
from broker.amqp10.connection.amqp10_client import NODE
from broker.amqp10.connection.amqp10_session import Session
from broker.amqp10.connection.errors import told
from broker.amqp10.topology.requests import (
    BAD_REQUEST,
    CONFLICT,
    CREATED,
    FORBIDDEN,
    NO_CONTENT,
    NOT_ALLOWED,
    NOT_FOUND,
    OK,
    TOO_MUCH,
    Answer,
    Refused,
    Request,
)
from broker.properties.amqp10 import typed
from protocols.amqp10 import types as t
from queue_manager.address import RESERVED_PREFIX
from queue_manager.api import EXCHANGE_TYPES, BindingDefinition, ExchangeDeclaration, QueueView
from queue_manager.errors import (
    AccessRefused,
    ExchangeNotFound,
    InvalidArgument,
    LimitReached,
    PreconditionFailed,
    QueueManagerError,
    QueueNotFound,
    ResourceLocked,
)

_T = TypeVar("_T")
_Act = Callable[["Operations", Request, str], Awaitable[Answer]]

_QUEUE_FIELDS: Final = {"durable": True, "exclusive": False, "auto_delete": False}
_EXCHANGE_FIELDS: Final = {"durable": True, "auto_delete": False, "internal": False}
_STATUSES: Final[dict[type[QueueManagerError], int]] = {
    NotPermitted: FORBIDDEN,
    AccessRefused: FORBIDDEN,
    QueueNotFound: NOT_FOUND,
    ExchangeNotFound: NOT_FOUND,
    ResourceLocked: CONFLICT,
    PreconditionFailed: CONFLICT,
    InvalidArgument: CONFLICT,
    LimitReached: TOO_MUCH,
}


class Operations:
    """Does what requests of one client ask. All of it is durable when it is answered."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._core = session.core

    async def act(self, request: Request) -> Answer:
        """Do what a request asks; what is refused is an answer, too."""
        try:
            answer = await self._act(request)
            await self._core.commits.durable()
        except Refused as refused:
            return Answer(refused.status, refused.reason)
        except QueueManagerError as error:
            kinds = (_STATUSES[kind] for kind in type(error).__mro__ if kind in _STATUSES)
            return Answer(next(kinds, BAD_REQUEST), told(error, self._session.client.vhost))
        return answer

    async def _act(self, request: Request) -> Answer:
        path, _, query = request.path.partition("?")
        root, _, below = path.partition("/")
        first, *rest = below.split("/")
        acts = _ROUTES.get((first, len(rest), rest[1] if len(rest) == 2 else ""))
        if acts is None or root:
            raise Refused(NOT_FOUND, f"there is nothing at {path[:256]}")
        act = acts.get(request.method)
        if act is None:
            raise Refused(NOT_ALLOWED, f"{path[:256]} has {', '.join(acts)}, not {request.method[:32]}")
        return await act(self, request, query if first == "bindings" and not rest else "".join(rest[:1]))

    # queues

    async def declare_queue(self, request: Request, part: str) -> Answer:
        """Make a queue, or find that there is one like it."""
        name = _name("queue", part)
        client = self._session.client
        body = _fields(request.body, "queue", (*_QUEUE_FIELDS, "arguments"))
        flags = {field: _flag(body, field, default) for field, default in _QUEUE_FIELDS.items()}
        arguments = _arguments(body)
        permissions.check_queue(client.identity, name, arguments)
        hub = client.hub
        declaration = queue_declaration(
            name,
            arguments,
            hub.default_policy,
            vhost=client.vhost,
            default_type=hub.vhost.settings.default_queue_type,
            **flags,
        )
        status = await self._core.queues.declare(declaration, client.caller)
        view = await self._core.queues.view(name)
        return Answer(CREATED if status.is_new else OK, self._queue(view, flags))

    async def look_queue(self, request: Request, part: str) -> Answer:
        """Tell how a queue is."""
        name = _name("queue", part)
        identity = self._session.client.identity
        actions = (Action.READ, Action.WRITE)
        if not any(identity.may(action, Kind.QUEUE, name) for action in actions):
            identity.check(Action.CONFIGURE, Kind.QUEUE, name)
        return Answer(OK, self._queue(await self._core.queues.view(name), {}))

    async def delete_queue(self, request: Request, part: str) -> Answer:
        """Delete a queue; that there is none is no error."""
        name = _name("queue", part)
        client = self._session.client
        client.identity.check(Action.CONFIGURE, Kind.QUEUE, name)
        try:
            dropped = await self._core.queues.delete(name, client.caller)
        except QueueNotFound:
            return Answer(OK, _counted(0))
        return Answer(OK, _counted(dropped.count))

    async def purge_queue(self, request: Request, part: str) -> Answer:
        """Drop what waits in a queue."""
        name = _name("queue", part)
        client = self._session.client
        client.identity.check(Action.READ, Kind.QUEUE, name)
        dropped = await self._core.queues.purge(name, client.caller)
        return Answer(OK, _counted(dropped.count))

    def _queue(self, view: QueueView, flags: Mapping[str, bool]) -> dict[str, Any]:
        kind = view.arguments.get("x-queue-type")
        kind = "stream" if view.type == "stream" else kind if isinstance(kind, str) else "classic"
        told_arguments = {name: value for name, value in view.arguments.items() if name != "durable"}
        told_arguments["x-queue-type"] = kind
        declared = view.arguments.get("durable", view.durable)
        return {
            "leader": NODE,
            "message_count": t.ULong(view.ready + view.delayed),
            "consumer_count": t.UInt(view.consumers),
            "name": view.name,
            "vhost": self._session.client.vhost,
            "durable": flags.get("durable", declared is True),
            "auto_delete": view.auto_delete,
            "exclusive": view.exclusive,
            "type": kind,
            "arguments": _typed(told_arguments),
            "replicas": t.Array("string", [NODE]),
        }

    # exchanges

    async def declare_exchange(self, request: Request, part: str) -> Answer:
        """Make an exchange, or find that there is one like it."""
        name = _name("exchange", part)
        body = _fields(request.body, "exchange", (*_EXCHANGE_FIELDS, "type", "arguments"))
        kind = body.get("type", "direct")
        if not isinstance(kind, str) or kind not in EXCHANGE_TYPES:
            raise Refused(BAD_REQUEST, f"unknown exchange type '{kind}'")
        flags = {field: _flag(body, field, default) for field, default in _EXCHANGE_FIELDS.items()}
        arguments = _arguments(body)
        permissions.check_exchange(self._session.client.identity, name, arguments)
        declaration = ExchangeDeclaration(name=name, type=kind, arguments=arguments, **flags)
        await self._core.exchanges.declare(declaration, self._session.client.caller)
        return Answer(NO_CONTENT)

    async def delete_exchange(self, request: Request, part: str) -> Answer:
        """Delete an exchange; that there is none is no error."""
        name = _name("exchange", part)
        self._session.client.identity.check(Action.CONFIGURE, Kind.EXCHANGE, name)
        if name.startswith(RESERVED_PREFIX):
            raise Refused(FORBIDDEN, f"deletion of system exchange '{name}' not allowed")
        try:
            await self._core.exchanges.delete(name)
        except ExchangeNotFound:
            pass
        return Answer(NO_CONTENT)

    # bindings

    async def bind(self, request: Request, query: str) -> Answer:
        """Have an exchange pass messages on."""
        fields = ("source", "binding_key", "arguments", "destination_queue", "destination_exchange")
        body = _fields(request.body, "binding", fields)
        arguments = _arguments(body)
        binding = _binding(
            body.get("source"),
            body.get("destination_queue"),
            body.get("destination_exchange"),
            body.get("binding_key", ""),
            arguments,
        )
        self._check(binding)
        await self._found(self._core.exchanges.bind(binding, self._session.client.caller))
        return Answer(NO_CONTENT)

    async def list_bindings(self, request: Request, query: str) -> Answer:
        """Tell the bindings from an exchange to a queue or exchange with a key."""
        asked = dict(parse_qsl(query, keep_blank_values=True))
        wanted = _binding(asked.get("src"), asked.get("dstq"), asked.get("dste"), asked.get("key"), {})
        found = [_told_binding(binding) for binding in await self._alike(wanted)]
        return Answer(OK, found)

    async def unbind(self, request: Request, part: str) -> Answer:
        """Undo a binding; that there is none is no error."""
        fields = dict(piece.partition("=")[::2] for piece in part.split(";"))
        named = {name: decoded(value) for name, value in fields.items()}
        wanted = _binding(named.get("src"), named.get("dstq"), named.get("dste"), named.get("key"), {})
        self._check(wanted)
        for binding in await self._alike(wanted):
            if _hash(binding.arguments) == named.get("args", ""):
                await self._core.exchanges.unbind(binding, self._session.client.caller)
        return Answer(NO_CONTENT)

    async def _alike(self, wanted: BindingDefinition) -> list[BindingDefinition]:
        """Return the bindings that differ from this one in their arguments only."""
        try:
            bindings = await self._core.exchanges.bindings(source=wanted.source)
        except ExchangeNotFound:
            return []
        key = (wanted.destination, wanted.destination_type, wanted.routing_key)
        return [
            each for each in bindings if (each.destination, each.destination_type, each.routing_key) == key
        ]

    async def _found(self, answer: Awaitable[_T]) -> _T:
        """Wait for a binding; that one end of it is not there is the request's mistake."""
        try:
            return await answer
        except (QueueNotFound, ExchangeNotFound) as error:
            raise Refused(BAD_REQUEST, told(error, self._session.client.vhost)) from None

    def _check(self, binding: BindingDefinition) -> None:
        identity = self._session.client.identity
        is_queue = binding.destination_type == "queue"
        kind = Kind.QUEUE if is_queue else Kind.EXCHANGE
        identity.check(Action.WRITE, kind, binding.destination)
        if not is_queue:
            identity.check_keys(Action.WRITE, binding.destination, binding.routing_key)
        identity.check(Action.READ, Kind.EXCHANGE, binding.source)
        identity.check_keys(Action.READ, binding.source, binding.routing_key)

    # tokens

    async def renew_token(self, request: Request, part: str) -> Answer:
        """Have the login last as long as another token says."""
        if part != "tokens":
            raise Refused(NOT_FOUND, f"there is nothing at {request.path[:256]}")
        if not isinstance(request.body, bytes):
            raise Refused(BAD_REQUEST, "a token is binary")
        try:
            await self._session.client.renew(request.body)
        except LoginRefused as refused:
            raise Refused(FORBIDDEN, refused.told) from None
        return Answer(NO_CONTENT)


_ROUTES: Final[dict[tuple[str, int, str], dict[str, _Act]]] = {
    ("queues", 1, ""): {
        "PUT": Operations.declare_queue,
        "GET": Operations.look_queue,
        "DELETE": Operations.delete_queue,
    },
    ("queues", 2, "messages"): {"DELETE": Operations.purge_queue},
    ("exchanges", 1, ""): {"PUT": Operations.declare_exchange, "DELETE": Operations.delete_exchange},
    ("bindings", 0, ""): {"POST": Operations.bind, "GET": Operations.list_bindings},
    ("bindings", 1, ""): {"DELETE": Operations.unbind},
    ("auth", 1, ""): {"PUT": Operations.renew_token},
}


def _name(kind: str, part: str) -> str:
    name = decoded(part)
    if not name:
        if kind == "exchange":
            raise Refused(FORBIDDEN, "operation not permitted on the default exchange")
        raise Refused(BAD_REQUEST, f"declare {kind} with empty name not allowed")
    return name


def _fields(body: Any, what: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise Refused(BAD_REQUEST, f"a {what} is declared by a map")
    for name in body:
        if name not in known:
            raise Refused(BAD_REQUEST, f"bad {what} property {name!r}")
    return body


def _flag(body: Mapping[str, Any], name: str, default: bool) -> bool:
    value = body.get(name, default)
    if not isinstance(value, bool):
        raise Refused(BAD_REQUEST, f"{name} is true or false")
    return value


def _arguments(body: Mapping[str, Any]) -> dict[str, Any]:
    arguments = body.get("arguments") or {}
    if not isinstance(arguments, dict):
        raise Refused(BAD_REQUEST, "arguments are a map")
    return arguments


def _binding(
    source: object, queue: object, exchange: object, key: object, arguments: Mapping[str, Any]
) -> BindingDefinition:
    destination = exchange if queue is None else queue
    if not isinstance(source, str) or not isinstance(destination, str) or not isinstance(key, str):
        raise Refused(BAD_REQUEST, "a binding has a source, a destination_queue or _exchange, and a key")
    if not source or (queue is None and not destination):
        raise Refused(FORBIDDEN, "operation not permitted on the default exchange")
    return BindingDefinition(
        source=source,
        destination=destination,
        destination_type="exchange" if queue is None else "queue",
        routing_key=key,
        arguments=arguments,
    )


def _told_binding(binding: BindingDefinition) -> dict[str, Any]:
    kind = "q" if binding.destination_type == "queue" else "e"
    location = (
        f"/bindings/src={encoded(binding.source)};dst{kind}={encoded(binding.destination)}"
        f";key={encoded(binding.routing_key)};args={_hash(binding.arguments)}"
    )
    return {
        "source": binding.source,
        f"destination_{binding.destination_type}": binding.destination,
        "binding_key": binding.routing_key,
        "arguments": _typed(binding.arguments),
        "location": location,
    }


def _typed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: typed(value) for name, value in arguments.items()}


def _hash(arguments: Mapping[str, object]) -> str:
    """Return what tells bindings with other arguments apart; "" for none."""
    if not arguments:
        return ""
    text = repr(sorted((name, repr(value)) for name, value in arguments.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _counted(count: int) -> dict[str, Any]:
    return {"message_count": t.ULong(count)}
