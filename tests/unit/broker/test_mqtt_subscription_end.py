"""An MQTT client whose subscription ends on the broker's side is told so, rather than left to wait."""

import asyncio

import pytest

from broker.app import Broker
from config.queue_settings import QueueSettings
from tests.e2e.raw_mqtt import DISCONNECT, PUBLISH, SUBACK, V5, V311, RawMqtt, subscribe

KINDS = {
    "classic": QueueSettings(name="orders"),
    "ephemeral": QueueSettings(name="orders", type="ephemeral"),
    "priorities": QueueSettings(name="orders", max_priority=2),
    "stream": QueueSettings(name="orders", type="stream"),
}
ENDS = {
    "group": (
        lambda admin: admin.delete_group("orders", "device", force=True),
        b"the subscription '$queue/orders' ended: consumer group 'device' of queue 'orders' was deleted",
    ),
    "queue": (
        lambda admin: admin.delete("orders"),
        b"the subscription '$queue/orders' ended: queue 'orders' was deleted",
    ),
}


@pytest.fixture
async def broker():
    async with Broker(storage="memory:") as broker:
        yield broker


def subscribed(broker, version, *filters):
    client = RawMqtt(broker.ports["mqtt"], version=version, client_id="device")
    for topic_filter in filters:
        client.send_bytes(subscribe(topic_filter, 1, version=version))
        assert client.expect(SUBACK).body[-1] == 1
    return client


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [V5, V311])
async def test_a_subscriber_whose_queue_or_group_is_deleted_is_disconnected(broker, kind, end, version):
    act, reason = ENDS[end]
    await broker.admin.declare(KINDS[kind])
    await broker.admin.declare("others")
    filters = ("$queue/others", "$queue/orders", "plain/#")
    client = await asyncio.to_thread(subscribed, broker, version, *filters)
    await act(broker.admin)
    await broker.admin.publish("others", b"not for who is told to go")
    last = await asyncio.to_thread(client.read)
    if version == V5:
        assert last.kind == DISCONNECT
        assert last.body[0] == 0x98
        assert reason in last.body
        last = await asyncio.to_thread(client.read)
    assert last is None
    client.drop()
    assert (await broker.admin.group("others", "device")).consumers == 0
    again = await asyncio.to_thread(subscribed, broker, version, "$queue/orders")
    await broker.admin.publish("$queue/orders", b"tea")
    assert b"tea" in (await asyncio.to_thread(again.expect, PUBLISH)).body
    again.drop()
