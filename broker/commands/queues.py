"""`sluicemq queue`."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from broker.commands.http_api import Api, ApiCommands, AsJson, segment
from broker.commands.printing import print_fields, print_found, print_json, text_of

app: Final = ApiCommands("Queues of a running broker.", in_vhost=True)

Name = Annotated[str, typer.Argument(help="The queue's name.")]
Group = Annotated[str | None, typer.Option(help="A consumer group; without one, or ~, the default group.")]
Limit = Annotated[int | None, typer.Option(min=0, help="At most so many messages.")]
Rate = Annotated[float | None, typer.Option(help="At most so many messages per second.")]

Publish = Annotated[bool, typer.Option("--publish", help="Only for publishers.")]
Deliver = Annotated[bool, typer.Option("--deliver", help="Only for consumers.")]

_COLUMNS: Final = (
    *("name", "type", "ready", "in_flight", "delayed", "scheduled", "failed", "consumers", "groups"),
    "paused",
)


@app.over_api("ls")
def list_queues(
    api: Api,
    name: Annotated[str, typer.Option(help="Only those with this in their names.")] = "",
    as_json: AsJson = False,
) -> None:
    """List queues, by name."""
    found = api.pages("/queues", name=name)
    print_found(found, _COLUMNS, as_json=as_json, row=lambda each: {**each, "paused": _paused(each)})


@app.over_api("show")
def show_queue(api: Api, name: Name, as_json: AsJson = False) -> None:
    """Show one queue: its settings by the keys that `declare --set` takes, what holds for it, and counts."""
    found = api.get(f"/queues/{segment(name)}")
    if as_json:
        print_json(found)
        return
    told_otherwise = ("policy", "declared", "settings", "policies")
    rest = {key: found[key] for key in found if key not in (*told_otherwise, *found["settings"])}
    policies = {key: value for key, value in found["policies"].items() if value}
    print_fields({"name": found["name"], "type": found["type"], **found["settings"], **policies, **rest})


@app.over_api("declare")
def declare_queue(
    api: Api,
    name: Name,
    type: Annotated[str | None, typer.Option(help="classic, stream or ephemeral.")] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(
            help="A key of `queues:` in the configuration, as limits.max_depth=1000; repeat it. "
            "KEY=null puts it back to its default."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a queue, or change these settings of one that is there; the others stay."""
    body: dict[str, Any] = {} if type is None else {"type": type}
    for pair in set or ():
        path, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"{pair!r} is no KEY=VALUE", param_hint="--set")
        *sections, key = path.split(".")
        place = body
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = _value(value)
    found = api.call("PUT", f"/queues/{segment(name)}", body=body)
    if as_json:
        print_json(found)
        return
    done = "made" if found["is_new"] else "changed" if found["changed"] else "is as it was"
    typer.echo(f"queue {name} {done}")
    for key, change in found["changed"].items():
        typer.echo(f"{key}: {text_of(change['before']) or '-'} -> {text_of(change['after']) or '-'}")


@app.over_api("purge")
def purge_queue(api: Api, name: Name, as_json: AsJson = False) -> None:
    """Drop what waits in every group."""
    _tell("dropped", api.call("POST", f"/queues/{segment(name)}/purge"), as_json)


@app.over_api("pause")
def pause_queue(api: Api, name: Name, publish: Publish = False, deliver: Deliver = False) -> None:
    """Refuse publishes, give consumers nothing, or (without options) both; holds over restarts."""
    _set_pause(api, "pause", name, publish, deliver)


@app.over_api("resume")
def resume_queue(api: Api, name: Name, publish: Publish = False, deliver: Deliver = False) -> None:
    """Let a paused queue go on; without options for publishers and consumers."""
    _set_pause(api, "resume", name, publish, deliver)


def _set_pause(api: Api, verb: str, name: str, publish: bool, deliver: bool) -> None:
    view = api.call("POST", f"/queues/{segment(name)}/{verb}", body={"publish": publish, "deliver": deliver})
    paused = _paused(view)
    typer.echo(f"{name} is paused: {', '.join(paused)}" if paused else f"{name} is not paused")


def _paused(view: Mapping[str, Any]) -> list[str]:
    return [what for what, paused in view["pause"].items() if paused]


