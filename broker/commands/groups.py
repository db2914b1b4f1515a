"""`sluicemq group`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from broker.commands.http_api import Api, ApiCommands, AsJson, segment
from broker.commands.printing import print_found

app: Final = ApiCommands("Consumer groups of a queue.", in_vhost=True)

Queue = Annotated[str, typer.Argument(help="The queue's name.")]
Group = Annotated[str, typer.Argument(help="The group; ~ is the default group.")]
Force = Annotated[bool, typer.Option("--force", help="Also while it has consumers.")]

_COLUMNS: Final = (
    ("group_id", "GROUP"),
    *("lag", "ready", "delayed", "in_flight", "failed"),
    ("oldest_age_ms", "OLDEST MS"),
    *("position", "consumers", "redelivered"),
    ("idle_ms", "IDLE MS"),
)


@app.over_api("ls")
def list_groups(api: Api, queue: Queue, as_json: AsJson = False) -> None:
    """List the groups of a queue with their lag, and how long each has not been in use."""
    found = api.get(f"/queues/{segment(queue)}/groups")
    print_found(
        found, _COLUMNS, as_json=as_json, row=lambda each: {**each, "group_id": each["group_id"] or "~"}
    )


@app.over_api("create")
def create_group(
    api: Api,
    queue: Queue,
    group: Group,
    pattern: Annotated[str, typer.Option(help="What routing keys it takes.")] = "#",
    selector: Annotated[str, typer.Option(help="A JMS selector.")] = "",
    start: Annotated[str, typer.Option(help="earliest, latest, an offset or timestamp=<ms>.")] = "earliest",
) -> None:
    """Make a group."""
    body = {"pattern": pattern, "selector": selector, "start": _place(start)}
    api.call("PUT", f"/queues/{segment(queue)}/groups/{segment(group)}", body=body)
    typer.echo(f"group {group} of {queue} is there")


@app.over_api("reset")
def reset_group(
    api: Api,
    queue: Queue,
    group: Group,
    to: Annotated[str, typer.Option(help="earliest, latest, an offset or timestamp=<ms>.")] = "earliest",
    force: Force = False,
) -> None:
    """Have a group go on at another place."""
    body = {"to": _place(to), "force": force}
    api.call("POST", f"/queues/{segment(queue)}/groups/{segment(group)}/reset", body=body)
    typer.echo(f"group {group} of {queue} goes on at {to}")


@app.over_api("rm")
def remove_group(api: Api, queue: Queue, group: Group, force: Force = False) -> None:
    """Delete a group with its progress and failed messages."""
    api.call("DELETE", f"/queues/{segment(queue)}/groups/{segment(group)}", query={"force": force})
    typer.echo(f"group {group} of {queue} deleted")


def _place(text: str) -> str | int:
    return int(text) if text.isascii() and text.isdigit() else text
