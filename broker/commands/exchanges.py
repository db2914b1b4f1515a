"""`sluicemq exchange` and `sluicemq binding`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from broker.commands.http_api import Api, ApiCommands, AsJson, segment
from broker.commands.printing import print_found

app: Final = ApiCommands("Exchanges.", in_vhost=True)
bindings: Final = ApiCommands("Bindings of queues and exchanges.", in_vhost=True)

Name = Annotated[str, typer.Argument(help="The exchange's name.")]
Destination = Annotated[str, typer.Argument(help="The queue, or with --exchange the exchange.")]
Key = Annotated[str, typer.Option("--key", help="The routing key.")]
ToExchange = Annotated[bool, typer.Option("--exchange", help="The destination is an exchange.")]


@app.over_api("ls")
def list_exchanges(api: Api, as_json: AsJson = False) -> None:
    """List exchanges."""
    found = api.get("/exchanges")
    columns = ("name", "type", "durable", "internal", "binding_count")
    print_found(found, columns, as_json=as_json)


@app.over_api("declare")
def declare_exchange(
    api: Api,
    name: Name,
    type: Annotated[str, typer.Option(help="direct, fanout, topic, headers, ...")] = "direct",
) -> None:
    """Make a durable exchange."""
    api.call("PUT", f"/exchanges/{segment(name)}", body={"type": type})
    typer.echo(f"exchange {name} of type {type} is there")


@app.over_api("rm")
def remove_exchange(
    api: Api,
    name: Name,
    if_unused: Annotated[bool, typer.Option("--if-unused", help="Not while it has bindings.")] = False,
) -> None:
    """Delete an exchange with its bindings."""
    api.call("DELETE", f"/exchanges/{segment(name)}", query={"if_unused": if_unused})
    typer.echo(f"exchange {name} deleted")


@bindings.over_api("ls")
def list_bindings(
    api: Api,
    source: Annotated[str | None, typer.Option(help="Only those of this exchange.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only those to this queue.")] = None,
    as_json: AsJson = False,
) -> None:
    """List bindings."""
    found = api.get("/bindings", source=source, queue=queue)
    columns = ("source", "routing_key", "destination", "destination_type", "arguments")
    print_found(found, columns, as_json=as_json)


@bindings.over_api("add")
def bind(
    api: Api, source: Name, destination: Destination, key: Key = "", exchange: ToExchange = False
) -> None:
    """Bind a queue or an exchange to an exchange."""
    api.call("POST", "/bindings", body=_binding(source, destination, key, exchange))
    typer.echo(f"{destination} is bound to {source} by {key!r}")


@bindings.over_api("rm")
def unbind(
    api: Api, source: Name, destination: Destination, key: Key = "", exchange: ToExchange = False
) -> None:
    """Undo a binding."""
    api.call("POST", "/bindings/remove", body=_binding(source, destination, key, exchange))
    typer.echo(f"{destination} is not bound to {source} by {key!r} any more")


def _binding(source: str, destination: str, key: str, to_exchange: bool) -> dict[str, str]:
    kind = "exchange" if to_exchange else "queue"
    return {"source": source, "destination": destination, "destination_type": kind, "routing_key": key}
