"""`sluicemq tls`: certificates for trying out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from broker.commands.printing import refuse

app = typer.Typer(help="Make certificates for trying out.", no_args_is_help=True)

Directory = Annotated[Path, typer.Option("--dir", help="Where the files are.")]


@app.command("init")
def init(
    directory: Directory,
    host: Annotated[
        list[str] | None, typer.Option(help="A name or address of the server; may be repeated.")
    ] = None,
) -> None:
    """Make an authority (ca.crt, ca.key) and a server's certificate (server.crt, server.key)."""
    from broker.network.tls import making  # brings a library along

    try:
        making.make_server(directory, host or making.own_hosts())
    except (OSError, ValueError) as error:
        refuse(error)


@app.command("client")
def client(directory: Directory, name: Annotated[str, typer.Argument(help="Its common name.")]) -> None:
    """Make a client's certificate (NAME.crt, NAME.key) by the authority in the directory."""
    from broker.network.tls import making  # brings a library along

    try:
        making.make_client(directory, name)
    except (OSError, ValueError) as error:
        refuse(error)
