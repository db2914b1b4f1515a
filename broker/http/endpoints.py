"""Endpoints as a table: what they take and give, who may call them, and the OpenAPI document of it all."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker.access.login import ADMINISTRATOR, Identity
from broker.access.rights import Action, Kind
from broker.http.guard import check_operator, identity_of
from broker.http.lasting import run_lasting
from broker.http.problems import Problem, answer_of
from broker.http.site import Site
from broker.version import PRODUCT, VERSION
from config import limits

Q = TypeVar("Q", covariant=True)
B = TypeVar("B", covariant=True)

_SCHEMA_PLACE: Final = "#/components/schemas/{model}"
OPEN_PATHS: Final = frozenset({"/health", "/ready"})

IN_VHOST: Final = "{vhost}"
"""In what paths begin with: they are about what is in that virtual host."""

_PATH_PARAMETER: Final = re.compile(r"{(\w+)}")


class Query(BaseModel):
    """Base of what a request may say behind the question mark."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Body(BaseModel):
    """Base of the JSON objects that requests bring."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoQuery(Query):
    """Nothing."""


class NoBody(Body):
    """Nothing."""


@dataclass(frozen=True, slots=True)
class Ask(Generic[Q, B]):
    """One request, read and checked: the parts of its path by name, its query, its body, and who asks; None:
    what anybody may.
    """

    path: dict[str, str]
    query: Q
    body: B
    caller: Identity | None = None


Call = Callable[[Site, Ask[Any, Any]], Coroutine[Any, Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One call. `answer` None: nothing is told but `status`.

    Whoever has the tag `administrator` may make it, and those who may look at everything one that only looks;
    others need the rights `needs` to the queue in the path, and `also` to the one in `to` of the body.
    `is_private`: who may look at everything may not look at this. `lasts`: it may go on for long, and ends
    once the caller may not ask it any more.
    """

    method: str
    path: str
    call: Call
    query: type[Query]
    body: type[Body]
    answer: Any
    status: int
    tag: str
    needs: Action | None
    also: Action | None
    is_private: bool
    lasts: bool

    async def answer_to(self, site: Site, ask: Ask[Any, Any]) -> Any:
        """What the call comes to."""
        if not self.lasts or ask.caller is None:
            return await self.call(site, ask)
        tags = frozenset((ADMINISTRATOR,)) if ask.caller.is_administrator else frozenset[str]()
        return await run_lasting(site.hub.access, ask.caller, self.call(site, ask), tags=tags)

    def check(self, identity: Identity, ask: Ask[Any, Any]) -> None:
        """Raise Problem or NotPermitted where somebody may not make the call."""
        is_looking = self.method == "GET" and not self.is_private
        if identity.is_administrator or (is_looking and identity.is_monitoring):
            return
        if self.needs is None or "queue" not in ask.path:
            check_operator(identity, is_looking=is_looking)
            return
        identity.check(self.needs, Kind.QUEUE, ask.path["queue"])
        group = getattr(ask.query, "group", None) or getattr(ask.body, "group", None)
        if group:
            identity.check(Action.READ, Kind.GROUP, group)
        if self.also is not None and ask.body.to is not None:
            identity.check(self.also, Kind.QUEUE, ask.body.to)
        elif self.also is not None:
            check_operator(identity, is_looking=False)

    @property
    def is_open(self) -> bool:
        """Whether anybody may make it."""
        return self.path in OPEN_PATHS

    @property
    def summary(self) -> str:
        """What it does, from its docstring."""
        return (inspect.getdoc(self.call) or "").strip()


