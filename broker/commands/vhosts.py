"""`sluicemq vhost`: virtual hosts of a running broker."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.commands.http_api import Api, ApiCommands, AsJson, segment
from broker.commands.printing import print_found

app = ApiCommands("Virtual hosts.")

Name = Annotated[str, typer.Argument(help="The virtual host.")]


@app.over_api("ls")
def list_vhosts(api: Api, as_json: AsJson = False) -> None:
    """List virtual hosts."""
    found = api.get("/vhosts")
    columns = ("name", "configured", "connections", "max_connections", "queues", "max_queues")
    print_found(found, columns, as_json=as_json)


@app.over_api("add")
def add_vhost(
    api: Api,
    name: Name,
    max_connections: Annotated[int | None, typer.Option(help="Clients at a time; 0: any number.")] = None,
    max_queues: Annotated[int | None, typer.Option(help="Queues; 0: any number.")] = None,
    protected: Annotated[
        bool | None, typer.Option("--protected/--unprotected", help="Whether `rm` refuses to delete it.")
    ] = None,
) -> None:
    """Make a virtual host, or change what is given."""
    wanted = {
        "max_connections": max_connections,
        "max_queues": max_queues,
        "protected_from_deletion": protected,
    }
    body = {key: value for key, value in wanted.items() if value is not None}
    api.call("PUT", f"/vhosts/{segment(name)}", body=body)
    typer.echo(f"virtual host {name} is there")


@app.over_api("rm")
def remove_vhost(api: Api, name: Name) -> None:
    """Delete a virtual host with all that is in it; its clients are sent away."""
    api.call("DELETE", f"/vhosts/{segment(name)}")
    typer.echo(f"virtual host {name} deleted with all that was in it")
