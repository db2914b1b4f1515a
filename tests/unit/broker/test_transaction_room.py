"""What transactions under way may hold in memory, all clients together."""

import asyncio

from pamqp import commands

from broker.app import Broker
from config import limits
from tests.e2e.raw_amqp import RawAmqp
from tests.unit.protocols.amqp091.driver import publish


def begin(client: RawAmqp, channel: int) -> None:
    """A transaction with 600 bytes in it."""
    client.open_channel(channel)
    client.call(channel, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    client.call(channel, commands.Tx.Select(), commands.Tx.SelectOk)
    client.send_bytes(publish(channel, "q", b"x" * 600))


def exceed(port: int) -> None:
    client = RawAmqp(port)
    begin(client, 1)
    begin(client, 2)
    assert client.expect(commands.Channel.Close).reply_code == 506
    client.call(1, commands.Tx.Rollback(), commands.Tx.RollbackOk)
    begin(client, 3)
    client.call(3, commands.Tx.Commit(), commands.Tx.CommitOk)
    client.drop()


async def test_transaction_beyond_the_room_for_all_is_506_and_the_end_of_another_gives_room(monkeypatch):
    monkeypatch.setattr(limits, "TRANSACTION_BYTES_MAX", 1_000)
    async with Broker(storage="memory:") as broker:
        await asyncio.to_thread(exceed, broker.ports["amqp"])
