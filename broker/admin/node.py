"""The view of a running broker itself: its listeners, its connections, what it counted."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain
from typing import Any, Protocol

from broker.admin.cluster import Cluster
from broker.connections.connection_views import ConnectionView
from broker.connections.registry import Goodbye
from broker.engine.client.sessions import SessionClient
from broker.engine.shard_ending import WorkerLost
from broker.process.counters import CounterView
from broker.process.free_memory import resident_bytes
from broker.process.loop_watch import Lag
from broker.version import PRODUCT, VERSION
from broker.vhosts.hub import Hub
from config.settings import ListenerSettings, Settings
from storage.store import JournalView


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerView:
    """One listener that is open."""

    name: str
    bind: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """The process: since when it runs (`started_at_ms`), and what it takes."""

    product: str
    version: str
    python: str
    pid: int
    started_at_ms: int
    uptime_ms: int
    storage: str
    memory_bytes: int
    cpu_seconds: float
    listeners: tuple[ListenerView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartView:
    """How the start went: how long until clients were let in, and what the journal took to hand over what it
    held, which may end later.
    """

    seconds: float
    replay_seconds: float
    replayed_commits: int


class Others(Protocol):
    """The other workers, where a broker has several."""

    number: int
    count: int

    def missing(self) -> list[int]:
        """Return the numbers of those that are not there just now."""

    def owner_of(self, queue: str) -> int:
        """Return which worker has a queue."""

    async def ask_others(self, part: str, method: str, *arguments: object) -> dict[int, Any]:
        """Call a part of each of them; return what those say that are there, by their numbers."""

    async def ask(self, number: int, part: str, method: str, *arguments: object) -> Any:
        """Call a part of one; raises WorkerLost if it is not there."""


@dataclass(eq=False, repr=False)
class Node:
    """One broker, as those who operate it see it. There is one per running broker.

    `ports` gives those of the listeners that are open, by name; `lag` what was seen of the loop; `journal`
    what the store holds before the database.
    """

    _hub: Hub
    _settings: Settings
    _storage: str
    _ports: Callable[[], Mapping[str, int]]
    lag: Callable[[], Lag]
    journal: Callable[[], JournalView | None]
    start: Callable[[], StartView]
    _others: Others | None = None
    cluster: Cluster | None = None
    """The nodes, where this is one of several."""
    _started_at_ms: int = field(init=False)
    _started: float = field(init=False)
    _sessions: SessionClient = field(init=False)

    def __post_init__(self) -> None:
        self._started_at_ms = self._hub.clock.now_ms()
        self._started = self._hub.clock.monotonic()
        self._sessions = self._hub.client.sessions

    def view(self) -> NodeView:
        """Return the process as it is now."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return NodeView(
            product=PRODUCT,
            version=VERSION,
            python=platform.python_version(),
            pid=os.getpid(),
            started_at_ms=self._started_at_ms,
            uptime_ms=int((self._hub.clock.monotonic() - self._started) * 1000),
            storage=self._storage,
            memory_bytes=resident_bytes(),
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            listeners=self.listeners(),
        )

    def listeners(self) -> tuple[ListenerView, ...]:
        """Return the listeners that are open."""
        opened: Mapping[str, ListenerSettings] = self._settings.listeners.opened()
        return tuple(
            [
                ListenerView(name=name, bind=opened[name].bind, port=port)
                for name, port in self._ports().items()
            ]
        )

    def own_counters(self) -> CounterView:
        """Return what this process counted since its start."""
        losses = self._sessions.losses
        return CounterView(
            **asdict(self._hub.counters),
            dropped_session_expired=losses.expired,
            dropped_session_full=losses.dropped,
        )

    async def counters(self) -> CounterView:
        """Return what was counted since the start; of all workers."""
        return sum_of([self.own_counters(), *(await self.ask_others("node", "own_counters")).values()])

    async def whole_view(self) -> NodeView:
        """Return the process with what all workers together take."""
        own = self.view()
        taken = await self.ask_others("node", "own_use")
        return replace(
            own,
            memory_bytes=own.memory_bytes + sum(memory_bytes for memory_bytes, _ in taken.values()),
            cpu_seconds=own.cpu_seconds + sum(cpu_seconds for _, cpu_seconds in taken.values()),
        )

    def own_use(self) -> tuple[int, float]:
        """Return the memory and the processor time this process takes."""
        own = self.view()
        return own.memory_bytes, own.cpu_seconds

    # clients

    async def connections(self) -> list[ConnectionView]:
        """Return the clients that are connected by MQTT and AMQP, in the order they came; of all workers."""
        found = await self.own_connections()
        others = await self.ask_others("node", "own_connections")
        return sorted(chain(found, *others.values()), key=lambda view: view.id) if others else found

    async def own_connections(self) -> list[ConnectionView]:
        """Return the clients of this process."""
        return [peer.describe() async for peer in self._hub.peers()]

    async def close_connection(self, connection_id: int, reason: str) -> bool:
        """Send a client of any worker away; whether there is one of that number."""
        others = self._others
        if others is not None and connection_id % others.count != others.number:
            number = connection_id % others.count
            try:
                closed: bool = await others.ask(number, "node", "close_own_connection", connection_id, reason)
            except WorkerLost:
                return False  # its clients are gone with it
            return closed
        return await self.close_own_connection(connection_id, reason)

    async def close_own_connection(self, connection_id: int, reason: str) -> bool:
        """Send a client of this process away; whether there is one of that number."""
        async for peer in self._hub.peers():
            if peer.describe().id == connection_id:
                peer.send_away(Goodbye.DISMISSED, reason)
                return True
        return False

    async def connection_count(self) -> int:
        """Return how many clients are connected by MQTT and AMQP; to all workers."""
        others = await self.ask_others("node", "own_connection_count")
        return self.own_connection_count() + sum(map(int, others.values()))

    def own_connection_count(self) -> int:
        """Return how many clients are connected to this process."""
        return len(self._hub.transports)

    # workers

    @property
    def worker(self) -> str:
        """The number of this worker; "": it is the only one."""
        return "" if self._others is None else str(self._others.number)

    def worker_of(self, queue: str) -> str:
        """Return the number of the worker that has a queue; "": there is only one."""
        return "" if self._others is None else str(self._others.owner_of(queue))

    def missing_workers(self) -> list[int]:
        """Return which workers are not there just now."""
        return [] if self._others is None else self._others.missing()

    def workers_up(self) -> dict[int, bool]:
        """Return of each worker whether it is there; nothing: there is only one."""
        if self._others is None:
            return {}
        missing = self._others.missing()
        return {number: number not in missing for number in range(self._others.count)}

    async def ask_others(self, part: str, method: str, *arguments: object) -> dict[int, Any]:
        """Call a part of each other worker; return what those say that are there, by their numbers."""
        return {} if self._others is None else await self._others.ask_others(part, method, *arguments)


def sum_of(views: Sequence[CounterView]) -> CounterView:
    """Return counters added up."""
    return CounterView(
        **{each.name: sum(getattr(v, each.name) for v in views) for each in fields(CounterView)}
    )
