"""Talking to a running broker over its HTTP listener."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, NoReturn
from urllib.parse import quote

import httpx
import typer

EXIT_REFUSED: Final = 1
EXIT_UNREACHABLE: Final = 3

URL_DEFAULT: Final = "http://127.0.0.1:15672"
V1: Final = "/api/v1"
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
        self._has_user = auth is not None
        self._url = url.rstrip("/")
        self._client = httpx.Client(base_url=self._url, auth=auth, timeout=TIMEOUT_S, trust_env=False)

    def get(self, path: str, **query: Any) -> Any:
        """What a call that only looks gives."""
        return self.call("GET", path, query=query)

    def call(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, Any] | None = None,
        body: Any = None,
        prefix: str = V1,
    ) -> Any:
        """Any call; None where it gives nothing."""
        wanted = {name: value for name, value in (query or {}).items() if value is not None}
        content = None if body is None else json.dumps(body)
        try:
            # RabbitMQ's API always wants a user: without a users file there is this one
            auth = None if self._has_user or prefix == V1 else httpx.BasicAuth("guest", "guest")
            answer = self._client.request(
                method,
                prefix + path,
                params=wanted,
                content=content,
                auth=httpx.USE_CLIENT_DEFAULT if auth is None else auth,
            )
        except httpx.HTTPError as error:
            _end(
                f"{self._url}: {str(error) or type(error).__name__}; is the broker running?", EXIT_UNREACHABLE
            )
        if not answer.is_success:
            _end(_reason(answer), EXIT_REFUSED)
        return answer.json() if answer.content else None

    def lines(self, path: str, **query: Any) -> Iterator[Any]:
        """What a call gives line by line, for as long as it does."""
        try:
            with self._client.stream("GET", V1 + path, params=query, timeout=None) as answer:
                if not answer.is_success:
                    answer.read()
                    _end(_reason(answer), EXIT_REFUSED)
                yield from map(json.loads, answer.iter_lines())
        except httpx.HTTPError as error:
            _end(f"{self._url}: {str(error) or type(error).__name__}", EXIT_UNREACHABLE)

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


def segment(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")


def with_api(command: Callable[..., None]) -> Callable[..., None]:
    """A command that is given an `Api` first, made of the options that say where the broker is."""
    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter("url", keyword, default=URL_DEFAULT, annotation=Url),
        inspect.Parameter("user", keyword, default=None, annotation=User),
        inspect.Parameter("password_stdin", keyword, default=False, annotation=PasswordStdin),
    ]

    def run(url: str, user: str | None, password_stdin: bool, **given: Any) -> None:
        command(Api(url, user, password_stdin), **given)

    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    run.__annotations__ = {}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(kind=keyword) for each in own] + options
    )
    return run


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
