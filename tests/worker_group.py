"""Several workers in one process and event loop, each with its own ports and its shard in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from broker.app import Broker
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
async def worker_group(run_directory: Path, count: int = 2) -> AsyncIterator[list[Broker]]:
    """Workers that serve, by their numbers."""
    brokers = [_worker(WorkerPlace(number, count, run_directory)) for number in range(count)]
    await asyncio.gather(*[broker.start() for broker in brokers])
    try:
        yield brokers
    finally:
        for broker in brokers:
            await broker.stop()


def _worker(place: WorkerPlace) -> Broker:
    listeners = ListenersSettings(mqtt=MqttListenerSettings(port=0), amqp=AmqpListenerSettings(port=0))
    settings = Settings(storage=StorageSettings(url="memory:"), listeners=listeners)
    return Broker(settings, place=place)


async def run_client(client: Callable[[], T]) -> T:
    """What a client that blocks comes to, which runs in a thread."""
    return await asyncio.wait_for(asyncio.to_thread(client), CLIENT_TIMEOUT_S)
