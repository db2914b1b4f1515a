"""Publishers who outrun the store: told by connection.blocked, and when that is over."""

import asyncio

import pytest
from pamqp import commands

from broker.app import Broker
from config import limits
from tests.e2e.raw_amqp import RawAmqp
from tests.memory_store import MemoryStore
from tests.unit.protocols.amqp091.driver import publish

KIB = 1 << 10


@pytest.fixture
async def broker(monkeypatch):
    monkeypatch.setattr(limits, "UNCOMMITTED_BYTES_MAX", 10 * KIB)
    monkeypatch.setattr(limits, "BLOCKED_NOTICE_MS", 100)
    monkeypatch.setattr(limits, "DEADLINE_CHECK_INTERVAL_MS", 20)
    store = MemoryStore(deferred=True)
    store.catch_up()
    broker = Broker()
    await broker.start(store)
    yield broker, store
    store.catch_up()
    await broker.stop()


def begin(port: int) -> RawAmqp:
    client = RawAmqp(port)
    client.open_channel(1, confirm=True)
    client.call(1, commands.Queue.Declare(queue="q", durable=True), commands.Queue.DeclareOk)
    return client


async def test_publisher_who_outruns_the_store_is_told_and_goes_on_when_it_caught_up(broker):
    broker, store = broker
    client = await asyncio.to_thread(begin, broker.ports["amqp"])
    other = await asyncio.to_thread(begin, broker.ports["amqp"])
    store.is_stuck = True
    message = publish(1, "q", bytes(4_000), delivery_mode=2)
    client.send_bytes(message * 4)
    blocked = await asyncio.to_thread(client.expect, commands.Connection.Blocked)
    assert blocked.reason == "the store does not keep up"
    client.send_bytes(message)  # waits in the socket
    store.catch_up()
    await asyncio.to_thread(client.expect, commands.Basic.Ack)
    await asyncio.to_thread(client.expect, commands.Connection.Unblocked)
    await asyncio.to_thread(client.expect, commands.Basic.Ack)
    # who publishes nothing is told nothing before the next answer
    await asyncio.to_thread(other.call, 1, commands.Channel.Flow(True), commands.Channel.FlowOk)
    client.drop()
    other.drop()


async def test_publisher_who_leaves_while_held_back_is_no_trouble(broker):
    broker, store = broker
    client = await asyncio.to_thread(begin, broker.ports["amqp"])
    store.is_stuck = True
    client.send_bytes(publish(1, "q", bytes(4_000), delivery_mode=2) * 4)
    await asyncio.to_thread(client.expect, commands.Connection.Blocked)
    client.drop()
    store.catch_up()
    again = await asyncio.to_thread(begin, broker.ports["amqp"])
    passive = commands.Queue.Declare(queue="q", passive=True)
    told = await asyncio.to_thread(again.call, 1, passive, commands.Queue.DeclareOk)
    assert told.message_count == 4
    again.drop()
