"""Talking to a running broker over its HTTP listener."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, NoReturn
from urllib.parse import quote

import typer

from broker.commands.failures import Refused, Unreachable

EXIT_REFUSED: Final = 1
EXIT_UNREACHABLE: Final = 3

URL_DEFAULT: Final = "http://127.0.0.1:15672"
V1: Final = "/api/v1"

Url = Annotated[str, typer.Option("--url", help="Where the broker's HTTP listener is.")]
User = Annotated[str | None, typer.Option("--user", help="Whom to log in as.")]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input.")
]
InVhost = Annotated[str | None, typer.Option("--vhost", help="The virtual host; `/` if none is named.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: JSON instead of a table.")]


class Api:
    """Calls of `/api/v1`; what the broker refuses ends the command, with its reason and an exit code.

    `login`: the user and password, if any were given. With a `vhost` they are about what is in that one.
    """

    def __init__(self, url: str, user: str | None, password_stdin: bool, vhost: str | None = None) -> None:
        """Raises typer.BadParameter where that is no URL."""
        if not url.startswith(("http://", "https://")):
            raise typer.BadParameter(f"{url!r} is no http:// or https:// URL", param_hint="--url")
        from broker.commands.calls import Calls  # brings a library along

        self.login: tuple[str, str] | None = None
        if user is not None:
            self.login = user, sys.stdin.readline().rstrip("\n") if password_stdin else _asked_password(user)
        self._url = url.rstrip("/")
        self._prefix = V1 if vhost is None else f"{V1}/vhosts/{segment(vhost)}"
        self._calls = Calls(self._url, self.login)

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
        prefix: str | None = None,
    ) -> Any:
        """Any call; None where it gives nothing. `prefix`: of another API."""
        wanted = {name: value for name, value in (query or {}).items() if value is not None}
        content = None if body is None else json.dumps(body)
        with self._ending():
            # RabbitMQ's API always wants a user
            whole = (self._prefix if prefix is None else prefix) + path
            return self._calls.send(method, whole, wanted, content, needs_user=prefix is not None)

    def lines(self, path: str, **query: Any) -> Iterator[Any]:
        """What a call gives line by line, for as long as it does."""
        with self._ending():
            yield from self._calls.lines(self._prefix + path, query)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """End the command by what fails within."""
        try:
            yield
        except Unreachable as error:
            _end(f"{self._url}: {error}; is the broker running?", EXIT_UNREACHABLE)
        except Refused as error:
            _end(str(error), EXIT_REFUSED)

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
    return _with_options(command, {})


def with_api_in_vhost(command: Callable[..., None]) -> Callable[..., None]:
    """As `with_api`, for a command about what is in one virtual host, which an option names."""
    return _with_options(command, {"vhost": InVhost})


def _with_options(command: Callable[..., None], more: dict[str, Any]) -> Callable[..., None]:
    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter("url", keyword, default=URL_DEFAULT, annotation=Url),
        inspect.Parameter("user", keyword, default=None, annotation=User),
        inspect.Parameter("password_stdin", keyword, default=False, annotation=PasswordStdin),
        *[inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in more.items()],
    ]

    def run(**given: Any) -> None:
        where = {each.name: given.pop(each.name) for each in options}
        command(Api(**where), **given)

    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    run.__annotations__ = {}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(kind=keyword) for each in own] + options
    )
    return run


def _asked_password(user: str) -> str:
    return str(typer.prompt(f"Password of {user}", hide_input=True, err=True))


def _end(text: str, code: int) -> NoReturn:
    typer.echo(f"sluicemq: {text}", err=True)
    raise typer.Exit(code)
