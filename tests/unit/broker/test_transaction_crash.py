"""A crash between any two writes of the store leaves a transaction whole, or undone."""

import asyncio
from contextlib import suppress

import pytest
from pamqp import commands

from broker.app import Broker
from config import limits
from storage.errors import StorageError
from tests.e2e.raw_amqp import RawAmqp, method_frame
from tests.memory_store import MemoryStore
from tests.unit.protocols.amqp091.driver import publish
from tests.waiting import turns, until_so

MESSAGES = 3
WRITES_MAX = 3
TURNS = 50  # of the loop: far more than the next commit takes to be written


def transfer(port: int) -> RawAmqp:
    """All but the commit of a transaction that moves messages from queue `in` to queue `out`."""
    client = RawAmqp(port)
    client.open_channel(1, confirm=True)
    for queue in ("in", "out"):
        client.call(1, commands.Queue.Declare(queue=queue, durable=True), commands.Queue.DeclareOk)
    client.send_bytes(publish(1, "in", b"m", delivery_mode=2) * MESSAGES)
    client.read_confirms(MESSAGES)
    client.open_channel(2)
    client.call(2, commands.Tx.Select(), commands.Tx.SelectOk)
    for tag in range(1, MESSAGES + 1):
        client.send(2, commands.Basic.Get(queue="in"))
        client.read_content(commands.Basic.GetOk)
        client.send_bytes(publish(2, "out", b"m", delivery_mode=2))
        client.send(2, commands.Basic.Ack(tag))
    client.call(2, commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
    return client


async def count(broker: Broker, queue: str) -> int:
    return (await broker.admin.queue(queue)).ready


def is_committed(client: RawAmqp) -> bool:
    """Whether the commit was answered, as what the loop has written has come already."""
    try:
        client.expect(commands.Tx.CommitOk, timeout_s=0.01)
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("writes", range(WRITES_MAX + 1))
async def test_crash_finds_all_of_a_transaction_or_nothing(writes, monkeypatch):
    monkeypatch.setattr(limits, "STATE_FLUSH_INTERVAL_MS", 60_000)  # acknowledgements alone would wait
    store = MemoryStore(deferred=True)
    store.catch_up()
    broker = Broker()
    await broker.start(store)
    client = await asyncio.to_thread(transfer, broker.ports["amqp"])
    await broker.hub.client.commits.durable()  # what was claimed
    store.is_stuck = True
    client.send_bytes(method_frame(2, commands.Tx.Commit()))
    await until_so(lambda: store.pending_writes)
    for _ in range(writes):
        await turns(TURNS)
        store.make_durable(1)
    await turns(TURNS)
    told = is_committed(client)
    crashed = store.crash()
    crashed.catch_up()
    client.drop()
    with suppress(StorageError):
        await broker.stop()
    broker = Broker()
    await broker.start(crashed)
    left, moved = await count(broker, "in"), await count(broker, "out")
    await broker.stop()
    assert (left, moved) in ((MESSAGES, 0), (0, MESSAGES))
    assert moved or not told
    if writes == WRITES_MAX:
        assert told
