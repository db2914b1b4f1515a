"""Tests that bring their own broker; they need aiomqtt, pika and pytest-asyncio. See docs/testing.md.

pytest -o asyncio_mode=auto --pyargs sluicemq.examples.test_with_broker
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiomqtt
import pika
import pytest

from sluicemq import Broker, QueueSettings


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    """A broker of this test's own, in memory, on free ports; nothing is left of it afterwards."""
    async with Broker(storage="memory:") as broker:
        yield broker


def confirm_orders(port: int, count: int) -> list[str]:
    """The worker under test: takes orders from a queue. It knows of no broker in process."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    taken: list[str] = []
    for method, _, body in channel.consume("orders", arguments={"x-consumer-group": "kitchen"}):
        if body == b"nonsense":
            channel.basic_reject(method.delivery_tag, requeue=False)
        else:
            taken.append(body.decode())
            channel.basic_ack(method.delivery_tag)
        if len(taken) == count:
            break
    connection.close()
    return taken


async def test_a_device_and_a_worker(broker: Broker) -> None:
    await broker.admin.declare("orders")
    async with aiomqtt.Client("127.0.0.1", broker.ports["mqtt"]) as device:
        for order in ("tea", "nonsense", "coffee"):
            await device.publish("$queue/orders/eu", order, qos=1)

    # blocking clients run in a thread: the broker needs the event loop
    taken = await asyncio.to_thread(confirm_orders, broker.ports["amqp"], 2)

    assert taken == ["tea", "coffee"]
    failed = await broker.admin.browse("orders", "kitchen", "failed")
    assert [message.body for message in failed.messages] == [b"nonsense"]


async def test_a_worker_that_finds_work_waiting(broker: Broker) -> None:
    await broker.admin.declare(QueueSettings(name="orders", max_priority=2))
    await broker.admin.publish("$queue/orders/eu", b"tea")
    await broker.admin.publish("$queue/orders/eu", b"urgent coffee", priority=2, headers={"table": 4})

    taken = await asyncio.to_thread(confirm_orders, broker.ports["amqp"], 2)

    assert taken == ["urgent coffee", "tea"]
    group = await broker.admin.group("orders", "kitchen")
    assert (group.lag, group.done) == (0, 2)
