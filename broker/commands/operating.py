"""`sluicemq top`, `sub`, `config show`, `config reload`: looking after a broker."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from broker.commands import doctor
from broker.commands.http_api import Api, AsJson, with_api
from broker.commands.printing import print_json, text_of
from config import limits


class Order(StrEnum):
    """The order of queues."""

    WAITING = "waiting"
    BUSY = "busy"
    FAILED = "failed"
    NAME = "name"


_RATES: Final = ("published", "delivered", "settled")
_TOP_ROWS: Final = 25


def top(
    api: Api,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 2.0,
    count: Annotated[int, typer.Option(min=0, help="So many looks; 0: until Ctrl-C.")] = 0,
    sort: Annotated[Order, typer.Option(help="What the first queues have most of.")] = Order.WAITING,
) -> None:
    """Watch the broker: rates, what it takes of the machine, and the queues where most waits or happens."""
    last: _Look | None = None
    seen = 0
    try:
        with Live(Text("..."), refresh_per_second=4, screen=sys.stdout.isatty()) as live:
            while True:
                look = _Look(api.get("/overview"), api.pages("/queues"))
                live.update(_screen(look, last, sort))
                last = look
                seen += 1
                if seen == count:
                    return
                time.sleep(interval)
    except KeyboardInterrupt:
        return


class _Look:
    """The broker at one moment."""

    def __init__(self, overview: dict[str, Any], queues: list[dict[str, Any]]) -> None:
        self.totals = overview["totals"]
        self.node = overview["node"]
        self.counters = overview["counters"]
        self.queues = {view["name"]: view for view in queues}
        self.at = time.monotonic()

    def rates(self, last: _Look | None, name: str) -> dict[str, float]:
        """Return what a queue did in a second since the look before; nothing where there is none."""
        before = None if last is None else last.queues.get(name)
        if before is None or last is None:
            return {}
        seconds = max(self.at - last.at, 1e-9)
        return {key: (self.queues[name][key] - before[key]) / seconds for key in _RATES}


def _screen(look: _Look, last: _Look | None, sort: Order) -> Group:
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0))
    columns = ("name", "ready", "in_flight", "delayed", "failed", "consumers", "in/s", "out/s", "")
    for column in columns:
        table.add_column(column.replace("_", " "), justify="left" if column in ("name", "") else "right")
    rates = {name: look.rates(last, name) for name in look.queues}
    order: dict[Order, Callable[[dict[str, Any]], float]] = {
        Order.WAITING: lambda view: -(view["ready"] + view["in_flight"]),
        Order.BUSY: lambda view: -sum(rates[view["name"]].values()),
        Order.FAILED: lambda view: -view["failed"],
        Order.NAME: lambda view: 0.0,
    }
    for view in sorted(look.queues.values(), key=order[sort])[:_TOP_ROWS]:
        done = [f"{rates[view['name']].get(key, 0):,.0f}" for key in ("published", "delivered")]
        paused = any(view["pause"].values())
        table.add_row(*[Text(text_of(view[key])) for key in columns[:6]], *done, "paused" if paused else "")
    return Group(_head(look, last), table)


def _head(look: _Look, last: _Look | None) -> Text:
    totals, node = look.totals, look.node
    seconds = 0.0 if last is None else max(look.at - last.at, 1e-9)
    lines = [
        f"{node['product']} {node['version']}  {node['memory_bytes'] // limits.MIB} MiB  "
        f"{totals['connections']} connections  {totals['queues']:,} queues  {totals['ready']:,} ready  "
        f"{totals['in_flight']:,} in flight  {totals['failed']:,} failed"
    ]
    if last is not None:
        processor = 100 * (node["cpu_seconds"] - last.node["cpu_seconds"]) / seconds
        done = [f"{key} {(totals[key] - last.totals[key]) / seconds:,.0f}/s" for key in _RATES]
        lines.append("  ".join([*done, f"processor {processor:.0f} %"]))
    lost = [f"{name.replace('_', ' ')} {count:,}" for name, count in look.counters.items() if count]
    if lost:
        lines.append("since the start: " + ", ".join(lost))
    return Text("\n".join(lines), style="bold")


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


COMMANDS: Final = {
    "top": with_api(top),
    "sub": with_api(follow, in_vhost=True),
    "doctor": doctor.doctor,
}
