"""The view of a running broker itself: its listeners, its connections, what it counted."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from broker.connections.connection_views import ConnectionView
from broker.connections.registry import Goodbye
from broker.engine.client.sessions import SessionClient
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
class CounterView:
    """The counters since the start; see `Counters` and, for sessions, `SessionClient.losses`."""

    control_refused: int
    dropped_session_expired: int
    dropped_session_full: int
    dropped_slow_consumer: int
    dropped_too_large: int
    events_dropped: int
    events_published: int
    late_settles: int
    publishes_refused: int
    publishes_unrouted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartView:
    """How the start went: how long until clients were let in, and what the journal took to hand over what it
    held, which may end later.
    """

    seconds: float
    replay_seconds: float
    replayed_commits: int


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

    def counters(self) -> CounterView:
        """Return what was counted since the start."""
        losses = self._sessions.losses
        return CounterView(
            **asdict(self._hub.counters),
            dropped_session_expired=losses.expired,
            dropped_session_full=losses.dropped,
        )

    async def connections(self) -> list[ConnectionView]:
        """Return the clients that are connected by MQTT and AMQP, in the order they came."""
        return [peer.describe() async for peer in self._hub.peers()]

    async def close_connection(self, connection_id: int, reason: str) -> bool:
        """Send a client away; whether there is one of that number."""
        async for peer in self._hub.peers():
            if peer.describe().id == connection_id:
                peer.send_away(Goodbye.DISMISSED, reason)
                return True
        return False

    def connection_count(self) -> int:
        """Return how many clients are connected by MQTT and AMQP."""
        return len(self._hub.transports)
