"""`sluicemq policy`: policies of a running broker."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from broker.commands.http_api import Api, ApiCommands, AsJson, segment
from broker.commands.printing import print_found

app = ApiCommands("Policies: what queues and exchanges are given by their names.", in_vhost=True)

Name = Annotated[str, typer.Argument(help="The policy.")]
Operator = Annotated[
    bool, typer.Option("--operator", help="One of operators: it bounds what others ask for.")
]


@app.over_api("ls")
def list_policies(api: Api, as_json: AsJson = False) -> None:
    """List policies."""
    found = api.get("/policies")
    columns = ("name", "operator", "pattern", "apply_to", "priority", "definition")
    print_found(found, columns, as_json=as_json)


@app.over_api("set")
def set_policy(
    api: Api,
    name: Name,
    pattern: Annotated[str, typer.Argument(help="A regular expression that is looked for in names.")],
    setting: Annotated[
        list[str],
        typer.Argument(help="KEY=VALUE, as max-length=1000 or overflow=reject-publish; any number."),
    ],
    apply_to: Annotated[
        str,
        typer.Option(help="all, queues, classic_queues, quorum_queues, streams, exchanges or mqtt_sessions."),
    ] = "all",
    priority: Annotated[int, typer.Option(help="Of several that match the highest holds.")] = 0,
    operator: Operator = False,
) -> None:
    """Make a policy, or put it in the place of one of that name; it holds at once."""
    definition = dict(map(_setting, setting))
    wanted = {"pattern": pattern, "definition": definition, "apply_to": apply_to, "priority": priority}
    api.call("PUT", f"/policies/{segment(name)}", body={**wanted, "operator": operator})
    typer.echo(f"policy {name} holds for names that match {pattern}")


def _setting(text: str) -> tuple[str, Any]:
    key, is_there, value = text.partition("=")
    if not is_there:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE")
    try:
        number = json.loads(value)
    except ValueError:
        return key, value
    return key, number if isinstance(number, int) else value


@app.over_api("rm")
def remove_policy(api: Api, name: Name, operator: Operator = False) -> None:
    """Delete a policy; what it was for goes on as it was declared."""
    api.call("DELETE", f"/policies/{segment(name)}", query={"operator": operator})
    typer.echo(f"policy {name} is deleted")
