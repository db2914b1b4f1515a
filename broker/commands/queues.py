"""`sluicemq queue`."""

from __future__ import annotations

from typing import Final

import typer

from broker.commands.api import URL_DEFAULT, Api, AsJson, PasswordStdin, Url, User
from broker.commands.output import print_json, print_table

app: Final = typer.Typer(help="Queues of a running broker.", no_args_is_help=True)

_COLUMNS: Final = (
    ("name", "NAME"),
    ("type", "TYPE"),
    ("ready", "READY"),
    ("in_flight", "IN FLIGHT"),
    ("delayed", "DELAYED"),
    ("scheduled", "SCHEDULED"),
    ("failed", "FAILED"),
    ("consumers", "CONSUMERS"),
    ("groups", "GROUPS"),
)


@app.command("ls")
def list_queues(
    name: str = typer.Option("", help="Only those with this in their names."),
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    user: User = None,
    password_stdin: PasswordStdin = False,
) -> None:
    """List queues, by name."""
    found = Api(url, user, password_stdin).pages("/queues", name=name)
    if as_json:
        print_json(found)
    else:
        print_table(_COLUMNS, found)
