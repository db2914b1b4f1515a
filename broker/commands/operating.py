"""`sluicemq top`, `sub`, `doctor`: looking after a broker."""

from __future__ import annotations

import json
import platform
import resource
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from broker.commands.api import EXIT_REFUSED, Api, AsJson, with_api
from broker.commands.output import print_json, print_table, text_of
from broker.version import VERSION
from config import limits
from config.loader import ConfigError, load_settings
from config.settings import Settings

_RATES: Final = ("published", "delivered", "settled")
_ROOM_BYTES_MIN: Final = 1024 * limits.MIB
_TOP_ROWS: Final = 25


def top(
    api: Api,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 2.0,
    count: Annotated[int, typer.Option(min=0, help="So many looks; 0: until Ctrl-C.")] = 0,
) -> None:
    """Watch the broker: rates, and the queues where most waits."""
    last: dict[str, Any] | None = None
    seen = 0
    try:
        with Live(Text("..."), refresh_per_second=4, screen=sys.stdout.isatty()) as live:
            while True:
                overview, queues = api.get("/overview"), api.pages("/queues")
                live.update(_screen(overview, queues, last))
                last = {**overview["totals"], "at": time.monotonic()}
                seen += 1
                if seen == count:
                    return
                time.sleep(interval)
    except KeyboardInterrupt:
        return


def _screen(overview: dict[str, Any], queues: list[dict[str, Any]], last: dict[str, Any] | None) -> Group:
    totals, node = overview["totals"], overview["node"]
    seconds = 0.0 if last is None else time.monotonic() - last["at"]
    rates = [
        f"{name} {(totals[name] - last[name]) / seconds:,.0f}/s" for name in _RATES if last and seconds > 0
    ]
    head = Text(
        f"{node['product']} {node['version']}  {node['memory_bytes'] // limits.MIB} MiB  "
        f"{totals['connections']} connections  {totals['ready']:,} ready  "
        f"{totals['in_flight']:,} in flight  {totals['failed']:,} failed\n" + "  ".join(rates),
        style="bold",
    )
    table = Table(box=None, header_style="dim")
    columns = ("name", "ready", "in_flight", "delayed", "failed", "consumers", "published")
    for column in columns:
        table.add_column(column.replace("_", " "), justify="left" if column == "name" else "right")
    busiest = sorted(queues, key=lambda view: -int(view["ready"] + view["in_flight"]))[:_TOP_ROWS]
    for view in busiest:
        table.add_row(*[text_of(view[column]) for column in columns])
    return Group(head, table)


def follow(
    api: Api,
    filter: Annotated[str, typer.Argument(help="A topic filter of MQTT, as sensors/+/up.")] = "#",
    count: Annotated[int, typer.Option(min=0, help="End after so many messages; 0: until Ctrl-C.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Print what is published to topics from now on; nothing is taken from anybody."""
    seen = 0
    try:
        for message in api.lines("/topics/tail", filter=filter):
            if not message:
                typer.echo(f"following {filter}", err=True)
                continue
            text = json.dumps(message, ensure_ascii=False)
            typer.echo(text if as_json else f"{message['topic']}  {message['body']}")
            seen += 1
            if seen == count:
                return
    except KeyboardInterrupt:
        return


def show_config(api: Api) -> None:
    """Print the settings that a running broker has in force."""
    print_json(api.get("/configuration"))


def reload_config(api: Api) -> None:
    """Have a running broker read its configuration, users and certificates anew."""
    print_json(api.call("POST", "/configuration/reload"))


def doctor(
    config: Annotated[Path | None, typer.Option(help="The broker's configuration file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Look whether a broker would do well here: storage, ports, limits, clock; exit 1 if not."""
    findings = [_versions(), _open_files(), _clock()]
    try:
        settings = load_settings(config)
    except ConfigError as error:
        findings.append(_finding("configuration", False, "; ".join(error.problems), "mend the file"))
    else:
        findings.append(_finding("configuration", True, str(config or "defaults")))
        findings += [_storage(settings), *_ports(settings)]
    if as_json:
        print_json(findings)
    else:
        columns = (("state", ""), ("what", "WHAT"), ("found", "FOUND"), ("do", "DO"))
        rows = [{**each, "state": "ok" if each["ok"] else "!!"} for each in findings]
        print_table(columns, rows)
    if not all(each["ok"] for each in findings):
        raise typer.Exit(EXIT_REFUSED)


def _finding(what: str, ok: bool, found: str, do: str = "") -> dict[str, Any]:
    return {"what": what, "ok": ok, "found": found, "do": "" if ok else do}


def _versions() -> dict[str, Any]:
    found = f"SluiceMQ {VERSION}, Python {platform.python_version()}, {platform.system()}"
    return _finding("versions", sys.version_info >= (3, 11), found, "Python 3.11 or later")


def _open_files() -> dict[str, Any]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = "no limit" if hard == resource.RLIM_INFINITY else f"{hard} at most"
    wanted = limits.CONNECTIONS_MAX
    ok = hard == resource.RLIM_INFINITY or hard >= min(wanted, 4096)
    return _finding("open files", ok, found, f"ulimit -n {wanted}, or LimitNOFILE= of the service")


def _clock() -> dict[str, Any]:
    year = time.gmtime().tm_year
    return _finding("clock", year >= 2025, time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()), "set it")


def _storage(settings: Settings) -> dict[str, Any]:
    url = settings.storage.url
    if "://" in url or url.startswith("memory:"):
        return _finding("storage", True, url)
    place = Path(url)
    while not place.exists():
        place = place.parent
    try:
        free = shutil.disk_usage(place).free
        probe = place / f".sluicemq-doctor-{time.monotonic_ns()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        return _finding("storage", False, f"{place}: {error.strerror}", "let the broker write there")
    found = f"{url}: {free // limits.MIB} MiB free"
    return _finding("storage", free >= _ROOM_BYTES_MIN, found, "make room, or use another disk")


def _ports(settings: Settings) -> list[dict[str, Any]]:
    findings = []
    for name, listener in settings.listeners.opened().items():
        address = f"{listener.bind}:{listener.port}"
        try:
            family = socket.AF_INET6 if ":" in listener.bind else socket.AF_INET
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((listener.bind, listener.port))
        except OSError as error:
            do = f"end what has it (a broker that runs already?), or set listeners.{name}.port"
            findings.append(_finding(f"port {name}", False, f"{address}: {error.strerror}", do))
        else:
            findings.append(_finding(f"port {name}", True, f"{address} is free"))
    return findings


COMMANDS: Final = {
    "top": with_api(top),
    "sub": with_api(follow),
    "doctor": doctor,
}
