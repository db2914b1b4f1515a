"""`sluicemq migrate`: what another broker has, brought here: definitions, then what waits in its queues."""

from __future__ import annotations

import fcntl
import json
import os
import ssl
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import unquote, urlsplit

import typer
from pamqp import commands

from broker.commands.bench_clients import AmqpClient, ClientError, Target
from broker.commands.definitions import print_taken
from broker.commands.http_api import TIMEOUT_S, Api, AsJson, segment, with_api
from broker.commands.printing import EXIT_REFUSED, print_json, print_table, refuse
from broker.commands.queue_mover import EXCHANGE, STREAM, Account, MoveStopped, QueueMover
from config import limits
from protocols.amqp091.methods import unchecked

PASSWORD_VARIABLE: Final = "MIGRATE_PASSWORD"  # noqa: S105 - its name

_PORTS: Final = {"amqp": (5672, "http", 15672), "amqps": (5671, "https", 15671)}
_MQTT_SESSION: Final = "mqtt-subscription-"
_API: Final = "/api"
_SECURED: Final = "amqps://"

What = Annotated[
    str, typer.Argument(metavar="URL", help="amqp://user@host:port/vhost, or amqps; a host is enough.")
]
Management = Annotated[
    str | None, typer.Option(help="Where its management is; http://HOST:15672 unless told.")
]
Amqp = Annotated[
    str | None,
    typer.Option(help="[amqps://]HOST:PORT of this broker's AMQP listener, if its HTTP's is another."),
]
State = Annotated[Path, typer.Option(help="Where it is kept how far this came.")]
Queue = Annotated[
    list[str] | None, typer.Option(help="Only this one's messages; may be given several times.")
]
Definitions = Annotated[bool, typer.Option(help="Bring definitions.")]
Messages = Annotated[bool, typer.Option(help="Move what waits in the queues.")]
CaFile = Annotated[Path | None, typer.Option(exists=True, help="Certificates that its TLS is verified with.")]


@dataclass(frozen=True)
class OldBroker:
    """Where the other broker is; `vhost` "": all of them."""

    target: Target
    management: str
    vhost: str

    @property
    def name(self) -> str:
        """Where it is, told in the state."""
        return f"{self.target.host}:{self.target.amqp_port}"

    def call(self, path: str) -> Any:
        """Return what its management API answers. Ends the command where it does not."""
        import httpx

        url = self.management.rstrip("/") + _API + path
        login = self.target.user, self.target.password
        try:
            verify = self.target.tls or True
            answer = httpx.get(url, auth=login, timeout=TIMEOUT_S, trust_env=False, verify=verify)
            answer.raise_for_status()
            return answer.json()
        except (httpx.HTTPError, ValueError) as error:
            refuse(f"{url}: {error}")


def old_broker(url: str, management: str | None, ca_file: Path | None) -> OldBroker:
    """Return the broker at such a URL. Raises typer.BadParameter."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise typer.BadParameter("amqp://user@host:port/vhost, or amqps://", param_hint="URL")
    port, scheme, management_port = _PORTS[parts.scheme]
    password = unquote(parts.password or "") or os.environ.get(PASSWORD_VARIABLE, "")
    target = Target(
        host=parts.hostname,
        amqp_port=parts.port or port,
        user=unquote(parts.username or "guest"),
        password=password or "guest",
        tls=ssl.create_default_context(cafile=ca_file) if parts.scheme == "amqps" else None,
    )
    return OldBroker(
        target, management or f"{scheme}://{parts.hostname}:{management_port}", unquote(parts.path[1:])
    )


def migrate(
    api: Api,
    place: What,
    management: Management = None,
    amqp: Amqp = None,
    state: State = Path("sluicemq-migrate.json"),
    queue: Queue = None,
    definitions: Definitions = True,
    messages: Messages = True,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Bring what a RabbitMQ has into this broker: users, virtual hosts, permissions, policies, queues,
    exchanges, bindings; then what waits in its queues. A second run goes on where the first ended.
    """
    old = old_broker(place, management, ca_file)
    with _kept_state(state, old.name) as kept:
        found, left_out = _definitions_of(old)
        told = _bring(api, found, left_out, as_json=as_json) if definitions else None
        accounts: list[Account] = []
        if messages:
            here = _here(api, amqp, ca_file)
            accounts = _accounts(found, kept, queue)
            for account in accounts:
                _move(old.target, here, account, kept)
            _tidy(here, {account.vhost for account in accounts})
    _report(told, accounts, as_json=as_json)
    if any(account.left or account.refused or account.stopped for account in accounts):
        raise typer.Exit(EXIT_REFUSED)


