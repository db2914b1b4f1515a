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
from tests.waiting import hold_up_task, until_so

MESSAGES = 3
WRITES_MAX = 3


class Disk:
    """Makes what a store was given durable at once, until it is stopped."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self._working = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while True:
            self.store.make_durable()
            await hold_up_task(0.002)

    async def stop(self) -> None:
        self._working.cancel()
        with suppress(asyncio.CancelledError):
            await self._working

    async def write_one(self) -> None:
        """Make the next write durable, if there is one within a moment."""
        for _ in range(20):
            await hold_up_task(0.005)
            if self.store.pending_writes:
                self.store.make_durable(1)
                break


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
    try:
        client.expect(commands.Tx.CommitOk, timeout_s=0.05)
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("writes", range(WRITES_MAX + 1))
async def test_crash_finds_all_of_a_transaction_or_nothing(writes, monkeypatch):
    monkeypatch.setattr(limits, "STATE_FLUSH_INTERVAL_MS", 60_000)  # acknowledgements alone would wait
    disk = Disk(MemoryStore(deferred=True))
    broker = Broker()
    await broker.start(disk.store)
    client = await asyncio.to_thread(transfer, broker.ports["amqp"])
    await broker.hub.client.commits.durable()  # what was claimed
    await disk.stop()
    client.send_bytes(method_frame(2, commands.Tx.Commit()))
    await until_so(lambda: disk.store.pending_writes)
    for _ in range(writes):
        await disk.write_one()
    told = await asyncio.to_thread(is_committed, client)
    crashed = disk.store.crash()
    client.drop()
    with suppress(StorageError):
        await broker.stop()
    disk = Disk(crashed)
    broker = Broker()
    await broker.start(crashed)
    left, moved = await count(broker, "in"), await count(broker, "out")
    await broker.stop()
    await disk.stop()
    assert (left, moved) in ((MESSAGES, 0), (0, MESSAGES))
    assert moved or not told
    if writes == WRITES_MAX:
        assert told
