"""The listeners for HTTP of a node that has no shard, hence no worker that would serve them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from broker.access.access import Access
from broker.clock import Clock
from broker.network.listening import ListenError, Listeners
from broker.network.tls.contexts import TlsContexts
from broker.nodes.node_keeper import Told
from broker.process.descriptors import connection_room, open_file_count, open_files_limit
from broker.workers.worker_place import WorkerPlace
from config import limits
from config.settings import ListenerSettings, Settings
from config.settings_loader import ConfigError

if TYPE_CHECKING:
    from broker.http.server import HttpServer

_NAMES: Final = ("http", "https")
_log: Final = structlog.get_logger("sluicemq.nodes")


class ShardlessHttp:
    """Serves the listeners for HTTP of a node, whenever none of its workers is there for it. Implements
    `broker.nodes.node_keeper.Front`.
    """

    def __init__(self, settings: Settings, place: WorkerPlace, told: Told) -> None:
        self._settings = settings
        self._place = place
        self._told = told
        self._clock = Clock()
        self._serving: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._access: Access | None = None

    def begin(self) -> None:
        """Serve, from a moment later on."""
        self._serving = asyncio.create_task(self._serve())

    def end(self) -> None:
        """Leave the listeners to a worker."""
        if self._serving is not None:
            self._serving.cancel()
            self._serving = None

    def reload(self) -> None:
        """Go by the users as they are now; this process keeps its other settings."""
        if self._access is not None:
            self._reading = asyncio.create_task(self._read_users(self._access))

    async def _read_users(self, access: Access) -> None:
        try:
            await access.take(access.prepare(self._settings.access))
        except ConfigError as error:
            _log.error("users.not_read", reason=str(error))

    async def _serve(self) -> None:
        """Serve until cancelled: a worker listens by then, so that nobody is refused."""
        await asyncio.sleep(limits.NODE_SHARDLESS_PAUSE_MS / 1000)  # a shard is often opened soon
        try:
            await self._listen()
        except (ConfigError, ListenError) as error:
            _log.error("http.not_started", reason=str(error))

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        opened: dict[str, ListenerSettings] = {
            name: each for name, each in self._settings.listeners.opened().items() if name in _NAMES
        }
        listeners = Listeners(opened, self._clock, shares_ports=True, unix_sockets=self._place.unix_sockets)
        access = self._access = Access(self._settings.access, self._clock)
        server: HttpServer | None = None
        try:
            server = await asyncio.to_thread(_made, self._told, access, loop)
            await listeners.bind()
            listeners.open(
                dict.fromkeys(listeners.ports, server.accept),
                connection_room(open_files_limit(), open_file_count()),
                TlsContexts(self._settings.listeners.with_tls()),
                access.addresses,
            )
            await loop.create_future()
        finally:
            listeners.close()
            if server is not None:
                server.shut_down()
            self._access = None
            await access.close()


def _made(told: Told, access: Access, loop: asyncio.AbstractEventLoop) -> HttpServer:
    """Make the server, in a thread, since the importing takes long: the node joins meanwhile."""
    from broker.http.shardless_application import shardless_server

    return shardless_server(told, access, loop)
