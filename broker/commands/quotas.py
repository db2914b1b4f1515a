"""`sluicemq quota`: what virtual hosts and users of a running broker may have, and what they have."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from broker.commands.http_api import Api, ApiCommands, AsJson, segment
from broker.commands.printing import print_found
from config.quota_settings import QUOTAS, quota_field

app = ApiCommands("Quotas: how much a virtual host or a user may have.")


class Scope(StrEnum):
    """Whose quota it is."""

    VHOST = "vhost"
    USER = "user"


@app.over_api("ls")
def list_quotas(api: Api, as_json: AsJson = False) -> None:
    """List what virtual hosts and users have, what bounds it, and how often that was in the way."""
    found = api.get("/quotas")
    if not as_json:
        found = [{**quota, **_whose(each)} for each in found for quota in each["quotas"]]
    print_found(found, ("scope", "name", "quota", "most", "used", "refused"), as_json=as_json)


def _whose(holder: Mapping[str, Any]) -> dict[str, Any]:
    return {"scope": holder["scope"], "name": holder["name"]}


@app.over_api("set")
def set_quotas(
    api: Api,
    scope: Scope,
    name: Annotated[str, typer.Argument(help="The virtual host, or the user.")],
    quota: Annotated[
        list[str],
        typer.Argument(help="QUOTA=MOST, as queues=100 or bytes=2GiB; 0 bounds nothing. Any number of them."),
    ],
) -> None:
    """Set quotas; they hold at once, for what there is beyond them nothing more is made."""
    path = f"/{scope.value}s/{segment(name)}"
    wanted = dict(map(_read, quota))
    api.get(path)  # it has to be there
    api.call("PUT", path, body=wanted)
    typer.echo(f"quotas of {scope.value} {name}: " + ", ".join(quota))


def _read(text: str) -> tuple[str, int | str]:
    name, is_there, most = text.partition("=")
    if not is_there or name not in QUOTAS:
        raise typer.BadParameter(f"{text!r} is not QUOTA=MOST; quotas are {', '.join(QUOTAS)}")
    return quota_field(name), int(most) if most.isdecimal() else most
