"""`sluicemq ban`: who is kept out of a running broker."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from broker.commands.http_api import Api, ApiCommands, AsJson, segment
from broker.commands.printing import print_found

app = ApiCommands("Bans: clients, users and addresses that are kept out.")


class Kind(StrEnum):
    """What a ban is of."""

    CLIENT_ID = "client_id"
    USER = "user"
    ADDRESS = "address"


Value = Annotated[str, typer.Argument(help="The client identifier, the user, or the address or network.")]


@app.over_api("ls")
def list_bans(api: Api, as_json: AsJson = False) -> None:
    """List bans."""
    found = api.get("/bans")
    if not as_json:
        found = [{**each, "until": _time(each["until_ms"])} for each in found]
    print_found(found, ("kind", "value", "until", "by", "reason"), as_json=as_json)


def _time(time_ms: int | None) -> str:
    if time_ms is None:
        return "-"
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


@app.over_api("add")
def add_ban(
    api: Api,
    kind: Kind,
    value: Value,
    reason: Annotated[str, typer.Option(help="For the list, and the log.")] = "",
    for_time: Annotated[
        str | None, typer.Option("--for", help="How long, as 1h; without it for good.")
    ] = None,
) -> None:
    """Keep out who comes so, and end connections there are."""
    body: dict[str, Any] = {"reason": reason}
    if for_time is not None:
        body["for"] = for_time
    ban = api.call("PUT", f"/bans/{kind.value}/{segment(value)}", body=body)
    until = "for good" if ban["until_ms"] is None else f"until {_time(ban['until_ms'])}"
    typer.echo(f"{kind.value} {ban['value']} is banned {until}")


@app.over_api("rm")
def remove_ban(api: Api, kind: Kind, value: Value) -> None:
    """End a ban."""
    api.call("DELETE", f"/bans/{kind.value}/{segment(value)}")
    typer.echo(f"{kind.value} {value} is banned no more")
