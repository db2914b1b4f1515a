"""`sluicemq connection` and `sluicemq session`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from broker.commands.http_api import Api, ApiCommands, AsJson
from broker.commands.printing import print_found

app: Final = ApiCommands("Clients that are connected.")
sessions: Final = ApiCommands("MQTT clients and their subscriptions.")

OfVhost = Annotated[str | None, typer.Option("--vhost", help="Only those in this virtual host.")]

_CLIENT: Final = (("id", "NO."), "peer", "protocol", "user", "vhost", "client")
_CONSUMES: Final = ("queues", "CONSUMES")


@app.over_api("ls")
def list_connections(
    api: Api,
    of: Annotated[str | None, typer.Option("--of", help="Only those of this user.")] = None,
    vhost: OfVhost = None,
    as_json: AsJson = False,
) -> None:
    """List connections."""
    found = api.pages("/connections", user=of, vhost=vhost)
    print_found(found, (*_CLIENT, _CONSUMES, "unsettled"), as_json=as_json, row=_row)


@app.over_api("close")
def close_connection(
    api: Api,
    number: Annotated[int, typer.Argument(help="NO. in the list.")],
    reason: Annotated[str, typer.Option(help="What the client is told.")] = "closed by an operator",
) -> None:
    """Send a client away."""
    api.call("DELETE", f"/connections/{number}", query={"reason": reason})
    typer.echo(f"connection {number} closed: {reason}")


@sessions.over_api("ls")
def list_sessions(api: Api, vhost: OfVhost = None, as_json: AsJson = False) -> None:
    """List MQTT clients that are connected."""
    views = api.pages("/connections", vhost=vhost)
    found = [each for each in views if each["description"]["protocol"].startswith("MQTT")]
    print_found(found, (*_CLIENT, ("filters", "SUBSCRIBED TO"), _CONSUMES), as_json=as_json, row=_row)


def _row(view: Mapping[str, Any]) -> dict[str, Any]:
    told = view["description"]
    consumers = [*told["consumers"], *[each for c in told["channels"] for each in c["consumers"]]]
    return {
        **view,
        **told,
        "client": told["client_id"] or told["client"].get("connection_name", ""),
        "filters": [each["filter"] for each in told["subscriptions"]],
        "queues": sorted({each["queue"] for each in consumers}),
        "unsettled": sum(each["unsettled"] for each in consumers),
    }
