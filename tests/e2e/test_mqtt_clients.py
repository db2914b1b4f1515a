"""The same broker through other people's MQTT clients: aiomqtt and amqtt's."""

import asyncio

import aiomqtt
import pytest
from amqtt.client import MQTTClient

CONFIG = {"auto_reconnect": False, "keep_alive": 30, "connection_timeout": 5}


async def take(client: aiomqtt.Client, count: int) -> list[aiomqtt.Message]:
    messages = []
    async with asyncio.timeout(5):
        async for message in client.messages:
            messages.append(message)
            if len(messages) == count:
                break
    return messages


@pytest.mark.parametrize("version", [aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5])
async def test_aiomqtt_publishes_and_receives_at_each_quality(broker, name, version):
    async with aiomqtt.Client("127.0.0.1", broker.mqtt_port, protocol=version) as client:
        await client.subscribe(f"{name}/#", qos=2)
        for qos in (0, 1, 2):
            await client.publish(f"{name}/{qos}", f"qos {qos}", qos=qos, timeout=5)
        messages = await take(client, 3)
    assert [(str(message.topic), message.payload, message.qos) for message in messages] == [
        (f"{name}/{qos}", f"qos {qos}".encode(), qos) for qos in (0, 1, 2)
    ]


async def test_aiomqtt_receives_a_retained_message(broker, name):
    async with aiomqtt.Client("127.0.0.1", broker.mqtt_port) as client:
        await client.publish(name, "state", qos=1, retain=True)
        await client.subscribe(name, qos=1)
        (message,) = await take(client, 1)
        assert (message.payload, message.retain) == (b"state", True)


@pytest.mark.extension
async def test_aiomqtt_publishes_into_a_queue(broker, channel, queue):
    async with aiomqtt.Client("127.0.0.1", broker.mqtt_port, protocol=aiomqtt.ProtocolVersion.V5) as client:
        await asyncio.gather(
            *(client.publish(f"$queue/{queue}/k", str(n), qos=1, timeout=5) for n in range(50))
        )
    bodies = [channel.basic_get(queue, auto_ack=True)[2].decode() for _ in range(50)]
    assert sorted(bodies, key=int) == [str(number) for number in range(50)]


async def connected(broker, name: str) -> MQTTClient:
    client = MQTTClient(client_id=name, config=CONFIG)
    await client.connect(f"mqtt://127.0.0.1:{broker.mqtt_port}/")
    return client


async def test_amqtt_client_publishes_and_receives_at_each_quality(broker, name):
    subscriber, publisher = await connected(broker, f"{name}s"), await connected(broker, f"{name}p")
    assert await subscriber.subscribe([(f"{name}/+", 2)]) == [2]
    for qos in (0, 1, 2):
        await publisher.publish(f"{name}/{qos}", b"qos %d" % qos, qos=qos)
    received = [await subscriber.deliver_message(timeout_duration=5) for _ in range(3)]
    assert [(message.topic, bytes(message.data), message.qos) for message in received] == [
        (f"{name}/{qos}", b"qos %d" % qos, qos) for qos in (0, 1, 2)
    ]
    await subscriber.disconnect()
    await publisher.disconnect()


@pytest.mark.extension
async def test_amqtt_client_consumes_from_a_queue(broker, channel, queue, name):
    """3.1.1: its PUBACK settles."""
    client = await connected(broker, name)
    assert await client.subscribe([(f"$queue/{queue}/#", 1)]) == [1]
    for number in range(10):
        await client.publish(f"$queue/{queue}/jobs", b"%d" % number, qos=1)
    received = [await client.deliver_message(timeout_duration=5) for _ in range(10)]
    assert [bytes(message.data) for message in received] == [b"%d" % number for number in range(10)]
    await client.disconnect()
