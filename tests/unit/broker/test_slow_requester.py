"""A requester that does not read its direct replies costs a bounded amount of memory, and nobody else."""

import asyncio

import pytest
from pamqp import commands

from broker.app import Broker
from config import limits
from tests.e2e.raw_amqp import RawAmqp
from tests.unit.protocols.amqp091.driver import publish

REPLY_TO = "amq.rabbitmq.reply-to"
REPLY_BYTES = 100_000


@pytest.fixture
async def broker(monkeypatch):
    monkeypatch.setattr(limits, "SUBSCRIBER_BUFFER_BYTES_MAX", 2_000_000)
    async with Broker() as broker:
        yield broker


def requester(port: int) -> tuple[RawAmqp, str]:
    """A client that waits for replies, and the routing key they have."""
    client = RawAmqp(port)
    client.open_channel()
    client.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    client.call(1, commands.Basic.Consume(queue=REPLY_TO, no_ack=True), commands.Basic.ConsumeOk)
    client.send_bytes(publish(1, "q", b"?", reply_to=REPLY_TO))
    client.send(1, commands.Basic.Get(queue="q", no_ack=True))
    return client, client.read_content(commands.Basic.GetOk).properties.properties.reply_to


async def test_replies_that_nobody_reads_are_dropped(broker):
    slow, key = await asyncio.to_thread(requester, broker.ports["amqp"])
    quick, other_key = await asyncio.to_thread(requester, broker.ports["amqp"])
    responder = await asyncio.to_thread(RawAmqp, broker.ports["amqp"])
    await asyncio.to_thread(responder.open_channel, 1, confirm=True)
    for _ in range(200):
        responder.send_bytes(publish(1, key, bytes(REPLY_BYTES)))
        await asyncio.to_thread(responder.read_confirms, 1)
        if broker.hub.counters.dropped_slow_consumer:
            break
    assert broker.hub.counters.dropped_slow_consumer
    assert (
        max(transport.output.buffered_bytes() for transport in broker.hub.transports)
        < 2_000_000 + 2 * REPLY_BYTES
    )
    responder.send_bytes(publish(1, other_key, b"to the quick one"))
    reply = await asyncio.to_thread(quick.read_content, commands.Basic.Deliver)
    assert reply.body == b"to the quick one"
    for client in (slow, quick, responder):
        client.drop()
