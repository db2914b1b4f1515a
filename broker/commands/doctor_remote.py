"""`sluicemq doctor --url`: how a broker that runs elsewhere does, and what to do where not well."""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

from broker.access.loopback import is_loopback_host
from broker.clock import Clock
from broker.commands.http_api import Api, segment
from broker.version import VERSION

_CLOCKS_APART_S_MAX: Final = 5

Finding = dict[str, Any]


def finding(what: str, found: str, do: str = "") -> Finding:
    """Make a finding; it is well if there is nothing to do."""
    return {"what": what, "ok": not do, "found": found, "do": do}


def look_at(api: Api) -> Iterator[Finding]:
    """Yield what a running broker tells: login, confirms, clock, what was dropped, queues to look at."""
    overview = api.get("/overview")
    node, totals = overview["node"], overview["totals"]
    version = node["version"]
    do = "" if version == VERSION else f"these are the commands of {VERSION}: install the same version"
    yield finding("broker", f"{node['product']} {version}, storage {node['storage']}", do)
    yield _entrance(api)
    status, reason, date = api.probe("/ready")
    found = "a message is made durable" if status == 200 else reason
    yield finding("confirms", found, "" if status == 200 else "see the broker's log, and its storage")
    apart_s = abs(parsedate_to_datetime(date).timestamp() - Clock().now_ms() / 1000)
    do = "" if apart_s <= _CLOCKS_APART_S_MAX else "set the clocks: messages expire and are scheduled by them"
    yield finding("clock", f"{apart_s:.0f} s from this machine's", do)
    lost = {name: count for name, count in overview["counters"].items() if count}
    told = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in lost.items())
    yield finding("since the start", told or "nothing was dropped or refused")
    yield finding("messages", f"{totals['ready']:,} ready in {totals['queues']:,} queues")
    yield from _queues(api)


def _entrance(api: Api) -> Finding:
    if api.login is not None:
        return finding("login", f"as {api.login[0]}")
    is_near = is_loopback_host(urlsplit(api.url).hostname or "")
    do = (
        "" if is_near else "anybody who reaches the port administers it: sluicemq user add, access.users_file"
    )
    return finding("login", "none was asked for", do)


def _queues(api: Api) -> Iterator[Finding]:
    for view in api.pages("/queues"):
        name = view["name"]
        if view["failed"]:
            do = f"sluicemq queue peek {segment(name)} --state failed; sluicemq queue redrive {segment(name)}"
            yield finding(f"queue {name}", f"{view['failed']:,} messages failed", do)
        if any(view["pause"].values()):
            yield finding(f"queue {name}", "is paused", f"sluicemq queue resume {segment(name)}")
        if view["ready"] and not view["consumers"]:
            do = "have a consumer, or see whether a dead one is to be started again"
            yield finding(f"queue {name}", f"{view['ready']:,} messages wait and there is no consumer", do)
