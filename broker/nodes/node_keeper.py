"""The keeper of a node: the process that keeps its place among others, in the object store.

It decides by `NodeMachine`, asks the store, and tells the supervisor which shards are to be opened and closed
here, and the workers where the others are. The end of the node's lease is in memory that all processes share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import structlog
import uvloop

from broker.clock import Clock
from broker.nodes.node_lock import NodeLock
from broker.nodes.node_machine import Drain, Wish
from broker.nodes.node_runner import NodeRunner
from broker.nodes.shard_map import ShardMap
from broker.workers.supervised import AWAIT, CLOSE, OPEN, PEERS, Supervised
from broker.workers.worker_place import WorkerPlace
from config import limits
from config.settings import Settings
from storage.errors import StorageError
from storage.object_records import ObjectRecords

EXIT_OK: Final = 0
EXIT_LOST: Final = 1
FOLDER: Final = "cluster"

_log: Final = structlog.get_logger("sluicemq.nodes")


class Told(Protocol):
    """What the keeper knows. Implements `broker.admin.cluster.Told`."""

    @property
    def view(self) -> Mapping[str, Any]:
        """What operators are shown of nodes and shards."""

    def wish(self, wish: Mapping[str, object]) -> None:
        """Take what an operator wants of nodes."""

    def why_idle(self) -> str:
        """Return why the node serves no clients, when it has no shard open."""


class Front(Protocol):
    """Answers who asks for the node while none of its workers can. Neither call is made twice in a row."""

    def begin(self) -> None:
        """Answer from now on: no worker serves any more, or none has yet."""

    def end(self) -> None:
        """Leave it to a worker."""

    def reload(self) -> None:
        """Read anew who may ask."""


MakeFront = Callable[[Settings, WorkerPlace, Told], Front]


def keep(
    settings: Settings, make_front: MakeFront, lock: NodeLock, place: WorkerPlace, outside: Supervised
) -> int:
    """Keep the place of a node until it leaves; gives the exit code."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_keep(settings, make_front, lock, place, outside))


async def _keep(
    settings: Settings, make_front: MakeFront, lock: NodeLock, place: WorkerPlace, outside: Supervised
) -> int:
    try:
        keeper = Keeper(settings, make_front, lock, place, outside)
    except StorageError as error:
        outside.cannot_start(f"cannot start: {error.reason}")
        return EXIT_LOST
    await keeper.run()
    return EXIT_OK


