"""`sluicemq shovel` and its like: links of a running broker to other ones, each kept as a parameter."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from broker.commands.http_api import Api, ApiCommands, AsJson, segment
from broker.commands.printing import print_found

_COLUMNS = ("name", "state", "moved", "pending", "restarts", "reason")

Name = Annotated[str, typer.Argument(help="Its name.")]
Settings = Annotated[
    list[str],
    typer.Argument(
        help="KEY=VALUE, as docs/links.md has them; KEY=@FILE reads the value, @- standard input."
    ),
]


def _value(setting: list[str]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for each in setting:
        key, is_there, text = each.partition("=")
        if not is_there:
            raise typer.BadParameter(f"{each!r} is not KEY=VALUE")
        if text == "@-":
            text = sys.stdin.readline().rstrip("\n")
        elif text.startswith("@"):
            text = Path(text[1:]).read_text("utf-8").rstrip("\n")
        try:
            value[key] = json.loads(text)
        except ValueError:
            value[key] = text
    return value


def commands_of(
    component: str, what: str, about: str, read: Callable[[list[str]], Any] = _value
) -> ApiCommands:
    """Return the commands about the parameters of a component, of which one is called `what`; `read` makes
    the value of what `add` is given.
    """
    commands = ApiCommands(about, in_vhost=True)
    path = f"/parameters/{component}"

    def listed(api: Api, as_json: AsJson = False) -> None:
        states = {each["name"]: each for each in api.get("/links") if each["component"] == component}
        parameters = api.get(path)
        if as_json:
            found = [{**each, "link": states.get(each["name"])} for each in parameters]
        else:
            found = [{**states.get(each["name"], {}), **each} for each in parameters]
        columns = _COLUMNS if states else ("name", "value")
        print_found(found, columns, as_json=as_json)

    def add(api: Api, name: Name, setting: Settings) -> None:
        api.call("PUT", f"{path}/{segment(name)}", body={"value": read(setting)})
        typer.echo(f"{what} {name} is set")

    def remove(api: Api, name: Name) -> None:
        api.call("DELETE", f"{path}/{segment(name)}")
        typer.echo(f"{what} {name} is deleted")

    listed.__doc__ = f"List each {what}, without passwords."
    add.__doc__ = f"Make or replace a {what}; it holds at once."
    remove.__doc__ = f"Delete a {what}."
    for name, command in (("ls", listed), ("add", add), ("rm", remove)):
        commands.over_api(name)(command)
    return commands


shovels = commands_of("shovel", "shovel", "Shovels: messages moved from or to another broker.")
webhooks = commands_of("webhook", "webhook", "Webhooks: what comes into a queue, posted to a receiver.")
upstreams = commands_of("federation-upstream", "upstream", "Upstreams: whence exchanges and queues fetch.")
upstream_sets = commands_of(
    "federation-upstream-set",
    "set",
    "Sets of upstreams, for policies.",
    lambda names: [{"upstream": name} for name in names],
)
upstreams.add_typer(upstream_sets, name="set")