class Endpoints:
    """The endpoints of one subject, in the order they are declared."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.all: list[Endpoint] = []

    def get(
        self,
        path: str,
        answer: Any,
        query: type[Query] = NoQuery,
        *,
        needs: Action | None = None,
        is_private: bool = False,
    ) -> Callable[[Call], Call]:
        """Declare a call that only looks."""
        return self._declare("GET", path, answer, query, NoBody, needs, is_private=is_private)

    def post(
        self,
        path: str,
        answer: Any,
        body: type[Body] = NoBody,
        *,
        needs: Action | None = None,
        also: Action | None = None,
        lasts: bool = False,
    ) -> Callable[[Call], Call]:
        """Declare a call that does something."""
        return self._declare("POST", path, answer, NoQuery, body, needs, also, lasts=lasts)

    def put(
        self, path: str, answer: Any, body: type[Body] = NoBody, *, needs: Action | None = None
    ) -> Callable[[Call], Call]:
        """Declare a call that makes or sets something."""
        return self._declare("PUT", path, answer, NoQuery, body, needs)

    def delete(
        self, path: str, answer: Any, query: type[Query] = NoQuery, *, needs: Action | None = None
    ) -> Callable[[Call], Call]:
        """Declare a call that takes something away."""
        return self._declare("DELETE", path, answer, query, NoBody, needs)

    def _declare(
        self,
        method: str,
        path: str,
        answer: Any,
        query: type[Query],
        body: type[Body],
        needs: Action | None,
        also: Action | None = None,
        is_private: bool = False,
        lasts: bool = False,
    ) -> Callable[[Call], Call]:
        def declare(call: Call) -> Call:
            self.all.append(
                Endpoint(
                    method=method,
                    path=path,
                    call=call,
                    query=query,
                    body=body,
                    answer=answer,
                    status=204 if answer is None else 200,
                    tag=self.tag,
                    needs=needs,
                    also=also,
                    is_private=is_private,
                    lasts=lasts,
                )
            )
            return call

        return declare


def routes_of(site: Site, endpoints: Iterable[Endpoint], prefix: str) -> list[Route]:
    """What Starlette serves them by; see `IN_VHOST`."""
    in_vhost = IN_VHOST in prefix
    return [
        Route(prefix + endpoint.path, _served(site, endpoint, in_vhost=in_vhost), methods=[endpoint.method])
        for endpoint in endpoints
    ]


def _served(site: Site, endpoint: Endpoint, *, in_vhost: bool) -> Callable[[Request], Awaitable[Response]]:
    adapter = None if endpoint.answer is None else TypeAdapter(endpoint.answer)

    async def serve(request: Request) -> Response:
        try:
            ask = await _read(request, endpoint)
            if ask.caller is not None:
                endpoint.check(ask.caller, ask)
            where = site.of_vhost(ask.path["vhost"]) if in_vhost else site
            given = await endpoint.answer_to(where, ask)
        except Exception as error:
            return answer_of(error)
        if adapter is None:
            return Response(status_code=endpoint.status)
        return Response(adapter.dump_json(given), endpoint.status, media_type="application/json")

    return serve


async def _read(request: Request, endpoint: Endpoint) -> Ask[Any, Any]:
    caller = None if endpoint.is_open else identity_of(request.scope)
    path = {name: unquote(value) for name, value in request.path_params.items()}
    query = endpoint.query.model_validate(_single_values(request))
    body: Body = NoBody()
    if endpoint.body is not NoBody:
        raw = await body_of(request, limits.HTTP_BODY_BYTES_MAX)
        body = endpoint.body.model_validate_json(raw or b"{}")
    return Ask(path, query, body, caller)


def _single_values(request: Request) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in values:
            raise Problem(400, "invalid_argument", f"{name}: given twice")
        values[name] = value
    return values


async def body_of(request: Request, bytes_max: int) -> bytes:
    """All of a request's body; raises Problem when it is larger."""
    parts: list[bytes] = []
    byte_count = 0
    async for part in request.stream():
        byte_count += len(part)
        if byte_count > bytes_max:
            raise Problem(413, "too_large", f"the body is larger than {bytes_max} bytes")
        parts.append(part)
    return b"".join(parts)


# the document


def openapi_of(title: str, by_prefix: Mapping[str, Iterable[Endpoint]]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of these endpoints, by what their paths begin with."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {"Problem": _PROBLEM}
    for prefix, endpoints in by_prefix.items():
        for endpoint in endpoints:
            operation = _operation(endpoint, prefix, schemas)
            paths.setdefault(prefix + endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": f"{PRODUCT}: {title}", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{}, {"basic": []}, {"bearer": []}],
    }


_PROBLEM: Final = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "reason": {"type": "string"}},
    "required": ["error", "reason"],
}
_PROBLEM_ANSWER: Final = {
    "description": "why it was not done",
    "content": {"application/json": {"schema": {"$ref": _SCHEMA_PLACE.format(model="Problem")}}},
}


def _operation(endpoint: Endpoint, prefix: str, schemas: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "done"}
    if endpoint.answer is not None:
        schema = _schema(TypeAdapter(endpoint.answer), "serialization", schemas)
        answer["content"] = {"application/json": {"schema": schema}}
    operation: dict[str, Any] = {
        "summary": endpoint.summary.partition("\n")[0],
        "description": endpoint.summary,
        "operationId": endpoint.call.__name__ + ("_in_vhost" if IN_VHOST in prefix else ""),
        "tags": [endpoint.tag],
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in _PATH_PARAMETER.findall(prefix + endpoint.path)
        ],
        "responses": {
            str(endpoint.status): answer,
            **{str(status): _PROBLEM_ANSWER for status in (400, 401, 403, 404, 409, 413, 422, 503)},
        },
    }
    query = endpoint.query.model_json_schema()
    for name, schema in query.get("properties", {}).items():
        parameter = {"name": name, "in": "query", "required": name in query.get("required", ())}
        operation["parameters"].append({**parameter, "schema": schema})
    if endpoint.body is not NoBody:
        _, found = models_json_schema([(endpoint.body, "validation")], ref_template=_SCHEMA_PLACE)
        schemas.update(found.get("$defs", {}))
        reference = {"$ref": _SCHEMA_PLACE.format(model=endpoint.body.__name__)}
        operation["requestBody"] = {"content": {"application/json": {"schema": reference}}}
    return operation


def _schema(adapter: TypeAdapter[Any], mode: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = adapter.json_schema(mode=mode, ref_template=_SCHEMA_PLACE)
    schemas.update(schema.pop("$defs", {}))
    return schema