# definitions


def _definitions_of(old: OldBroker) -> tuple[dict[str, Any], list[str]]:
    """Return the definitions of the other broker that mean something here, and lines about the others."""
    path = "/definitions" + (f"/{segment(old.vhost)}" if old.vhost else "")
    found: dict[str, Any] = old.call(path)
    if old.vhost:
        found = {kind: _in_vhost(entries, old.vhost) for kind, entries in found.items()}
        found["vhosts"] = [{"name": old.vhost}]
    sessions = {queue["name"] for queue in found["queues"] if queue["name"].startswith(_MQTT_SESSION)}
    left_out = [f"queues: {name}: an MQTT client's session: it subscribes anew" for name in sorted(sessions)]
    found["queues"] = [queue for queue in found["queues"] if queue["name"] not in sessions]
    found["bindings"] = [each for each in found["bindings"] if each["destination"] not in sessions]
    found["exchanges"] = [each for each in found["exchanges"] if not each["name"].startswith("amq.")]
    return found, left_out


def _in_vhost(entries: Any, vhost: str) -> Any:
    return [{**entry, "vhost": vhost} for entry in entries] if isinstance(entries, list) else entries


def _bring(api: Api, found: dict[str, Any], left_out: list[str], *, as_json: bool) -> dict[str, Any]:
    there = {vhost["name"] for vhost in api.call("GET", "/vhosts", prefix=_API)}
    for vhost in found["vhosts"]:
        if vhost["name"] not in there:  # so that who calls may enter it
            api.call("PUT", f"/vhosts/{segment(vhost['name'])}", body={}, prefix=_API)
    told: dict[str, Any] = api.call(
        "POST", "/definitions", query={"verbose": "true"}, body=found, prefix=_API
    )
    told["not_taken"] += left_out
    if not as_json:
        print_taken(told)
    return told


# messages


def _here(api: Api, amqp: str | None, ca_file: Path | None) -> Target:
    """Return this broker, where its AMQP listener is: one without TLS, if it has one."""
    user, password = api.login or ("guest", "guest")
    is_secured, place = bool(amqp and amqp.startswith(_SECURED)), (amqp or "").removeprefix(_SECURED)
    host, _, port = place.rpartition(":")
    if not port.isdigit():
        listeners = api.call("GET", "/overview", prefix=_API)["listeners"]
        ports = {each["protocol"]: each["port"] for each in listeners}
        name = next((name for name in ("amqp", "amqp/ssl") if name in ports), "")
        if not name:
            refuse("this broker has no AMQP listener that is open")
        host, port, is_secured = api.host, str(ports[name]), name != "amqp"
    tls = ssl.create_default_context(cafile=ca_file) if is_secured else None
    return Target(host=host, amqp_port=int(port), user=user, password=password, tls=tls)


def _accounts(found: Mapping[str, Any], kept: _State, names: list[str] | None) -> list[Account]:
    """Return the accounts of the queues to be moved, with what is known from an earlier run."""
    accounts = []
    for queue in found["queues"]:
        if names is None or queue["name"] in names:
            kind = str(queue.get("arguments", {}).get("x-queue-type", queue.get("type", "classic")))
            account = kept.account(queue["vhost"], queue["name"], kind)
            if queue.get("auto_delete"):
                account.stopped = "the other broker would delete it after its last consumer: auto-delete"
            accounts.append(account)
    return sorted(accounts, key=lambda account: (account.vhost, account.queue))


def _move(old: Target, here: Target, account: Account, kept: _State) -> None:
    """Move one queue, and note in its account what became of it."""
    if account.stopped:
        account.left = _count(old, account)
        if not account.left:
            account.stopped = ""
        return
    try:
        with (
            closing(_connected(old, account.vhost, "the other broker")) as source,
            closing(_connected(here, account.vhost, "this broker")) as target,
        ):
            QueueMover(source, target, account, _Progress(account.moved, kept)).move()
    except (ClientError, MoveStopped) as error:
        account.stopped = str(error)
    kept.write()
    if account.kind != STREAM:
        account.left = _count(old, account)


