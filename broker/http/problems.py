"""Problems of a request, as a status and a JSON object."""

from __future__ import annotations

from typing import Any, Final

import structlog
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from broker.admin.policy_changes import PolicyNotFound
from broker.admin.users import UserNotFound
from broker.engine.shard_ending import BrokerStopped, WorkerLost
from broker.links.link_directory import ParameterNotFound
from broker.vhosts.banning import BanNotFound
from broker.vhosts.vhost import VhostNotFound
from queue_manager.errors import (
    AccessRefused,
    ExchangeNotFound,
    GroupNotFound,
    InvalidAddress,
    InvalidArgument,
    LimitReached,
    PreconditionFailed,
    QueueBusy,
    QueueManagerError,
    QueueNotFound,
    ResourceLocked,
)
from storage.errors import StorageError

_log: Final = structlog.get_logger("sluicemq.http")

RETRY_AFTER_S: Final = 1
NO_SHARD: Final = "no_shard"
"""The error of a node that has no shard: another one can do it."""

_REFUSALS: Final[dict[type, tuple[int, str]]] = {
    QueueNotFound: (404, "not_found"),
    ExchangeNotFound: (404, "not_found"),
    GroupNotFound: (404, "not_found"),
    VhostNotFound: (404, "not_found"),
    UserNotFound: (404, "not_found"),
    PolicyNotFound: (404, "not_found"),
    BanNotFound: (404, "not_found"),
    ParameterNotFound: (404, "not_found"),
    InvalidAddress: (400, "invalid_address"),
    InvalidArgument: (400, "invalid_argument"),
    PreconditionFailed: (409, "precondition_failed"),
    QueueBusy: (409, "busy"),
    ResourceLocked: (409, "locked"),
    AccessRefused: (403, "refused"),
    LimitReached: (422, "limit_reached"),
}

_TITLES: Final = {
    400: "bad_request",
    401: "not_authorised",
    403: "refused",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
}


class Problem(Exception):
    """A request that cannot be done, with the status that says so."""

    def __init__(
        self, status: int, error: str, reason: str, *, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.error = error
        self.reason = reason
        self.headers = headers


def unavailable(reason: str) -> Problem:
    """Return the problem that something cannot be done now, and when to try again."""
    return Problem(503, "unavailable", reason, headers={"retry-after": str(RETRY_AFTER_S)})


def problem_of(error: Exception) -> Problem:
    """Return the answer to a call that came to `error`; a bug is logged here."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, WorkerLost):
        return unavailable(error.reason)
    if isinstance(error, QueueManagerError):
        kinds = [kind for kind in type(error).__mro__ if kind in _REFUSALS]
        status, title = _REFUSALS[kinds[0]] if kinds else (400, "refused")
        return Problem(status, title, error.reason)
    if isinstance(error, TimeoutError):
        error = StorageError("it took too long")
    if isinstance(error, StorageError):
        reason = error.reason if isinstance(error, BrokerStopped) else "the store does not answer"
        return unavailable(reason)
    if isinstance(error, ValidationError):
        return Problem(400, "invalid_argument", _sentences(error))
    if isinstance(error, HTTPException):
        return Problem(
            error.status_code,
            _TITLES.get(error.status_code, "refused"),
            error.detail,
            headers=dict(error.headers) if error.headers else None,
        )
    _log.error("http.internal_error", exc_info=error)
    return Problem(500, "internal_error", "the broker failed at this request")


def answer_of(error: Exception) -> Response:
    """Return the answer that tells of `error`: a JSON object with `error`, a word, and `reason`, a
    sentence.
    """
    problem = problem_of(error)
    body = {"error": problem.error, "reason": problem.reason}
    return JSONResponse(body, problem.status, headers=problem.headers)


def _sentences(error: ValidationError) -> str:
    return "; ".join(_sentence(details) for details in error.errors(include_url=False))


def _sentence(details: Any) -> str:
    where = ".".join(str(part) for part in details["loc"])
    return f"{where}: {details['msg']}" if where else str(details["msg"])