@app.over_api("rm")
def remove_queue(
    api: Api,
    name: Name,
    if_unused: Annotated[bool, typer.Option("--if-unused", help="Not while it has consumers.")] = False,
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Not while it has messages.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a queue with all it holds."""
    query = {"if_unused": if_unused, "if_empty": if_empty}
    _tell("dropped", api.call("DELETE", f"/queues/{segment(name)}", query=query), as_json)


@app.over_api("peek")
def peek(
    api: Api,
    name: Name,
    group: Group = None,
    state: Annotated[
        str, typer.Option(help="ready, in_flight, delayed, scheduled, failed or done.")
    ] = "ready",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many messages.")] = 20,
    start: Annotated[str | None, typer.Option(help="An offset, or timestamp=<ms>.")] = None,
    as_json: AsJson = False,
) -> None:
    """Look at messages; nothing is claimed or moved."""
    query = {"group": _group(group), "state": state, "limit": limit, "start": start}
    found = api.get(f"/queues/{segment(name)}/messages", **query)["items"]
    print_found(found, ("offset", "topic", "attempts", "encoding", "body"), as_json=as_json)


@app.over_api("move")
def move(
    api: Api,
    name: Name,
    to: Annotated[str, typer.Argument(help="The queue that gets them.")],
    group: Group = None,
    state: Annotated[str, typer.Option(help="ready or failed.")] = "ready",
    limit: Limit = None,
    per_second: Rate = None,
    as_json: AsJson = False,
) -> None:
    """Move messages to the end of another queue."""
    body = {"to": to, "group": _group(group), "state": state, "limit": limit, "per_second": per_second}
    _tell("moved", api.call("POST", f"/queues/{segment(name)}/move", body=body), as_json)


@app.over_api("redrive")
def redrive(
    api: Api,
    name: Name,
    group: Annotated[str, typer.Option(help="Whose failed messages.")] = "",
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="The queue has dead letters: send them back.")
    ] = False,
    to: Annotated[str | None, typer.Option(help="Where dead letters go, if not back.")] = None,
    limit: Limit = None,
    per_second: Rate = None,
    as_json: AsJson = False,
) -> None:
    """Try failed messages again, or send dead letters back to where they came from."""
    body: dict[str, Any] = {"limit": limit, "per_second": per_second}
    body |= {"to": to} if dead_letters else {"group": _group(group) or ""}
    what = "redrive-dead-letters" if dead_letters else "redrive"
    _tell("tried again", api.call("POST", f"/queues/{segment(name)}/{what}", body=body), as_json)


def publish(
    api: Api,
    queue: Annotated[str, typer.Argument(help="The queue.")],
    body: Annotated[str | None, typer.Argument(help="The payload; without it --file.")] = None,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A file that has the payload.")
    ] = None,
    topic: Annotated[str, typer.Option(help="A $queue/... address of the queue.")] = "",
    header: Annotated[list[str] | None, typer.Option(help="NAME=VALUE; repeat it.")] = None,
    content_type: Annotated[str | None, typer.Option(help="What the payload is.")] = None,
    as_json: AsJson = False,
) -> None:
    """Publish one message to a queue; it is durable when this ends."""
    if (body is None) == (file is None):
        raise typer.BadParameter("give the payload, or a file that has it")
    message: dict[str, Any] = {"body": body, "topic": topic}
    if file is not None:
        data = file.read_bytes()
        message |= {"body": base64.b64encode(data).decode(), "encoding": "base64"}
    message["headers"] = dict(pair.partition("=")[::2] for pair in header or ())
    message["properties"] = {} if content_type is None else {"content_type": content_type}
    found = api.call("POST", f"/queues/{segment(queue)}/messages", body=message)
    print_json(found) if as_json else typer.echo(f"published to {', '.join(found['queues'])}")


def _group(name: str | None) -> str | None:
    """Return the group that is meant; None for the default one, which is shown as ~."""
    return None if name == "~" else name


def _value(text: str) -> Any:
    """Read `true`, numbers, lists and objects as JSON has them; anything else as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _tell(what: str, found: Any, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        typer.echo(f"{found['count']} messages {what}")
