"""Talking to a running broker over its HTTP listener."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote, urlsplit

import typer

from broker.commands.printing import refuse

if TYPE_CHECKING:
    import httpx  # brings much along: imported once a broker is to be asked

EXIT_UNREACHABLE: Final = 3
TIMEOUT_S: Final = 60.0

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
        """Take the broker's URL. Raises typer.BadParameter where that is no URL."""
        if not url.startswith(("http://", "https://")):
            raise typer.BadParameter(f"{url!r} is no http:// or https:// URL", param_hint="--url")
        import httpx

        self.login: tuple[str, str] | None = None
        if user is not None:
            self.login = user, sys.stdin.readline().rstrip("\n") if password_stdin else _asked_password(user)
        self._url = url.rstrip("/")
        self._prefix = V1 if vhost is None else f"{V1}/vhosts/{segment(vhost)}"
        self._client = httpx.Client(base_url=self._url, auth=self.login, timeout=TIMEOUT_S, trust_env=False)

    @property
    def host(self) -> str:
        """The host of the URL."""
        return urlsplit(self._url).hostname or ""

    def get(self, path: str, **query: Any) -> Any:
        """Return what a call that only looks gives."""
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
        """Make any call; None where it gives nothing. `prefix`: of RabbitMQ's API, which always wants a user:
        the guest where none was named.
        """
        wanted = {name: value for name, value in (query or {}).items() if value is not None}
        content = None if body is None else json.dumps(body)
        auth = self.login or (None if prefix is None else ("guest", "guest"))
        whole = (self._prefix if prefix is None else prefix) + path
        with self._ending():
            answer = self._client.request(method, whole, params=wanted, content=content, auth=auth)
        if not answer.is_success:
            refuse(_reason(answer))
        return answer.json() if answer.content else None

    def lines(self, path: str, **query: Any) -> Iterator[Any]:
        """Yield what a call gives line by line, for as long as it does."""
        with (
            self._ending(),
            self._client.stream("GET", self._prefix + path, params=query, timeout=None) as answer,
        ):
            if not answer.is_success:
                answer.read()
                refuse(_reason(answer))
            yield from map(json.loads, answer.iter_lines())

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """End the command where the broker is not reached."""
        import httpx

        try:
            yield
        except httpx.HTTPError as error:
            told = str(error) or type(error).__name__
            refuse(f"{self._url}: {told}; is the broker running?", EXIT_UNREACHABLE)

    def pages(self, path: str, **query: Any) -> list[Any]:
        """Return all items of a listing, page by page."""
        items: list[Any] = []
        after: str | None = None
        while True:
            page = self.get(path, after=after, limit=1000, **query)
            items += page["items"]
            after = page["next"]
            if after is None:
                return items


def segment(name: str) -> str:
    """Return a name as a part of a path."""
    return quote(name, safe="")


class ApiCommands(typer.Typer):
    """Commands that ask a running broker, each a function that is given an `Api` first; with `in_vhost` about
    what is in one virtual host, which an option names.
    """

    def __init__(self, help: str, *, in_vhost: bool = False) -> None:
        super().__init__(help=help, no_args_is_help=True)
        self._in_vhost = in_vhost

    def over_api(self, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Declare the function below it as the command of this name."""
        return lambda command: self.command(name)(with_api(command, in_vhost=self._in_vhost))


def with_api(command: Callable[..., None], *, in_vhost: bool = False) -> Callable[..., None]:
    """Make a command that is given an `Api` first, made of the options that say where the broker is."""
    more = {"vhost": InVhost} if in_vhost else {}
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


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["reason"])
    except (ValueError, KeyError, TypeError):
        return f"the broker answered {answer.status_code}"
