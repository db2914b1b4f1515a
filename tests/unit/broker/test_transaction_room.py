"""What transactions under way may hold in memory, all clients together."""

import asyncio
from typing import Any

from pamqp import commands

from broker.amqp.publishing.publish import Publisher
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


def commit_many(port: int) -> None:
    client = RawAmqp(port)
    client.open_channel(1)
    client.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    client.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    for number in range(10):  # each a read of its own
        client.send_bytes(publish(1, "q", b"%d" % number))
        client.call(1, commands.Basic.Qos(0, 1), commands.Basic.QosOk)
    client.send_bytes(publish(1, "q", b"last"))
    client.call(1, commands.Tx.Commit(), commands.Tx.CommitOk)
    client.drop()


async def test_alike_publishes_of_many_reads_are_committed_together_and_in_order(monkeypatch):
    monkeypatch.setattr(limits, "TRANSACTION_RUN_PUBLISHES", 4)
    judged = []
    judge = Publisher.judge

    def noting(publisher, runs):
        judged.append([run.bodies for run in runs])
        return judge(publisher, runs)

    monkeypatch.setattr(Publisher, "judge", noting)
    async with Broker(storage="memory:") as broker:
        await asyncio.to_thread(commit_many, broker.ports["amqp"])
        messages = (await broker.admin.browse("q")).messages
    ((first, second, third),) = judged
    bodies = [*(b"%d" % number for number in range(10)), b"last"]
    assert [first, second, third] == [bodies[:4], bodies[4:8], bodies[8:]]
    assert [message.body for message in messages] == bodies


def commit_different(port: int) -> None:
    client = RawAmqp(port)
    client.open_channel(1)
    client.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    client.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    for number in range(4):  # each a read of its own
        client.send_bytes(publish(1, "q", b"%d" % number, message_id=str(number)))
        client.call(1, commands.Basic.Qos(0, 1), commands.Basic.QosOk)
    client.send_bytes(b"".join(publish(1, "q", b"%d" % n, message_id=str(n)) for n in range(4, 9)))
    client.send_bytes(publish(1, "q", b"9", expiration="60000"))  # asks something: for itself
    client.send_bytes(publish(1, "nowhere", b"lost", message_id="10"))
    client.send_bytes(publish(1, "q", b"10", message_id="11"))
    client.call(1, commands.Tx.Commit(), commands.Tx.CommitOk)
    client.drop()


async def test_publishes_that_differ_are_judged_together_and_keep_order_and_properties(monkeypatch):
    judged: list[Any] = []
    judge = Publisher.judge

    def noting(publisher, runs):
        judged.extend(len(run.bodies) for run in runs)
        return judge(publisher, runs)

    monkeypatch.setattr(Publisher, "judge", noting)
    async with Broker(storage="memory:") as broker:
        await asyncio.to_thread(commit_different, broker.ports["amqp"])
        messages = (await broker.admin.browse("q")).messages
    assert judged == [9, 1, 1, 1]
    assert [message.body for message in messages] == [b"%d" % number for number in range(11)]


def exceed_count(port: int) -> None:
    client = RawAmqp(port)
    client.open_channel(1)
    client.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    client.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    client.send_bytes(publish(1, "q", b"x") * 3)
    client.call(1, commands.Tx.Commit(), commands.Tx.CommitOk)
    client.send_bytes(publish(1, "q", b"x") * 3)
    client.call(1, commands.Tx.Rollback(), commands.Tx.RollbackOk)
    client.send_bytes(publish(1, "q", b"x") * 4)
    assert client.expect(commands.Channel.Close).reply_code == 506
    client.drop()


async def test_a_transaction_of_too_many_operations_is_506_and_each_begins_anew(monkeypatch):
    monkeypatch.setattr(limits, "TRANSACTION_OPERATIONS_MAX", 3)
    async with Broker(storage="memory:") as broker:
        await asyncio.to_thread(exceed_count, broker.ports["amqp"])
        assert (await broker.admin.queue("q")).ready == 3
