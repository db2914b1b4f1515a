"""A broker that is one of several workers: what it takes of the settings, and that ports are shared."""

import asyncio
import socket
from pathlib import Path

import pytest

from broker.app import Broker
from broker.workers.worker_place import WorkerPlace
from broker.workers.worker_settings import settings_of
from config.bridge_settings import BridgeSettings, BridgeTopicSettings
from config.mqtt_settings import MqttSettings
from config.queue_settings import QueueSettings
from config.settings import (
    AmqpListenerSettings,
    HttpListenerSettings,
    ListenersSettings,
    MqcoreListenerSettings,
    MqttListenerSettings,
    Settings,
    StorageSettings,
    VhostSettings,
)
from storage.shards import shard_url

ORDERS = (QueueSettings(name="orders"),)
BRIDGE = BridgeSettings(name="b", address="there:1883", in_topics=(BridgeTopicSettings(topic="#"),))
SETTINGS = Settings(
    storage=StorageSettings(url="./here/", journal_directory="journal"),
    listeners=ListenersSettings(
        mqtt=MqttListenerSettings(), http=HttpListenerSettings(), mqcore=MqcoreListenerSettings()
    ),
    mqtt=MqttSettings(bridges=(BRIDGE,)),
    queues=ORDERS,
    vhosts=(VhostSettings(name="v", queues=ORDERS),),
)


def of_worker(number: int) -> Settings:
    return settings_of(WorkerPlace(number, 3, Path("/nowhere")), SETTINGS)


def test_first_worker_has_all_that_one_alone_has() -> None:
    assert of_worker(0) == SETTINGS


def test_other_worker_has_a_storage_of_its_own_and_nothing_that_there_is_once() -> None:
    settings = of_worker(2)
    assert settings.storage.url == "./here/shard-2"
    assert settings.storage.journal_directory == "journal/shard-2"
    assert list(settings.listeners.opened()) == ["mqtt"]
    assert (settings.mqtt.bridges, settings.queues, settings.vhosts[0].queues) == ((), (), ())


@pytest.mark.parametrize(
    ("url", "shard"),
    [
        ("data", "data/shard-1"),
        ("s3://bucket", "s3://bucket/shard-1"),
        ("s3://bucket/a/b", "s3://bucket/a/b/shard-1"),
        ("memory:", "memory:"),
    ],
)
def test_shards_lie_within_the_first_ones_storage(url: str, shard: str) -> None:
    assert shard_url(url, 0) == url
    assert shard_url(url, 1) == shard


async def test_workers_share_a_port_and_a_directory(tmp_path: Path) -> None:
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        settings = Settings(
            storage=StorageSettings(url=str(tmp_path / "data")),
            listeners=ListenersSettings(amqp=AmqpListenerSettings(port=port)),
        )
        both = [Broker(settings, place=WorkerPlace(number, 2, tmp_path)) for number in range(2)]
        await asyncio.gather(*(worker.start() for worker in both))  # each waits for the other
        assert [worker.ports for worker in both] == [{"amqp": port}] * 2
        assert (tmp_path / "data" / "shard-1" / "lock").exists()
        await asyncio.gather(*(worker.stop() for worker in both))


async def test_unix_socket_that_was_lent_stays_when_a_worker_ends(tmp_path: Path) -> None:
    path = tmp_path / "clients"
    with socket.socket(socket.AF_UNIX) as lent:
        lent.setblocking(False)
        lent.bind(str(path))
        settings = Settings(
            storage=StorageSettings(url="memory:"),
            listeners=ListenersSettings(amqp=AmqpListenerSettings(port=0, unix_socket=str(path))),
        )
        async with Broker(settings, place=WorkerPlace(0, 1, tmp_path, {"amqp": lent})):
            pass
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))  # waits for who accepts next
