"""Endpoints, told by the signatures of functions: what they take and give, who may call them, and the OpenAPI
document of it all.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Final, Literal, TypeVar, get_type_hints
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from broker.access.login import ADMINISTRATOR, Identity
from broker.access.rights import Action, Kind
from broker.http.guard import check_operator, identity_of
from broker.http.lasting import run_lasting
from broker.http.problems import Problem, answer_of
from broker.http.values import body_of
from broker.version import PRODUCT, VERSION
from config import limits

_SCHEMA_PLACE: Final = "#/components/schemas/{model}"
OPEN_PATHS: Final = frozenset({"/health", "/ready"})

IN_VHOST: Final = "{vhost}"
"""In what paths begin with: they are about what is in that virtual host."""

DEFAULT_GROUP: Final = "~"
"""The default group, which has no name, in a path."""

_EXACT: Final = ConfigDict(extra="forbid")
_PATH_PARAMETER: Final = re.compile(r"{(\w+)}")

PageLimit = Annotated[int, Field(ge=1, le=limits.HTTP_PAGE_ITEMS_MAX)]
Limit = Annotated[int | None, Field(ge=0)]
Rate = Annotated[float | None, Field(gt=0)]

Call = Callable[..., Coroutine[Any, Any, Any]]
C = TypeVar("C", bound=Call)
Where = Callable[[Mapping[str, str], Identity | None], Any]
"""From the parts of a path and who asks to what calls are given first."""


class Body(BaseModel):
    """Base of the JSON objects that requests bring, for calls that take them as a whole."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(eq=False, kw_only=True)
class Endpoint:
    """One call: a function that takes the site, the parts of its path in their order and, where they are
    asked for by these names, `caller` (the Identity; None: anybody may ask), `body` (a Body) and `request`
    (which it reads itself then).

    Its arguments by name alone are what a request may say: in the query of GET and DELETE, as keys of a JSON
    object otherwise. It gives what is answered as JSON; None: nothing but the status; or a Response, as it
    is, usually of `status`.

    Whoever has the tag `administrator` may make it, and those who may look at everything one that only looks;
    others need the rights `needs` to the queue in the path, and `also` to the one named `to`. `is_private`:
    who may look at everything may not look at this. `lasts`: it may go on for long, and ends once the caller
    may not ask it any more. `is_for_clients`: only rights count, whatever tags the caller has, and the query
    names the virtual host. `headers` are those of what it gives.
    """

    method: str
    path: str
    call: Call
    tag: str
    needs: Action | None = None
    also: Action | None = None
    is_private: bool = False
    lasts: bool = False
    is_for_clients: bool = False
    status: int = 0
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __post_init__(self) -> None:
        hints = get_type_hints(self.call, include_extras=True)
        given = {each.name: each for each in inspect.signature(self.call).parameters.values()}
        self.passed = {"caller", "request"} & given.keys()
        fields: dict[str, Any] = {
            name: (hints[name], ... if each.default is each.empty else each.default)
            for name, each in given.items()
            if each.kind is each.KEYWORD_ONLY and name not in self.passed
        }
        self.is_whole = "body" in given and "body" not in fields
        self.parts = _PATH_PARAMETER.findall(self.path)
        self.has_query = self.method in ("GET", "DELETE")
        self.has_body = not self.has_query and (self.is_whole or bool(fields))
        title = self.call.__name__.title().replace("_", "")
        self.model: type[BaseModel] = (
            hints["body"] if self.is_whole else create_model(title, __config__=_EXACT, **fields)
        )
        self.answer = None if hints["return"] in (NoneType, Response) else TypeAdapter[Any](hints["return"])
        self.status = self.status or (204 if self.answer is None else 200)

    async def respond(self, request: Request, where: Where) -> Response:
        """Return the answer to a request; raises Problem, NotPermitted and what the call does."""
        caller = None if self.path in OPEN_PATHS else identity_of(request.scope)
        try:
            path = {name: unquote(value, errors="strict") for name, value in request.path_params.items()}
        except UnicodeDecodeError:
            raise Problem(400, "invalid_address", "a path is UTF-8, encoded by %") from None
        if path.get("group") == DEFAULT_GROUP:
            path["group"] = ""
        given = await self._read(request)
        if caller is not None:
            self._check(caller, path, given)
        known = {"caller": caller, "request": request}
        arguments: dict[str, Any] = {name: known[name] for name in self.passed}
        arguments |= {"body": given} if self.is_whole else given.__dict__
        site = where(path, caller)
        answering = self.call(site, *[path[name] for name in self.parts], **arguments)
        if self.lasts and caller is not None:
            tags = frozenset((ADMINISTRATOR,)) if caller.login.is_administrator else frozenset[str]()
            answering = run_lasting(site.hub.access, caller, answering, tags=tags)
        found = await answering
        if self.answer is not None:
            found = Response(self.answer.dump_json(found), self.status, media_type="application/json")
        response: Response = found or Response(status_code=self.status)
        response.raw_headers.extend(self.headers)
        return response

    async def _read(self, request: Request) -> BaseModel:
        """Return what the request says; raises Problem, ValidationError."""
        values: dict[str, str] = {}
        for name, value in request.query_params.multi_items() if request.scope["query_string"] else ():
            if name in values:
                raise Problem(400, "invalid_argument", f"{name}: given twice")
            values[name] = value
        if self.is_for_clients:
            values.pop("vhost", None)
        if self.has_query:
            return self.model.model_validate(values)
        if values:
            raise Problem(400, "invalid_argument", f"{next(iter(values))}: unknown")
        raw = await body_of(request, limits.HTTP_BODY_BYTES_MAX) if self.has_body else b""
        return self.model.model_validate_json(raw or b"{}")

    def _check(self, caller: Identity, path: Mapping[str, str], given: BaseModel) -> None:
        """Raise Problem or NotPermitted where the caller may not make the call."""
        is_looking = self.method == "GET" and not self.is_private
        login = caller.login
        is_operator = login.is_administrator or (is_looking and login.is_monitoring)
        if is_operator and not self.is_for_clients:
            return
        if self.needs is None or "queue" not in path:
            check_operator(caller, is_looking=is_looking)
            return
        caller.check(self.needs, Kind.QUEUE, path["queue"])
        asked = given.__dict__
        if asked.get("group"):
            caller.check(Action.READ, Kind.GROUP, asked["group"])
        if self.also is not None:
            if asked["to"] is None:
                check_operator(caller, is_looking=False)
            else:
                caller.check(self.also, Kind.QUEUE, asked["to"])