def _connected(place: Target, vhost: str, name: str) -> AmqpClient:
    try:
        return place.amqp(limits.MIGRATE_CONFIRM_S, vhost)
    except ClientError as error:
        raise ClientError(f"{name}: {error}") from None


def _count(old: Target, account: Account) -> int | None:
    """Return how many messages wait in a queue of the other broker; None where it does not tell."""
    try:
        with closing(old.amqp(vhost=account.vhost)) as client:
            declare = unchecked(commands.Queue.Declare, queue=account.queue, passive=True)
            return int(client.call(declare, commands.Queue.DeclareOk).message_count)
    except ClientError:
        return None


def _tidy(here: Target, vhosts: set[str]) -> None:
    """Delete the exchanges that were moved through."""
    for vhost in vhosts:
        with suppress(ClientError), closing(here.amqp(vhost=vhost)) as client:
            client.call(unchecked(commands.Exchange.Delete, exchange=EXCHANGE), commands.Exchange.DeleteOk)


class _Progress:
    """Keeps how far a queue came, and shows it."""

    def __init__(self, moved_before: int, kept: _State) -> None:
        self._kept = kept
        self._began = time.monotonic()
        self._looked = 0.0  # the first of all is kept at once
        self._moved_before = moved_before

    def __call__(self, account: Account) -> None:
        now = time.monotonic()
        if now - self._looked < limits.MIGRATE_KEPT_S:
            return
        self._looked = now
        self._kept.write()
        rate = (account.moved - self._moved_before) / (now - self._began)
        typer.echo(f"{account.vhost} {account.queue}: {account.moved:,} moved, {rate:,.0f}/s", err=True)


class _State:
    """The file that keeps how far each queue of an old broker came."""

    def __init__(self, path: Path, old: str) -> None:
        """Read the file, if it is there. Raises typer.BadParameter for one that is not about this broker."""
        self._path = path
        self._old = old
        self._accounts: dict[tuple[str, str], Account] = {}
        if path.exists():
            try:
                document = json.loads(path.read_text("utf-8"))
                if document["old"] != old:
                    raise ValueError(f"is about {document['old']}")
                for entry in document["queues"]:
                    account = Account(**{**entry, "left": None, "refused": {}, "stopped": ""})
                    self._accounts[account.vhost, account.queue] = account
            except (ValueError, TypeError, KeyError) as error:
                raise typer.BadParameter(f"{path}: {error}", param_hint="--state") from None

    def account(self, vhost: str, queue: str, kind: str) -> Account:
        """Return the account of a queue, a new one if there is none."""
        account = self._accounts.setdefault((vhost, queue), Account(vhost, queue, kind))
        account.kind = kind
        return account

    def write(self) -> None:
        """Write all accounts, whole or not at all."""
        accounts = [asdict(account) for account in self._accounts.values()]
        text = json.dumps({"old": self._old, "queues": accounts}, indent=1)
        beside = self._path.with_name(f"{self._path.name}.new")
        beside.write_text(text + "\n", "utf-8")
        os.replace(beside, self._path)


@contextmanager
def _kept_state(path: Path, old: str) -> Iterator[_State]:
    """Keep a second run away from the same file meanwhile; ends the command where one is at it."""
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            refuse(f"{path}: another run is at work with it")
        yield _State(path, old)


def _report(told: dict[str, Any] | None, accounts: list[Account], *, as_json: bool) -> None:
    if as_json:
        print_json({"definitions": told, "queues": [asdict(account) for account in accounts]})
        return
    rows = [{**asdict(account), "why": _why(account)} for account in accounts]
    columns = [(key, key.upper()) for key in ("vhost", "queue", "kind", "moved", "left", "why")]
    if accounts:
        print_table(columns, rows)
    sys.stdout.flush()


def _why(account: Account) -> str:
    refused = [f"{count} refused: {why}" for why, count in account.refused.items()]
    return "; ".join([*refused, *([account.stopped] if account.stopped else [])])


COMMANDS: Final = {"migrate": with_api(migrate)}
