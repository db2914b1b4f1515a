"""Requests to a broker's HTTP listener. The library for that is imported with this module, by `Api` only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import httpx

from broker.commands.failures import Refused, Unreachable

TIMEOUT_S: Final = 60.0


class Calls:
    """Requests to one broker, all by one user if there is one."""

    def __init__(self, url: str, login: tuple[str, str] | None) -> None:
        auth = None if login is None else httpx.BasicAuth(*login)
        self._has_user = auth is not None
        self._client = httpx.Client(base_url=url, auth=auth, timeout=TIMEOUT_S, trust_env=False)

    def send(
        self, method: str, path: str, query: Mapping[str, Any], content: str | None, *, needs_user: bool
    ) -> Any:
        """What was answered, None where that is nothing; the guest asks where somebody has to and nobody was
        named. Raises Unreachable, Refused.
        """
        is_guest = needs_user and not self._has_user
        auth = httpx.BasicAuth("guest", "guest") if is_guest else httpx.USE_CLIENT_DEFAULT
        with _failures_told():
            answer = self._client.request(method, path, params=dict(query), content=content, auth=auth)
        if not answer.is_success:
            raise Refused(_reason(answer))
        return answer.json() if answer.content else None

    def lines(self, path: str, query: Mapping[str, Any]) -> Iterator[Any]:
        """What is answered line by line, for as long as that goes on. Raises Unreachable, Refused."""
        with (
            _failures_told(),
            self._client.stream("GET", path, params=dict(query), timeout=None) as answer,
        ):
            if not answer.is_success:
                answer.read()
                raise Refused(_reason(answer))
            yield from map(json.loads, answer.iter_lines())


@contextmanager
def _failures_told() -> Iterator[None]:
    try:
        yield
    except httpx.HTTPError as error:
        raise Unreachable(str(error) or type(error).__name__) from None


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["reason"])
    except (ValueError, KeyError, TypeError):
        return f"the broker answered {answer.status_code}"
