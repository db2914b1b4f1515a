"""Endpoints, told by the signatures of functions: what they take and give, who may call them, and the OpenAPI
document of it all.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Annotated, Any, Final, TypedDict, TypeVar, Unpack, get_type_hints
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker.access.login import ADMINISTRATOR, Identity
from broker.access.rights import Action, Kind
from broker.http.bodies import body_of
from broker.http.guard import check_operator, identity_of
from broker.http.lasting import run_lasting
from broker.http.problems import Problem, answer_of
from broker.http.site import Site
from broker.version import PRODUCT, VERSION
from config import limits

_SCHEMA_PLACE: Final = "#/components/schemas/{model}"
OPEN_PATHS: Final = frozenset({"/health", "/ready"})

IN_VHOST: Final = "{vhost}"
"""In what paths begin with: they are about what is in that virtual host."""

DEFAULT_GROUP: Final = "~"
"""The default group, which has no name, in a path."""

_PATH_PARAMETER: Final = re.compile(r"{(\w+)}")

PageLimit = Annotated[int, Field(ge=1, le=limits.HTTP_PAGE_ITEMS_MAX)]
Limit = Annotated[int | None, Field(ge=0)]
Rate = Annotated[float | None, Field(gt=0)]

Call = Callable[..., Coroutine[Any, Any, Any]]
C = TypeVar("C", bound=Call)


class Options(TypedDict, total=False):
    """The options of an endpoint; see `Endpoint`."""

    needs: Action
    also: Action
    is_private: bool
    lasts: bool
    status: int


class Body(BaseModel):
    """Base of the JSON objects that requests bring, for calls that take them as a whole."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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
    names the virtual host.
    """

    def __init__(
        self,
        method: str,
        path: str,
        call: Call,
        tag: str,
        *,
        is_for_clients: bool = False,
        **options: Unpack[Options],
    ) -> None:
        hints = get_type_hints(call, include_extras=True)
        parameters = inspect.signature(call).parameters
        named = [
            each
            for each in parameters.values()
            if each.kind is inspect.Parameter.KEYWORD_ONLY and each.name not in ("caller", "request")
        ]
        is_whole = "body" in parameters and parameters["body"] not in named
        fields: dict[str, Any] = {
            each.name: (hints[each.name], ... if each.default is inspect.Parameter.empty else each.default)
            for each in named
        }
        self.method = method
        self.path = path
        self.tag = tag
        self.needs = options.get("needs")
        self.call = call
        self.summary = (inspect.getdoc(call) or "").strip()
        self.parts = _PATH_PARAMETER.findall(path)
        self.has_query = method in ("GET", "DELETE")
        self.model: type[BaseModel] = (
            hints["body"]
            if is_whole
            else create_model(
                call.__name__.title().replace("_", ""), __config__=ConfigDict(extra="forbid"), **fields
            )
        )
        self.has_body = not self.has_query and (is_whole or bool(fields))
        self.answer = None if hints["return"] in (type(None), Response) else TypeAdapter[Any](hints["return"])
        self.status = options.get("status") or (204 if self.answer is None else 200)
        self.is_for_clients = is_for_clients
        self._also = options.get("also")
        self._is_private = options.get("is_private", False)
        self._lasts = options.get("lasts", False)
        self._unasked = None if self.has_body else self._defaults()
        self.reads_request = not self.has_query and "request" in parameters
        self._wants = [name for name in ("caller", "request") if name in parameters]
        self._wants_body = is_whole

    async def answer_to(self, request: Request, site: Site, vhost: str | None) -> Any:
        """Return what the call comes to; raises Problem, NotPermitted and what the call does."""
        caller = None if self.path in OPEN_PATHS else identity_of(request.scope)
        path = {name: unquote(value) for name, value in request.path_params.items()}
        if path.get("group") == DEFAULT_GROUP:
            path["group"] = ""
        arguments = await self.arguments(request, path, caller)
        where = site if vhost is None else site.of_vhost(path[vhost])
        answering = self.call(where, *[path[name] for name in self.parts], **arguments)
        if not self._lasts or caller is None:
            return await answering
        tags = frozenset((ADMINISTRATOR,)) if caller.is_administrator else frozenset[str]()
        return await run_lasting(site.hub.access, caller, answering, tags=tags)

    async def arguments(
        self, request: Request, path: Mapping[str, str], caller: Identity | None
    ) -> dict[str, Any]:
        """Return what the request says, by the names of the call's arguments; raises Problem, and
        NotPermitted where the caller may not make the call.
        """
        given = await self._read(request)
        if caller is not None:
            self._check(caller, path, given)
        everything = {"caller": caller, "request": request}
        arguments: dict[str, Any] = {name: everything[name] for name in self._wants}
        if self._wants_body:
            return {**arguments, "body": given}
        return arguments | given.__dict__

    def _defaults(self) -> BaseModel | None:
        """Return what a request says that says nothing; None where it has to say something."""
        fields = self.model.model_fields.values()
        return None if any(field.is_required() for field in fields) else self.model()

    async def _read(self, request: Request) -> BaseModel:
        values = _single_values(request) if request.scope["query_string"] else {}
        if self.is_for_clients:
            values.pop("vhost", None)
        if not values and self._unasked is not None:
            return self._unasked
        if self.has_query:
            return self.model.model_validate(values)
        if values:
            raise Problem(400, "invalid_argument", f"{next(iter(values))}: unknown")
        raw = await body_of(request, limits.HTTP_BODY_BYTES_MAX) if self.has_body else b""
        return self.model.model_validate_json(raw or b"{}")

    def _check(self, caller: Identity, path: Mapping[str, str], given: BaseModel) -> None:
        """Raise Problem or NotPermitted where the caller may not make the call."""
        is_looking = self.method == "GET" and not self._is_private
        is_operator = caller.is_administrator or (is_looking and caller.is_monitoring)
        if is_operator and not self.is_for_clients:
            return
        if self.needs is None or "queue" not in path:
            check_operator(caller, is_looking=is_looking)
            return
        caller.check(self.needs, Kind.QUEUE, path["queue"])
        asked = given.__dict__
        if asked.get("group"):
            caller.check(Action.READ, Kind.GROUP, asked["group"])
        if self._also is not None:
            if asked["to"] is None:
                check_operator(caller, is_looking=False)
            else:
                caller.check(self._also, Kind.QUEUE, asked["to"])


class Endpoints:
    """The endpoints of one subject, in the order they are declared."""

    def __init__(self, tag: str, *, is_for_clients: bool = False) -> None:
        self.tag = tag
        self._is_for_clients = is_for_clients
        self.all: list[Endpoint] = []

    def endpoint(self, method: str, path: str, **more: Unpack[Options]) -> Callable[[C], C]:
        """Declare the function below it as an `Endpoint`."""

        def declare(call: C) -> C:
            endpoint = Endpoint(method, path, call, self.tag, is_for_clients=self._is_for_clients, **more)
            self.all.append(endpoint)
            return call

        return declare


def routes_of(site: Site, endpoints: Iterable[Endpoint], prefix: str) -> list[Route]:
    """Return what Starlette serves them by; see `IN_VHOST`."""
    vhost = IN_VHOST.strip("{}") if IN_VHOST in prefix else None
    return [
        Route(prefix + endpoint.path, _served(site, endpoint, vhost), methods=[endpoint.method])
        for endpoint in endpoints
    ]


def _served(site: Site, endpoint: Endpoint, vhost: str | None) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        try:
            given = await endpoint.answer_to(request, site, vhost)
        except Exception as error:
            return answer_of(error)
        return response_of(endpoint, given)

    return serve


def response_of(endpoint: Endpoint, given: Any) -> Response:
    """Return the result of an endpoint's call, as an answer."""
    if isinstance(given, Response):
        return given
    if endpoint.answer is None:
        return Response(status_code=endpoint.status)
    return Response(endpoint.answer.dump_json(given), endpoint.status, media_type="application/json")


