"""Talking to a running broker over its HTTP listener."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, Final, NoReturn

import httpx
import typer

EXIT_REFUSED: Final = 1
EXIT_UNREACHABLE: Final = 3

URL_DEFAULT: Final = "http://127.0.0.1:15672"
TIMEOUT_S: Final = 60.0

Url = Annotated[str, typer.Option("--url", help="Where the broker's HTTP listener is.")]
User = Annotated[str | None, typer.Option("--user", help="Whom to log in as.")]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: JSON instead of a table.")]


class Api:
    """Calls of `/api/v1`; what the broker refuses ends the command, with its reason and an exit code."""

    def __init__(self, url: str, user: str | None, password_stdin: bool) -> None:
        """Raises typer.BadParameter where that is no URL."""
        if not url.startswith(("http://", "https://")):
            raise typer.BadParameter(f"{url!r} is no http:// or https:// URL", param_hint="--url")
        auth = None
        if user is not None:
            password = sys.stdin.readline().rstrip("\n") if password_stdin else _asked_password(user)
            auth = httpx.BasicAuth(user, password)
        self._url = url.rstrip("/")
        self._client = httpx.Client(base_url=self._url, auth=auth, timeout=TIMEOUT_S, trust_env=False)

    def get(self, path: str, **query: Any) -> Any:
        """What a call that only looks gives."""
        return self.call("GET", path, query=query)

    def call(self, method: str, path: str, *, query: dict[str, Any] | None = None, body: Any = None) -> Any:
        """Any call; None where it gives nothing."""
        wanted = {name: value for name, value in (query or {}).items() if value is not None}
        content = None if body is None else json.dumps(body)
        try:
            answer = self._client.request(method, f"/api/v1{path}", params=wanted, content=content)
        except httpx.HTTPError as error:
            _end(
                f"{self._url}: {str(error) or type(error).__name__}; is the broker running?", EXIT_UNREACHABLE
            )
        if not answer.is_success:
            _end(_reason(answer), EXIT_REFUSED)
        return answer.json() if answer.content else None

    def pages(self, path: str, **query: Any) -> list[Any]:
        """All items of a listing, page by page."""
        items: list[Any] = []
        after: str | None = None
        while True:
            page = self.get(path, after=after, limit=1000, **query)
            items += page["items"]
            after = page["next"]
            if after is None:
                return items


def _asked_password(user: str) -> str:
    return str(typer.prompt(f"Password of {user}", hide_input=True, err=True))


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["reason"])
    except (ValueError, KeyError, TypeError):
        return f"the broker answered {answer.status_code}"


def _end(text: str, code: int) -> NoReturn:
    typer.echo(f"sluicemq: {text}", err=True)
    raise typer.Exit(code)
