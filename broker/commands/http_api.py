"""Talking to a running broker over its HTTP listener."""

from __future__ import annotations

import inspect
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote, urlsplit

import typer

from broker.commands.client_settings import URL_DEFAULT, URL_VARIABLE, USER_VARIABLE, find_settings
from broker.commands.printing import refuse

if TYPE_CHECKING:
    import httpx  # brings much along: imported once a broker is to be asked
    from pydantic import SecretStr


EXIT_UNREACHABLE: Final = 3
TIMEOUT_S: Final = 60.0
CONNECT_TIMEOUT_S: Final = 5.0  # before another of several brokers is tried
PROBE_TIMEOUT_S: Final = 2.0
RETRY_S: Final = 0.2
_UNAVAILABLE: Final = 503

V1: Final = "/api/v1"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="The broker's HTTP listener, or those of several nodes with commas between them; else "
        f"{URL_VARIABLE}, ~/.config/sluicemq.yaml, or {URL_DEFAULT}.",
    ),
]
User = Annotated[str | None, typer.Option("--user", help=f"Whom to log in as; else {USER_VARIABLE}.")]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input.")
]
InVhost = Annotated[str | None, typer.Option("--vhost", help="The virtual host; `/` if none is named.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: JSON instead of a table.")]


class Api:
    """Calls of `/api/v1`; what the broker refuses ends the command, with its reason and an exit code.

    `login`: the user and password, if any were given; `url`: the broker's, of several the first that a
    connection is made to and that has a shard. With a virtual host the calls are about what is in that one.
    """

    def __init__(
        self, url: str | None, user: str | None, password_stdin: bool, vhost: str | None = None
    ) -> None:
        """Take the options; what is not given is found as `find_settings` does. Raises typer.BadParameter
        where the URL is none.
        """
        found = find_settings(url, user, vhost)
        self.url, *self._others = [url.strip().rstrip("/") for url in found.url.split(",")]
        for each in (self.url, *self._others):
            if not each.startswith(("http://", "https://")):
                raise typer.BadParameter(f"{each!r} is no http:// or https:// URL", param_hint="--url")
        import httpx

        self.login: tuple[str, str] | None = None
        if found.user is not None:
            self.login = found.user, _password(found.user, found.password, password_stdin)
        self.patient_until = 0.0
        """By the monotonic clock: until then what the broker does not answer is asked again."""
        self._prefix = V1 if found.vhost is None else f"{V1}/vhosts/{segment(found.vhost)}"
        timeout = httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S if self._others else TIMEOUT_S)
        self._client = httpx.Client(base_url=self.url, auth=self.login, timeout=timeout, trust_env=False)

    @property
    def host(self) -> str:
        """The host of the URL."""
        return urlsplit(self.url).hostname or ""

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
            answer = self._reached(
                lambda: self._client.request(method, whole, params=wanted, content=content, auth=auth)
            )
        if not answer.is_success:
            refuse(_reason(answer))
        return answer.json() if answer.content else None

    def probe(self, path: str) -> tuple[int, str, str]:
        """Ask, and refuse nothing; give the status, the reason if it is no success, and the broker's time."""
        with self._ending():
            answer = self._reached(lambda: self._client.get(self._prefix + path))
        return answer.status_code, "" if answer.is_success else _reason(answer), answer.headers["date"]

    def lines(self, path: str, **query: Any) -> Iterator[Any]:
        """Yield what a call gives line by line, for as long as it does."""
        import httpx

        timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S if self._others else None)
        with self._ending(), ExitStack() as stack:
            answer = self._reached(
                lambda: stack.enter_context(
                    self._client.stream("GET", self._prefix + path, params=query, timeout=timeout)
                )
            )
            if not answer.is_success:
                answer.read()
                refuse(_reason(answer))
            yield from map(json.loads, answer.iter_lines())

    def _reached(self, ask: Callable[[], httpx.Response]) -> httpx.Response:
        """Return what a call gives, at the next broker where one cannot be connected to, or has no shard."""
        import httpx

        while True:
            try:
                answer = ask()
                if not self._others or answer.status_code != _UNAVAILABLE or not _is_shardless(answer):
                    return answer
            except httpx.TransportError as error:
                if time.monotonic() < self.patient_until:
                    time.sleep(RETRY_S)
                    continue
                if not (self._others and isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)):
                    raise
            self.url = self._others.pop(0)
            self._client.base_url = httpx.URL(self.url)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """End the command where the broker is not reached."""
        import httpx

        try:
            yield
        except httpx.RemoteProtocolError:
            refuse(
                f"{self.url} does not speak HTTP{_other_protocol(self.url)}: --url names the HTTP listener, "
                "port 15672 unless the broker's configuration says another",
                EXIT_UNREACHABLE,
            )
        except httpx.HTTPError as error:
            told = str(error) or type(error).__name__
            refuse(f"{self.url}: {told}; is the broker running?", EXIT_UNREACHABLE)

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
        inspect.Parameter("url", keyword, default=None, annotation=Url),
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


def _password(user: str, known: SecretStr | None, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\n")
    if known is not None:
        return known.get_secret_value()
    return str(typer.prompt(f"Password of {user}", hide_input=True, err=True))


def _other_protocol(url: str) -> str:
    """Say which protocol a port speaks that is not HTTP, as far as it tells."""
    place = urlsplit(url)
    try:
        with socket.create_connection((place.hostname or "", place.port or 80), PROBE_TIMEOUT_S) as probe:
            probe.settimeout(PROBE_TIMEOUT_S)
            probe.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return " but AMQP" if probe.recv(8).startswith(b"AMQP") else ""
    except OSError:
        return ""


def _is_shardless(answer: httpx.Response) -> bool:
    """Return whether the answer is that of a node that has no shard."""
    answer.read()
    try:
        return bool(answer.json()["error"] == "no_shard")
    except (ValueError, KeyError, TypeError):
        return False


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["reason"])
    except (ValueError, KeyError, TypeError):
        return f"the broker answered {answer.status_code}"
