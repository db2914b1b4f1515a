"""`sluicemq export` and `sluicemq import`: definitions, as RabbitMQ's JSON has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from broker.commands.http_api import Api, AsJson, segment, with_api
from broker.commands.printing import print_json

Output = Annotated[Path | None, typer.Argument(help="A file; without one, standard output.")]

OfVhost = Annotated[
    str | None, typer.Option("--vhost", help="Only what is in this virtual host; of a file all goes there.")
]


def export(api: Api, output: Output = None, vhost: OfVhost = None) -> None:
    """Write what was declared (virtual hosts, queues, exchanges, bindings) as RabbitMQ's tools have it."""
    text = json.dumps(api.call("GET", _path(vhost), prefix="/api"), indent=2, ensure_ascii=False)
    if output is None:
        typer.echo(text)
    else:
        output.write_text(text + "\n", "utf-8")


def import_definitions(
    api: Api,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="What `export` wrote.")],
    vhost: OfVhost = None,
    as_json: AsJson = False,
) -> None:
    """Make what a file of definitions has, also one of RabbitMQ; what is there already stays."""
    try:
        document = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="FILE") from None
    told = api.call("POST", _path(vhost), query={"verbose": "true"}, body=document, prefix="/api")
    if as_json:
        print_json(told)
        return
    print_taken(told)


def print_taken(told: Mapping[str, Any]) -> None:
    """Print what the broker answered to an import."""
    typer.echo("made or found: " + ", ".join(f"{count} {kind}" for kind, count in told["made"].items()))
    for line in told["not_taken"]:
        typer.echo(f"not taken: {line}", err=True)


def _path(vhost: str | None) -> str:
    return "/definitions" if vhost is None else f"/definitions/{segment(vhost)}"


COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "export": with_api(export),
    "import": with_api(import_definitions),
}
