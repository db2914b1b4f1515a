"""broker.app: a broker in the test's own process, and what a declaration finds after a first use."""

import asyncio
import threading

import pika
import pytest

from broker.app import Broker


@pytest.fixture
async def broker():
    async with Broker(storage="memory:") as broker:
        yield broker


def in_thread(work):
    return asyncio.to_thread(work)


async def test_both_listeners_are_open_on_free_ports(broker):
    assert set(broker.ports) == {"mqtt", "amqp"}
    for port in broker.ports.values():
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()


async def test_nothing_is_left_after_it(broker):
    before = {thread.name for thread in threading.enumerate()}
    async with Broker(storage="memory:") as other:
        port = other.ports["amqp"]
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", port)
    assert not [name for name in {t.name for t in threading.enumerate()} - before if name.startswith("store")]


async def test_a_durable_declaration_takes_over_what_was_published_before(broker):
    def client():
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.ports["amqp"]))
        channel = connection.channel()
        for number in range(5):
            properties = pika.BasicProperties(headers={"n": number % 2})
            channel.basic_publish("", "$queue/orders/eu", str(number).encode(), properties)
        declared = channel.queue_declare("orders", durable=True).method.message_count
        bodies = [channel.basic_get("orders", auto_ack=True)[2] for _ in range(5)]
        connection.close()
        return declared, bodies

    assert await in_thread(client) == (5, [b"0", b"1", b"2", b"3", b"4"])
    assert broker.hub.shard.manager.queues["orders"].durable


async def test_a_queue_made_by_its_first_use_and_read_stays_what_it_is(broker):
    def client():
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.ports["amqp"]))
        channel = connection.channel()
        channel.basic_consume("$queue/orders", lambda *a: None)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refusal:
            channel.queue_declare("orders", durable=True)
        connection.close()
        return refusal.value.reply_code, refusal.value.reply_text

    code, text = await in_thread(client)
    assert code == 406
    assert "first use" in text
