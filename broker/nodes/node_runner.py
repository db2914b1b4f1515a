"""Drives `broker.nodes.node_machine`: with the records in the store, a clock, and who opens the shards."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Coroutine
from typing import Final, Protocol

import structlog

from broker.clock import Clock
from broker.nodes.node_lock import NodeLock
from broker.nodes.node_machine import (
    Action,
    Closed,
    Delete,
    Ended,
    Event,
    Found,
    NodeMachine,
    Open,
    Opened,
    Put,
    Read,
    Refused,
    Stop,
    Turned,
    Unanswered,
    Written,
)
from broker.nodes.shard_map import ShardMap
from config import limits
from storage.errors import StorageError
from storage.lease_clock import lease_clock_s
from storage.object_records import ObjectRecords

_log: Final = structlog.get_logger("sluicemq.nodes")


class ShardWork(Protocol):
    """Opens and closes shards, and tells the `NodeRunner` what became of it. Nothing is told within a call.

    Each `open` ends, sooner or later, with exactly one `closed`; before that comes `opened`, if it succeeds.
    """

    def open(self, shard: int) -> None:
        """Open a shard, whoever had it, and serve it."""

    def stop(self, shard: int, *, kill: bool) -> None:
        """Close a shard; with `kill`, or if that takes long, end its process. It may have died already."""

    def lease_changed(self, end_s: float) -> None:
        """Note when, by the clock of leases, delivering and confirming ends; 0: at once."""

    def map_changed(self, found: ShardMap) -> None:
        """Note the map, whenever a newer one was read, or it was read by another member of this node."""


class NodeRunner:
    """A node, as one member after the other: one whose lease was ended joins again as another."""

    def __init__(
        self,
        records: ObjectRecords,
        work: ShardWork,
        *,
        node: str,
        address: str,
        shards: int,
        lease_ms: int,
        clock: Clock,
        client_address: str = "",
        lock: NodeLock | None = None,
    ) -> None:
        self._records = records
        self._work = work
        self._node = node
        self._address = address
        self._shards = shards
        self._lease_ms = lease_ms
        self._clock = clock
        self._client_address = client_address
        self._lock = lock
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._events: deque[Event | None] = deque()
        self._is_stepping = False
        self._timer: asyncio.TimerHandle | None = None
        self._requests: set[asyncio.Task[None]] = set()
        self._told_end_ms = 0
        self._told_map: ShardMap | None = None
        self._failure = ""
        self.machine = self._new_member()

    async def run(self) -> None:
        """Be a member of the cluster, until the node has left it (`Wish.LEAVE`)."""
        try:
            self.tell(None)
            await self._ended
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for request in self._requests:
                request.cancel()
            await asyncio.gather(*self._requests, return_exceptions=True)

    def opened(self, shard: int) -> None:
        """Note that a shard serves."""
        self.tell(Opened(shard))

    def turned(self, shard: int, begun_s: float) -> None:
        """Note that what a shard's commit loop began to write then, by the clock of leases, is durable."""
        self.tell(Turned(shard, int(begun_s * 1000)))

    def closed(self, shard: int) -> None:
        """Note that a shard is closed, and its process gone."""
        self.tell(Closed(shard))

    def trouble(self) -> str:
        """Return why the node may not deliver and confirm; "" if it may."""
        reason = self.machine.trouble(self._now_ms())
        return f"{reason} ({self._failure})" if reason and self._failure else reason

    def tell(self, event: Event | None) -> None:
        """Have the member take an event, None for time, and do what it decides."""
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._events and not self._ended.done():
                machine = self.machine
                for action in machine.step(self._now_ms(), self._events.popleft()):
                    self._do(machine, action)
                self._tell_changes()
        finally:
            self._is_stepping = False
        self._set_timer()

    def _new_member(self, *, was_draining: bool = False) -> NodeMachine:
        name, dead = f"{self._node}.{secrets.token_hex(4)}", ""
        if self._lock is not None and self._lock.take():
            dead = self._lock.dead_member()
            self._lock.write(name)
        return NodeMachine(
            name,
            self._node,
            self._address,
            self._shards,
            self._lease_ms,
            self._clock.now_ms() - self._now_ms(),
            was_draining,
            self._client_address,
            dead,
        )

    def _do(self, machine: NodeMachine, action: Action) -> None:
        match action:
            case Read() | Put():
                self._request(self._answer(machine, action))
            case Delete(key):
                self._request(self._delete(key))
            case Open(shard):
                self._work.open(shard)
            case Stop(shard, kill):
                self._work.stop(shard, kill=kill)
            case Ended(reason, is_wanted):
                _log.warning("node.ended", member=machine.name, why=reason)
                if is_wanted:
                    self._ended.set_result(None)
                else:
                    pause_s = self._lease_ms / 1000 / limits.LEASE_LOOKS
                    asyncio.get_running_loop().call_later(pause_s, self._join_again, machine)

    def _join_again(self, ended: NodeMachine) -> None:
        if not self._ended.done():
            self.machine = self._new_member(was_draining=ended.is_draining)
            self.tell(None)

    def _request(self, request: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(request)
        self._requests.add(task)
        task.add_done_callback(self._on_requested)

    def _on_requested(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        if not task.cancelled() and (error := task.exception()) and not self._ended.done():
            self._ended.set_exception(error)

    async def _answer(self, machine: NodeMachine, request: Read | Put) -> None:
        number = request.number
        try:
            if isinstance(request, Read):
                event: Event = Found(number, await self._records.get(request.key))
            else:
                tag = await self._records.put(request.key, request.content, request.base)
                event = Refused(number) if tag is None else Written(number, tag)
            self._failure = ""
        except StorageError as error:
            self._failure = error.reason
            event = Unanswered(number)
        if machine is self.machine:
            self.tell(event)

    async def _delete(self, key: str) -> None:
        try:
            await self._records.delete(key)
        except StorageError as error:
            _log.info("node.record_left", key=key, why=error.reason)

    def _tell_changes(self) -> None:
        end_ms, found = self.machine.lease.end_ms, self.machine.map
        if end_ms != self._told_end_ms:
            self._told_end_ms = end_ms
            self._work.lease_changed(end_ms / 1000)
        if found is not None and found is not self._told_map:
            self._told_map = found
            self._work.map_changed(found)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._ended.done():
            now_ms = self._now_ms()
            rest_s = (self.machine.due_ms(now_ms) - now_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(rest_s, self.tell, None)

    def _now_ms(self) -> int:
        return int(lease_clock_s() * 1000)
