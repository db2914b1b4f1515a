"""What a worker has to know when its broker is one node of several."""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from config import limits
from storage.lease_clock import lease_clock_s

_DEADLINE: Final = struct.Struct("<d")


class NodeDeadline:
    """The end of this node's lease, by the clock of leases of its machine, seen by all its processes.

    In memory that they share: made before they are forked, written by one of them.
    """

    __slots__ = ("_memory",)

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _DEADLINE.size)
        self.set(0.0)

    def set(self, at_s: float) -> None:
        """Have the lease end then."""
        _DEADLINE.pack_into(self._memory, 0, at_s)

    def __call__(self) -> float:
        """Return when the lease ends, or ended."""
        ends: float = _DEADLINE.unpack_from(self._memory)[0]
        return ends


class Epoch:
    """In which epoch a node has a shard. Without a `number` it is only about to have it: the worker does what
    needs no shard meanwhile.
    """

    def __init__(self, number: int | None = None) -> None:
        self.number = 0
        self._is_begun = asyncio.Event()
        if number is not None:
            self.begin(number)

    def begin(self, number: int) -> None:
        """Note that the shard is this node's."""
        self.number = number
        self._is_begun.set()

    @property
    def is_begun(self) -> bool:
        """Return whether it is."""
        return self._is_begun.is_set()

    async def begun(self) -> None:
        """Return once it is: only then its database may be opened for writing."""
        await self._is_begun.wait()


class Peers:
    """Where the shards are that other nodes have: `(host, port)` by number. Each of `on_moved` is given each
    number whose place changed.
    """

    def __init__(self) -> None:
        self.view: Mapping[str, Any] = {}
        """What operators are shown of nodes and shards."""
        self.wish: Callable[[Mapping[str, object]], None] = lambda wish: None
        """Tells the keeper what an operator wants of nodes."""
        self._places: dict[int, tuple[str, int]] = {}
        self.on_moved: list[Callable[[int], None]] = []

    def take(self, places: Mapping[int, tuple[str, int]]) -> None:
        """Go by these places from now on."""
        before, self._places = self._places, dict(places)
        for number in before.keys() | places.keys():
            if before.get(number) != places.get(number):
                for call in self.on_moved:
                    call(number)

    def is_moving(self, number: int) -> bool:
        """Return whether a shard is handed over, or about to be."""
        return any(shard["shard"] == number and shard["moves_to"] for shard in self._shards())

    def reference_of(self, number: int) -> str:
        """Return where clients reach the other node that has a shard, or is about to; "" if there is none, or
        they are not to be sent there.
        """
        names = [each["moves_to"] or each["node"] for each in self._shards() if each["shard"] == number]
        found = [each["client_address"] for each in self.view.get("nodes", ()) if each["name"] in names]
        return "" if self.view.get("own") in names else "".join(found)

    def _shards(self) -> Sequence[Mapping[str, Any]]:
        shards: Sequence[Mapping[str, Any]] = self.view.get("shards", ())
        return shards

    def place_of(self, number: int) -> tuple[str, int] | None:
        """Return where a shard is; None: at this node, or nowhere."""
        return self._places.get(number)


@dataclass(frozen=True, slots=True, eq=False)
class NodeSide:
    """The node of a worker: its `name`, and where it listens for links of other nodes: at `host`, and the
    port `first_port` plus the number of the shard.

    `secret` is what nodes know each other by; with `accepting` and `asking` links are encrypted, and both
    ends show certificates. `epoch` rises each time that the shard is given to a node: links of an earlier
    owner are not listened to.
    """

    name: str
    host: str
    first_port: int
    epoch: Epoch
    secret: bytes
    deadline: NodeDeadline
    peers: Peers
    accepting: ssl.SSLContext | None = None
    asking: ssl.SSLContext | None = None
    alive_interval_s: float = 1.0

    def has_lease(self) -> bool:
        """Return whether the lease of the node lasts."""
        return lease_clock_s() < self.deadline()

    async def have_alone(self, what: str, run_directory: Path) -> int:
        """Return once no other process of this node has something that one of them is to have: until this
        one ends, or closes the descriptor that is given.
        """
        held = os.open(run_directory / f"{what}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return held
            except BlockingIOError:
                pass
            except OSError:
                os.close(held)
                raise
            try:
                await asyncio.sleep(limits.NODE_ALONE_LOOK_MS / 1000)
            except asyncio.CancelledError:
                os.close(held)
                raise

    def take(self, told: Mapping[str, Any]) -> None:
        """Take what the keeper of the node tells its workers: where the other shards are, or that the own one
        is the node's by now.
        """
        if "epoch" in told:
            self.epoch.begin(told["epoch"])
            return
        self.peers.view = told["view"]
        self.peers.take({int(number): (host, port) for number, (host, port) in told["places"].items()})
