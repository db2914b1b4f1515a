"""One request of RabbitMQ's API: who asks, where, what; and how it is told what went wrong."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from broker.access.credentials import VhostRefused
from broker.access.login import Identity, Login
from broker.access.rights import Action, Kind
from broker.engine.shard_ending import WorkerLost
from broker.http.guard import identity_of
from broker.http.problems import Problem, problem_of
from broker.http.site import Site
from broker.http.values import body_of
from broker.stepping import in_steps
from broker.vhosts.vhost import VhostNotFound
from config import limits
from queue_manager.address import local_name
from queue_manager.errors import ExchangeNotFound, QueueNotFound

V = TypeVar("V")

MANAGEMENT: Final = frozenset({"administrator", "monitoring", "management", "policymaker"})

NO_ENTRY: Final = "User not authorised to access virtual host"

_HEADERS: Final = {"cache-control": "no-cache", "vary": "accept, accept-encoding, origin"}
_NOT_THERE: Final = {"error": "Object Not Found", "reason": "Not Found"}
_CHALLENGE: Final = {"www-authenticate": 'Basic realm="RabbitMQ Management"'}


Call: TypeAlias = "Callable[[Asking], Awaitable[Response]]"
OpenCall: TypeAlias = "Callable[[Site], Awaitable[Response]]"
"""Of one that needs no login."""


class Asking:
    """A request that was let in, to the `site` of `/`."""

    def __init__(self, request: Request, site: Site) -> None:
        """Take a request. Raises Problem for a user that may not use the API."""
        self.request = request
        self.site = site
        self.vhosts = site.admin.vhosts
        self.query = request.query_params
        self.login: Login = identity_of(request.scope).login
        if not self.login.tags & MANAGEMENT:
            raise Problem(401, "not_authorised", "Not management user")

    def part(self, name: str) -> str:
        """Return a part of the path; "" if there is none of that name."""
        return unquote(self.request.path_params.get(name, ""))

    def place(self) -> Site:
        """Return the virtual host that the path names; raises Problem where there is none, or the user may
        not enter it.
        """
        return self.entered()[0]

    def entered(self) -> tuple[Site, Identity]:
        """Return the virtual host as `place`, and the identity of the user there."""
        name = self.part("vhost")
        try:
            return self.site.of_vhost(name), self.login.enter(name)
        except VhostNotFound:
            raise Problem(404, "not_found", "Not Found") from None
        except VhostRefused:
            raise Problem(401, "not_authorised", NO_ENTRY) from None

    def places(self) -> list[Site]:
        """Return the virtual host that the path names, or all that the user may enter."""
        if self.part("vhost"):
            return [self.place()]
        names = self.site.hub.vhosts()
        return [self.site.of_vhost(name) for name in names if self.login.may_enter(name)]

    def seeing(self, place: Site) -> Callable[[str], bool]:
        """Return a function that tells of the name of a queue in a virtual host whether the user may see it:
        with any right on the queue, or where it may look at everything.
        """
        if self.login.is_monitoring:
            return lambda name: True
        identity = self.login.enter(place.vhost)
        return lambda name: any(identity.may(action, Kind.QUEUE, name) for action in Action)

    def check_monitoring(self) -> None:
        """Check that the user may look at everything; raises Problem."""
        if not self.login.is_monitoring:
            raise Problem(401, "not_authorised", "Not monitor user")

    def check_administrator(self) -> None:
        """Check that the user may change everything; raises Problem."""
        if not self.login.is_administrator:
            raise Problem(401, "not_authorised", "Not administrator user")

    async def body(self, *required: str, bytes_max: int = limits.HTTP_BODY_BYTES_MAX) -> dict[str, Any]:
        """Return the JSON object a request brings; raises Problem when it is none, or has not all of these
        keys.
        """
        raw = await body_of(self.request, bytes_max)
        try:
            value = json.loads(raw or b"{}")
        except (ValueError, RecursionError):
            raise Problem(400, "not_json", "the body is no JSON") from None
        if not isinstance(value, dict):
            raise Problem(400, "not_json", "the body is no JSON object")
        missing = [name for name in required if name not in value]
        if missing:
            told = ",".join(f"{{key_missing,{name}}}" for name in missing)
            raise Problem(400, "bad_request", f"[{told}]")
        return value


class Calls(list[tuple[str, str, Call]]):
    """Calls of the API, each with its method and its path below `/api`."""

    def add(self, method: str, *paths: str) -> Callable[[Call], Call]:
        """Declare the function below it as the call of these paths."""

        def declare(call: Call) -> Call:
            self.extend([(method, path, call) for path in paths])
            return call

        return declare


def no_queue(error: QueueNotFound, vhost: str) -> Problem:
    """Return what is told of a queue that is not there."""
    return Problem(404, "not_found", f"no queue '{local_name(error.name or '')}' in vhost '{vhost}'")


def no_exchange(error: ExchangeNotFound, vhost: str) -> Problem:
    """Return what is told of an exchange that is not there."""
    return Problem(404, "not_found", f"no exchange '{local_name(error.name)}' in vhost '{vhost}'")


def answer(value: Any, status: int = 200) -> Response:
    """Make a JSON answer."""
    return JSONResponse(value, status, headers=_HEADERS)


def answer_in_parts(views: Sequence[V], shape: Callable[[V], Any]) -> Response:
    """Make a JSON list of what `shape` makes of the views; others have their turn between its parts."""
    return StreamingResponse(_in_parts(views, shape), 200, _HEADERS, "application/json")


async def _in_parts(views: Sequence[V], shape: Callable[[V], Any]) -> AsyncIterator[str]:
    opening = "["
    async for part in in_steps(views):
        yield opening + json.dumps(list(map(shape, part)), ensure_ascii=False)[1:-1]
        opening = ","
    yield "]" if views else "[]"


def nothing(status: int = 204, headers: dict[str, str] | None = None) -> Response:
    """Make an answer without a body."""
    return Response(status_code=status, headers={**_HEADERS, **(headers or {})})


def refusal(error: Exception) -> Response:
    """Return the answer that tells of an error."""
    is_absent = isinstance(error, QueueNotFound | ExchangeNotFound | VhostNotFound)
    if is_absent and not isinstance(error, WorkerLost):
        return JSONResponse(_NOT_THERE, 404, headers=_HEADERS)
    problem = problem_of(error)
    if problem.status == 401 and problem.headers is not None:
        return Response(status_code=401, headers=_CHALLENGE)
    if problem.status == 404 and problem.reason == "Not Found":
        return JSONResponse(_NOT_THERE, 404, headers=_HEADERS)
    status = {403: 401, 409: 400, 422: 400}.get(problem.status, problem.status)
    error_name = {
        "refused": "not_authorised",
        "precondition_failed": "bad_request",
        "locked": "bad_request",
        "busy": "bad_request",
        "invalid_argument": "bad_request",
        "invalid_address": "bad_request",
        "limit_reached": "bad_request",
    }.get(problem.error, problem.error)
    body = {"error": error_name, "reason": problem.reason}
    return JSONResponse(body, status, headers={**_HEADERS, **(problem.headers or {})})


def table(value: Any, name: str) -> dict[str, Any]:
    """Read a JSON object among the arguments; RabbitMQ's tools send an empty list for an empty one."""
    if value is None or value == []:
        return {}
    if not isinstance(value, dict):
        raise Problem(400, "bad_request", f"{name} is an object")
    return value


def flag(value: Any, name: str, default: bool) -> bool:
    """Read a JSON boolean; rabbitmqadmin sends text."""
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise Problem(400, "bad_request", f"{name} is true or false")
