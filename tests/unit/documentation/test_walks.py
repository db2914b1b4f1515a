"""The way of a message through the broker: how many functions and files a reader meets on it.

`pytest -s` prints the walks, in order. A bound is lowered when a walk gets shorter; one that would have to be
raised is a reason to look for a call that only passes on.
"""

import asyncio

import httpx
import pytest
from pamqp import commands

from broker.app import Broker
from config.settings import (
    AmqpListenerSettings,
    HttpListenerSettings,
    ListenersSettings,
    MqttListenerSettings,
    Settings,
    StorageSettings,
)
from tests.e2e.raw_amqp import RawAmqp
from tests.unit.documentation.walks import Walk, walk_from

READ = "Transport.data_received"
DISPATCH = "Consumption.dispatch"
WRITE_CLAIMS = "Cursor.write"
COMMIT = "CommitLoop._seal"
HTTP = "Guard.__call__"

BOUNDS = {"publish": (40, 24), "commit": (29, 16), "delivery": (46, 22), "ack": (39, 19), "purge": (125, 50)}
"""Functions and files of each walk, at most."""


def connect(port: int) -> RawAmqp:
    """Open a connection with a channel that confirms."""
    client = RawAmqp(port)
    client.open_channel(confirm=True)
    return client


def publish(client: RawAmqp) -> None:
    client.publish(1, "orders", b"tea")
    client.read_confirms(1)


def consume(client: RawAmqp) -> None:
    client.send(1, commands.Basic.Qos(prefetch_count=10))
    client.expect(commands.Basic.QosOk)
    client.send(1, commands.Basic.Consume(queue="orders"))
    client.expect(commands.Basic.ConsumeOk)


def take(client: RawAmqp) -> int:
    return client.read_content(commands.Basic.Deliver).method.delivery_tag


def purge(port: int) -> int:
    answer = httpx.post(f"http://127.0.0.1:{port}/api/v1/queues/orders/purge", auth=("guest", "guest"))
    return answer.json()["count"]


@pytest.fixture
async def broker(tmp_path):
    listeners = ListenersSettings(
        mqtt=MqttListenerSettings(port=0),
        amqp=AmqpListenerSettings(port=0),
        http=HttpListenerSettings(port=0),
    )
    async with Broker(Settings(storage=StorageSettings(url=str(tmp_path)), listeners=listeners)) as broker:
        await broker.admin.declare("orders")
        yield broker


async def walks_of(broker: Broker) -> dict[str, Walk]:
    """Walk through a publish, a commit, a delivery, its ack, and a purge.

    Plans and templates were made before, and what was claimed before is written.
    """
    in_thread = asyncio.to_thread
    publisher = await in_thread(connect, broker.ports["amqp"])
    consumer = await in_thread(connect, broker.ports["amqp"])
    walks = {}
    await in_thread(publish, publisher)
    with walk_from(READ) as walks["publish"]:
        await in_thread(publish, publisher)
    with walk_from(COMMIT) as walks["commit"]:
        await in_thread(publish, publisher)
    await broker.admin.purge("orders")
    await in_thread(consume, consumer)
    with walk_from(WRITE_CLAIMS) as written:
        await in_thread(publish, publisher)
        await in_thread(take, consumer)
        await written.end()
    with walk_from(DISPATCH) as walks["delivery"]:
        await in_thread(publish, publisher)
        delivery_tag = await in_thread(take, consumer)
    with walk_from(READ) as walks["ack"]:
        consumer.send(1, commands.Basic.Ack(delivery_tag))
        await walks["ack"].end()
    await in_thread(consumer.drop)
    await in_thread(publish, publisher)
    with walk_from(HTTP) as walks["purge"]:
        assert await in_thread(purge, broker.ports["http"]) >= 1
        await walks["purge"].end()
    await in_thread(publisher.drop)
    return walks


async def test_walks_of_a_message_stay_short(broker):
    walks = await walks_of(broker)
    for name, walk in walks.items():
        print(f"\n{name}: {walk}")
    lengths = {name: (len(walk.steps), len(walk.files)) for name, walk in walks.items()}
    too_long = {}
    for name, (functions, files) in lengths.items():
        functions_max, files_max = BOUNDS[name]
        if functions > functions_max or files > files_max:
            too_long[name] = (functions, files)
    assert too_long == {}
