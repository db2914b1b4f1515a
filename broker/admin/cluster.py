"""The nodes of a cluster and its shards, as each of them knows them, and what an operator wants of a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from queue_manager.errors import InvalidArgument


class Told(Protocol):
    """What the keeper of this node told."""

    @property
    def view(self) -> Mapping[str, Any]:
        """What it told of nodes and shards."""

    @property
    def wish(self) -> Callable[[Mapping[str, object]], None]:
        """Tells the keeper what is wanted of nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A node that serves; `shards` are the numbers of those it has."""

    name: str
    address: str
    client_address: str
    since_ms: int
    is_draining: bool
    shards: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterShard:
    """A shard: the node that has it since then, and why; None: no node has it at this moment."""

    shard: int
    node: str | None
    since_ms: int
    reason: str
    moves_to: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """All nodes and shards, as the node `own` knows them."""

    own: str
    nodes: tuple[ClusterNode, ...]
    shards: tuple[ClusterShard, ...]


class Cluster:
    """The cluster that this node is of."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def view(self) -> ClusterView:
        """Return the nodes and shards."""
        told = self._told.view
        return ClusterView(
            own=told.get("own", ""),
            nodes=tuple(
                [ClusterNode(**{**node, "shards": tuple(node["shards"])}) for node in told.get("nodes", ())]
            ),
            shards=tuple([ClusterShard(**shard) for shard in told.get("shards", ())]),
        )

    def drain(self, name: str, *, is_wanted: bool) -> None:
        """Have a node hand over its shards and get none, or take some again. Raises InvalidArgument if there
        is none of that name.
        """
        names = sorted([node.name for node in self.view().nodes])
        if name not in names:
            raise InvalidArgument(f"{name!r} is none of the nodes, which are {', '.join(names)}")
        self._told.wish({"node": name, "drain": is_wanted})

    def balance(self) -> None:
        """Have nodes with more shards than others hand some over."""
        self._told.wish({"balance": True})