def _single_values(request: Request) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in values:
            raise Problem(400, "invalid_argument", f"{name}: given twice")
        values[name] = value
    return values


# the document


def openapi_of(title: str, by_prefix: Mapping[str, Iterable[Endpoint]]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of these endpoints, by what their paths begin with."""
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
        schema = endpoint.answer.json_schema(mode="serialization", ref_template=_SCHEMA_PLACE)
        schemas.update(schema.pop("$defs", {}))
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
    if endpoint.is_for_clients:
        operation["parameters"].append({"name": "vhost", "in": "query", "schema": {"type": "string"}})
    if endpoint.has_query:
        query = endpoint.model.model_json_schema()
        for name, schema in query.get("properties", {}).items():
            parameter = {"name": name, "in": "query", "required": name in query.get("required", ())}
            operation["parameters"].append({**parameter, "schema": schema})
    elif endpoint.has_body:
        _, found = models_json_schema([(endpoint.model, "validation")], ref_template=_SCHEMA_PLACE)
        schemas.update(found.get("$defs", {}))
        reference = {"$ref": _SCHEMA_PLACE.format(model=endpoint.model.__name__)}
        operation["requestBody"] = {"content": {"application/json": {"schema": reference}}}
    elif endpoint.reads_request:
        operation["requestBody"] = {"content": {"application/octet-stream": {}}}
    return operation
