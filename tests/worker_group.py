"""Several workers in one process and event loop, each with its own ports and its shard in memory."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from broker.app import Broker
from broker.workers.node_side import Epoch, NodeDeadline, NodeSide, Peers
from broker.workers.worker_place import WorkerPlace
from config.settings import (
    AmqpListenerSettings,
    ListenersSettings,
    MqttListenerSettings,
    Settings,
    StorageSettings,
)

T = TypeVar("T")
CLIENT_TIMEOUT_S = 30.0


@asynccontextmanager
async def worker_group(
    run_directory: Path, count: int = 2, *, are_nodes: bool = False
) -> AsyncIterator[list[Broker]]:
    """Workers that serve, by their numbers; each at a node of its own if they `are_nodes`."""
    brokers = [_worker(place) for place in worker_places(run_directory, count, are_nodes=are_nodes)]
    await asyncio.gather(*[broker.start() for broker in brokers])
    try:
        yield brokers
    finally:
        for broker in brokers:
            await broker.stop()


def worker_places(run_directory: Path, count: int, *, are_nodes: bool = False) -> list[WorkerPlace]:
    """The places of the workers of one broker, or of as many nodes with one worker each."""
    if not are_nodes:
        return [WorkerPlace(number, count, run_directory) for number in range(count)]
    places = []
    for number, side in enumerate(node_sides(count)):
        own = run_directory / str(number)
        own.mkdir()
        places.append(WorkerPlace(number, count, own, node=side))
    return places


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def node_sides(count: int) -> list[NodeSide]:
    """As many nodes, each with the shard of its number."""
    ports = [free_port() for _ in range(count)]
    sides = []
    for number, port in enumerate(ports):
        peers = Peers()
        peers.take({other: ("127.0.0.1", ports[other]) for other in range(count) if other != number})
        deadline = NodeDeadline()
        deadline.set(math.inf)
        sides.append(NodeSide(f"n{number}", "127.0.0.1", port - number, Epoch(1), b"secret", deadline, peers))
    return sides


def _worker(place: WorkerPlace) -> Broker:
    listeners = ListenersSettings(mqtt=MqttListenerSettings(port=0), amqp=AmqpListenerSettings(port=0))
    settings = Settings(storage=StorageSettings(url="memory:"), listeners=listeners)
    return Broker(settings, place=place)


async def run_client(client: Callable[[], T]) -> T:
    """What a client that blocks comes to, which runs in a thread."""
    return await asyncio.wait_for(asyncio.to_thread(client), CLIENT_TIMEOUT_S)
