"""One request of RabbitMQ's API: who asks, where, what; and how it is told what went wrong."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from broker.access.login import Login
from broker.http.endpoints import body_of
from broker.http.guard import identity_of
from broker.http.problems import Problem, problem_of
from broker.http.totals import in_steps
from broker.vhost import VhostNotFound
from config import limits
from queue_manager.errors import ExchangeNotFound, QueueNotFound

V = TypeVar("V")

MANAGEMENT: Final = frozenset({"administrator", "monitoring", "management", "policymaker"})

_HEADERS: Final = {"cache-control": "no-cache", "vary": "accept, accept-encoding, origin"}
_NOT_THERE: Final = {"error": "Object Not Found", "reason": "Not Found"}
_CHALLENGE: Final = {"www-authenticate": 'Basic realm="RabbitMQ Management"'}


class Asking:
    """A request that was let in."""

    def __init__(self, request: Request) -> None:
        """Raises Problem for who may not use the API."""
        self.request = request
        self.query = request.query_params
        self.login: Login = identity_of(request.scope).login
        if not self.login.tags & MANAGEMENT:
            raise Problem(401, "not_authorised", "Not management user")

    def part(self, name: str) -> str:
        """A part of the path; "" if there is none of that name."""
        return unquote(self.request.path_params.get(name, ""))

    def check_monitoring(self) -> None:
        """Raises Problem unless the user may look at everything."""
        if not self.login.is_monitoring:
            raise Problem(401, "not_authorised", "Not monitor user")

    def check_administrator(self) -> None:
        """Raises Problem unless the user may change everything."""
        if not self.login.is_administrator:
            raise Problem(401, "not_authorised", "Not administrator user")

    async def body(self, *required: str, bytes_max: int = limits.HTTP_BODY_BYTES_MAX) -> dict[str, Any]:
        """The JSON object a request brings; raises Problem when it is none, or has not all of these keys."""
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


def answer(value: Any, status: int = 200) -> Response:
    """A JSON answer."""
    return JSONResponse(value, status, headers=_HEADERS)


def answer_in_parts(views: Sequence[V], shape: Callable[[V], Any]) -> Response:
    """A JSON list of what `shape` makes of the views; others have their turn between its parts."""
    return StreamingResponse(_in_parts(views, shape), 200, _HEADERS, "application/json")


async def _in_parts(views: Sequence[V], shape: Callable[[V], Any]) -> AsyncIterator[str]:
    opening = "["
    async for part in in_steps(views):
        yield opening + json.dumps(list(map(shape, part)), ensure_ascii=False)[1:-1]
        opening = ","
    yield "]" if views else "[]"


def nothing(status: int = 204, headers: dict[str, str] | None = None) -> Response:
    """An answer without a body."""
    return Response(status_code=status, headers={**_HEADERS, **(headers or {})})


def refusal(error: Exception) -> Response:
    """The answer that tells of an error."""
    if isinstance(error, QueueNotFound | ExchangeNotFound | VhostNotFound):
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
    """A JSON object among the arguments; RabbitMQ's tools send an empty list for an empty one."""
    if value is None or value == []:
        return {}
    if not isinstance(value, dict):
        raise Problem(400, "bad_request", f"{name} is an object")
    return value


def flag(value: Any, name: str, default: bool) -> bool:
    """A JSON boolean; rabbitmqadmin sends text."""
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise Problem(400, "bad_request", f"{name} is true or false")
