"""`sluicemq node`, `sluicemq shard`: the nodes of a cluster."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import typer

from broker.clock import iso_time
from broker.commands.http_api import Api, ApiCommands, AsJson, segment
from broker.commands.printing import print_found

app = ApiCommands("Nodes of a cluster.")
shard_app = ApiCommands("Shards of a cluster.")

Name = Annotated[str, typer.Argument(help="The name of the node.")]
_LOOK_S: Final = 0.5
_PATIENCE_S: Final = 10.0


@app.over_api("ls")
def list_nodes(api: Api, as_json: AsJson = False) -> None:
    """List the nodes that serve, and their shards."""
    found = api.get("/nodes")["nodes"]
    if not as_json:
        found = [
            {
                **node,
                "since": iso_time(node["since_ms"]),
                "shards": " ".join(map(str, node["shards"])),
                "state": "draining" if node["is_draining"] else "",
            }
            for node in found
        ]
    print_found(found, ("name", "address", "since", "shards", "state"), as_json=as_json)


@app.over_api("drain")
def drain_node(
    api: Api,
    name: Name,
    wait: Annotated[bool, typer.Option(help="Return once the node has no shard.")] = True,
) -> None:
    """Have a node hand over its shards to others, and take none."""
    api.call("POST", f"/nodes/{segment(name)}/drain")
    api.patient_until = time.monotonic() + _PATIENCE_S  # with the last shard another process answers
    while wait and (left := _shards_of(api, name)):
        api.patient_until = time.monotonic() + _PATIENCE_S
        typer.echo(f"{name} still has {len(left)} shards", err=True)
        time.sleep(_LOOK_S)
    typer.echo(f"{name} has no shards" if wait else f"{name} hands over its shards")


def _shards_of(api: Api, name: str) -> list[int]:
    found: list[dict[str, Any]] = api.get("/nodes")["nodes"]
    return next((node["shards"] for node in found if node["name"] == name), [])


@app.over_api("resume")
def resume_node(api: Api, name: Name) -> None:
    """Have a node take shards again, after `drain`."""
    api.call("POST", f"/nodes/{segment(name)}/resume")
    typer.echo(f"{name} takes shards again")


@app.over_api("balance")
def balance_nodes(api: Api) -> None:
    """Have nodes with more shards than others hand some over."""
    api.call("POST", "/nodes/balance")
    typer.echo("nodes with more shards than others hand some over")


@shard_app.over_api("ls")
def list_shards(api: Api, as_json: AsJson = False) -> None:
    """List the shards: which node has each, since when, and why."""
    found = api.get("/nodes")["shards"]
    if not as_json:
        found = [
            {
                **shard,
                "node": shard["node"] or "-",
                "since": iso_time(shard["since_ms"]),
                "moves_to": shard["moves_to"] or "",
            }
            for shard in found
        ]
    print_found(found, ("shard", "node", "since", "reason", "moves_to"), as_json=as_json)