class Keeper:
    """Passes on what is decided about a node to its other processes. Implements `ShardWork` and `Told`."""

    def __init__(
        self,
        settings: Settings,
        make_front: MakeFront,
        lock: NodeLock,
        place: WorkerPlace,
        outside: Supervised,
    ) -> None:
        """Make what keeps the place. Raises StorageError if the settings name no store."""
        cluster, node = settings.cluster, place.node
        assert cluster is not None
        assert node is not None
        self._node = node
        self._outside = outside
        self._told: dict[str, Any] = {}
        self._owners: list[str] = []
        self._awaited: list[int] = []
        self._serving: set[int] = set()
        self._front = make_front(settings, place, self)
        self._runner = NodeRunner(
            ObjectRecords(
                settings.storage.url, FOLDER, cluster.lease_ms / 1000 / limits.NODE_REQUESTS_PER_LEASE
            ),
            self,
            node=node.name,
            address=f"{node.host}:{node.first_port}",
            shards=cluster.shards,
            lease_ms=cluster.lease_ms,
            clock=Clock(),
            client_address=cluster.client_address,
            lock=lock,
        )

    async def run(self) -> None:
        """Return once the node has left the cluster."""
        self._outside.on_stop(lambda: self._runner.tell(Wish.LEAVE))
        self._outside.on_told(self._hear)
        self._outside.on_reload(self._front.reload)
        self._front.begin()
        await self._runner.run()

    @property
    def view(self) -> Mapping[str, Any]:
        """See `Told`."""
        found = self._runner.machine.map
        return {} if found is None else self._view(found)

    def wish(self, wish: Mapping[str, object]) -> None:
        """See `Told`."""
        self._hear(wish)

    def why_idle(self) -> str:
        """See `Told`."""
        trouble = self._runner.trouble()
        if trouble:
            return trouble
        name = self._node.name
        if self._runner.machine.is_draining:
            return f"the node is drained: it has no shard until it may have some again (node resume {name})"
        return "the node has no shard yet"

    def _hear(self, told: Mapping[str, Any]) -> None:
        """Take what the supervisor tells, or an operator."""
        match told:
            case {"opened": int(shard)}:
                self._note_serving(self._serving | {shard})
                self._runner.opened(shard)
            case {"closed": int(shard)}:
                self._note_serving(self._serving - {shard})
                self._runner.closed(shard)
            case {"turned_s": float(begun_s), "shard": int(shard)}:
                self._runner.turned(shard, begun_s)
            case {"drain": bool(is_wanted), "node": str(node)}:
                self._runner.tell(Drain(node, is_wanted))
            case {"balance": True}:
                self._runner.tell(Wish.BALANCE)

    def _note_serving(self, shards: set[int]) -> None:
        before, self._serving = self._serving, shards
        if shards and not before:
            self._front.end()
        elif before and not shards:
            self._front.begin()

    def open(self, shard: int) -> None:
        """See `ShardWork`."""
        found = self._runner.machine.map
        assert found is not None
        told = {"report": OPEN, "shard": shard, "count": len(found.shards), "epoch": found.version}
        self._outside.tell(told)

    def stop(self, shard: int, *, kill: bool) -> None:
        """See `ShardWork`."""
        self._outside.tell({"report": CLOSE, "shard": shard, "kill": kill})

    def lease_changed(self, end_s: float) -> None:
        """See `ShardWork`: all processes of the node see it."""
        self._node.deadline.set(end_s)

    def map_changed(self, found: ShardMap) -> None:
        """See `ShardWork`: workers are told where the other shards are."""
        self._log_moves(found)
        told = {"report": PEERS, "places": self._places(found), "view": self._view(found)}
        if found.shards and told != self._told:
            self._told = told
            self._outside.tell(told)
        self._tell_awaited(found)

    def _tell_awaited(self, found: ShardMap) -> None:
        """Tell which shards will be handed over to this node."""
        name = self._runner.machine.name
        awaited = [number for number, shard in enumerate(found.shards) if shard.to == name != shard.owner]
        if awaited != self._awaited:
            self._awaited = awaited
            self._outside.tell({"report": AWAIT, "shards": awaited, "count": len(found.shards)})

    def _log_moves(self, found: ShardMap) -> None:
        before, self._owners = self._owners, [shard.owner for shard in found.shards]
        for number, (owner, shard) in enumerate(zip(before, found.shards, strict=False)):
            if owner != shard.owner:
                member = found.members.get(shard.owner)
                _log.info("shard.moved", shard=number, node=member and member.node, why=shard.reason)

    def _places(self, found: ShardMap) -> dict[str, tuple[str, int]]:
        places = {}
        for number, shard in enumerate(found.shards):
            owner = found.members.get(shard.owner)
            if owner is not None and shard.owner != self._runner.machine.name:
                host, _, port = owner.address.rpartition(":")
                places[str(number)] = (host, int(port) + number)
        return places

    def _view(self, found: ShardMap) -> dict[str, Any]:
        """Return what operators are shown."""
        members = found.members
        return {
            "own": self._node.name,
            "nodes": [
                {
                    "name": member.node,
                    "address": member.address,
                    "client_address": member.client_address,
                    "since_ms": member.since_ms,
                    "is_draining": member.is_draining,
                    "shards": found.owned_by(name),
                }
                for name, member in members.items()
            ],
            "shards": [
                {
                    "shard": number,
                    "node": members[shard.owner].node if shard.owner in members else None,
                    "since_ms": shard.since_ms,
                    "reason": shard.reason,
                    "moves_to": members[shard.to].node if shard.to in members else None,
                }
                for number, shard in enumerate(found.shards)
            ],
        }