class Endpoints:
    """The endpoints of one subject, in the order they are declared; they have `common` in common."""

    def __init__(self, tag: str, **common: Any) -> None:
        self._common = {"tag": tag, **common}
        self.all: list[Endpoint] = []

    def endpoint(self, method: str, path: str, **more: Any) -> Callable[[C], C]:
        """Declare the function below it as an `Endpoint`."""

        def declare(call: C) -> C:
            self.all.append(Endpoint(method=method, path=path, call=call, **self._common, **more))
            return call

        return declare


def routes_of(endpoints: Iterable[Endpoint], prefix: str, where: Where) -> list[Route]:
    """Return what Starlette serves them by, one for each path."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(prefix + endpoint.path, {})[endpoint.method] = endpoint
    return [Route(path, _Place(each, where), methods=[*each]) for path, each in by_path.items()]


@dataclass(frozen=True)
class _Place:
    """The endpoints of one path, as an ASGI application: without the layers there are around a function."""

    by_method: Mapping[str, Endpoint]
    where: Where

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self.by_method["GET" if scope["method"] == "HEAD" else scope["method"]]
        try:
            response = await endpoint.respond(Request(scope, receive), self.where)
        except Exception as error:
            response = answer_of(error)
        await response(scope, receive, send)


def served(router: Router) -> ASGIApp:
    """Have a router match paths as they were sent (a name may have an encoded slash in it), and answer what
    none of its routes is for.
    """

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await router({**scope, "path": scope["raw_path"].decode("ascii"), "app": router}, receive, send)
        except HTTPException as error:
            await answer_of(error)(scope, receive, send)

    return call


# the document


def openapi_of(title: str, by_prefix: Mapping[str, Iterable[Endpoint]]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of these endpoints, by what their paths begin with."""
    placed = [(prefix, endpoint) for prefix, endpoints in by_prefix.items() for endpoint in endpoints]
    adapters: list[tuple[Endpoint, Literal["validation", "serialization"], TypeAdapter[Any]]] = []
    for _, endpoint in placed:
        if endpoint.has_body:
            adapters.append((endpoint, "validation", TypeAdapter(endpoint.model)))
        if endpoint.answer is not None:
            adapters.append((endpoint, "serialization", endpoint.answer))
    schemas, shared = TypeAdapter.json_schemas(adapters, ref_template=_SCHEMA_PLACE)
    paths: dict[str, dict[str, Any]] = {}
    for prefix, endpoint in placed:
        operation = _operation(endpoint, prefix, schemas)
        paths.setdefault(prefix + endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": f"{PRODUCT}: {title}", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM, **shared.get("$defs", {})},
            "securitySchemes": {name: {"type": "http", "scheme": name} for name in ("basic", "bearer")},
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


def _operation(endpoint: Endpoint, prefix: str, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "done"}
    if endpoint.answer is not None:
        answer["content"] = {"application/json": {"schema": schemas[endpoint, "serialization"]}}
    summary = (inspect.getdoc(endpoint.call) or "").strip()
    operation: dict[str, Any] = {
        "summary": summary.partition("\n")[0],
        "description": summary,
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
    if endpoint.is_for_clients:
        operation["parameters"].append({"name": "vhost", "in": "query", "schema": {"type": "string"}})
    if endpoint.has_query:
        query = endpoint.model.model_json_schema()
        for name, schema in query.get("properties", {}).items():
            parameter = {"name": name, "in": "query", "required": name in query.get("required", ())}
            operation["parameters"].append({**parameter, "schema": schema})
    elif endpoint.has_body:
        schema = schemas[endpoint, "validation"]
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    elif "request" in endpoint.passed:
        operation["requestBody"] = {"content": {"application/octet-stream": {}}}
    return operation
