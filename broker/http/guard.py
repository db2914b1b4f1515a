"""Who may call at all."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from broker.access.loopback import is_loopback_host
from broker.http.problems import Problem, answer_of

_HARMLESS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class LocalOnly:
    """Lets in who is on this machine, and no page of another site that a browser here has open.

    Such a page may send requests to a loopback address; its own name stands in `Origin`, or, where it had
    that name changed into a loopback address, in `Host`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        problem = _problem(scope)
        if problem is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": problem.reason})
        else:
            answer: Response = answer_of(problem)
            await answer(scope, receive, send)


def _problem(scope: Scope) -> Problem | None:
    client = scope.get("client")
    if client is None or not is_loopback_host(client[0]):
        return Problem(403, "refused", "only clients on the broker's own machine are let in")
    headers = Headers(scope=scope)
    host = headers.get("host", "")
    if not is_loopback_host(_host_name(host)):
        return Problem(403, "refused", "the header Host names another machine")
    origin = headers.get("origin")
    is_harmless = scope["type"] == "http" and scope["method"] in _HARMLESS
    if origin is not None and not is_harmless and urlsplit(origin).netloc != host:
        return Problem(403, "refused", "pages of other sites may not change anything here")
    return None


def _host_name(host: str) -> str:
    return urlsplit(f"//{host}").hostname or ""
