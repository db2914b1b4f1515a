"""Several workers in one process: brokers with a place each, in a loop of a thread; clients choose theirs."""

import asyncio
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import uvloop

from broker.app import Broker
from broker.connections.connection_views import ConnectionView
from config.settings import (
    AmqpListenerSettings,
    ListenersSettings,
    MqttListenerSettings,
    Settings,
    StorageSettings,
)
from tests.e2e.raw_mqtt import CONNACK, V5, RawMqtt, connect
from tests.waiting import until
from tests.worker_group import worker_places

T = TypeVar("T")


class SeveralWorkers:
    """Workers that know each other, on ports of their own."""

    def __init__(
        self, count: int, run_directory: Path, settings: Settings, *, are_nodes: bool = False
    ) -> None:
        self.count = count
        self._are_nodes = are_nodes
        self._run_directory = run_directory
        self._settings = settings
        self._loop = uvloop.new_event_loop()  # as `serve` has it
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.brokers = self.run(self._start())

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(60)

    def call(self, what: Callable[[], T]) -> T:
        async def called() -> T:
            return what()

        return self.run(called())

    async def _start(self) -> list[Broker]:
        places = worker_places(self._run_directory, self.count, are_nodes=self._are_nodes)
        brokers = [Broker(self._settings, place=place) for place in places]
        await asyncio.gather(*[broker.start() for broker in brokers])
        return brokers

    @contextmanager
    def cut_off(self, number: int) -> Iterator[None]:
        """Let no other worker ask one meanwhile."""
        links = [broker._workers.link(number) for broker in self.brokers if broker._place.number != number]
        path = self._run_directory / f"worker-{number}.sock"
        away = path.rename(path.with_suffix(".away"))
        for link in links:
            self._loop.call_soon_threadsafe(link.transport.abort)
        until(lambda: not any(link.is_up for link in links))
        try:
            yield
        finally:
            away.rename(path)

    def port(self, number: int, listener: str = "mqtt") -> int:
        return self.brokers[number].ports[listener]

    def stop(self) -> None:
        async def all_stopped() -> None:
            await asyncio.gather(*[broker.stop() for broker in self.brokers])

        try:
            self.run(all_stopped())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def client_of(self, home: int, name: str = "c", vhost: str = "/") -> str:
        """Return the identifier of a client that belongs to a worker."""
        return next(
            client_id
            for client_id in (f"{name}-{number}" for number in range(1000))
            if crc32(f"{vhost}\x1d{client_id}".encode()) % self.count == home
        )

    def settled(self) -> None:
        """Wait until all workers know what the others have."""
        for broker in self.brokers:
            elsewhere = broker.hub.client.elsewhere
            assert elsewhere is not None
            until(lambda elsewhere=elsewhere: elsewhere.settled().is_done)  # type: ignore[misc]

    def until_alone(self, *clients: RawMqtt) -> None:
        """Wait until no other client is there, and all workers know."""
        until(lambda: sum(len(broker.hub.transports) for broker in self.brokers) == len(clients))
        self.settled()

    def until_gone(self, client_id: str) -> None:
        """Wait until no worker serves a client."""
        until(lambda: not any(self.has(number, client_id) for number in range(self.count)))

    def view(self, number: int, client_id: str) -> ConnectionView:
        """Return what a worker tells of a client that it serves."""
        views = [peer.describe() for peer in list(self.brokers[number].hub.transports)]
        return next(view for view in views if view.description.client_id == client_id)

    def has(self, number: int, client_id: str) -> bool:
        """Return whether a worker serves a client."""
        peers = [peer.describe() for peer in list(self.brokers[number].hub.transports)]
        return client_id in [peer.description.client_id for peer in peers]


def default_settings() -> Settings:
    return Settings(
        storage=StorageSettings(url="memory:"),
        listeners=ListenersSettings(mqtt=MqttListenerSettings(port=0), amqp=AmqpListenerSettings(port=0)),
    )


@contextmanager
def several_workers(
    count: int, settings: Settings | None = None, *, are_nodes: bool = False
) -> Iterator[SeveralWorkers]:
    with tempfile.TemporaryDirectory() as directory:
        workers = SeveralWorkers(count, Path(directory), settings or default_settings(), are_nodes=are_nodes)
        try:
            yield workers
        finally:
            workers.stop()


def settings_at(storage: Path) -> Settings:
    return default_settings().model_copy(update={"storage": StorageSettings(url=str(storage))})


def connected(
    port: int, client_id: str, version: int = V5, *, clean: bool = True, props: bytes = b""
) -> RawMqtt:
    """Connect a client, which may have a session already (`session_present`)."""
    client = RawMqtt(port, version=None)
    client.send_bytes(connect(version, client_id, flags=0x02 if clean else 0, props=props))
    client.connack = client.expect(CONNACK)
    assert client.connack.body[1] == 0, f"refused: {client.connack}"
    return client
