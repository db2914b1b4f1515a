"""What a broker that has stopped, or whose store has failed, still answers: an error, and at once."""

import asyncio

import aio_pika
import aiomqtt
import pytest

from broker.app import Broker
from broker.engine.shard_ending import BrokerStopped, Ending, resolve
from storage.errors import StoreFenced
from tests.memory_store import MemoryStore
from tests.waiting import turns

CALLS = {
    "queues": lambda admin: admin.queues(),
    "queue": lambda admin: admin.queue("orders"),
    "declare": lambda admin: admin.declare("other"),
    "delete": lambda admin: admin.delete("orders"),
    "purge": lambda admin: admin.purge("orders"),
    "publish": lambda admin: admin.publish("orders", b"tea"),
    "browse": lambda admin: admin.browse("orders"),
    "move": lambda admin: admin.move("orders", "others"),
    "copy": lambda admin: admin.copy("orders", "others"),
    "redrive": lambda admin: admin.redrive("orders"),
    "groups": lambda admin: admin.groups("orders"),
    "create_group": lambda admin: admin.create_group("orders", "g"),
    "reset_group": lambda admin: admin.reset_group("orders", ""),
    "delete_group": lambda admin: admin.delete_group("orders", ""),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_call_after_the_end_is_refused(call):
    async with Broker(storage="memory:") as broker:
        await broker.admin.declare("orders")
        await broker.admin.publish("orders", b"tea")
        admin = broker.admin
    for late in (admin, broker.admin):
        with pytest.raises(BrokerStopped, match="the broker has stopped"):
            await asyncio.wait_for(call(late), 2)


async def test_a_move_that_still_runs_ends_with_the_broker():
    async with Broker(storage="memory:") as broker:
        await broker.admin.declare("orders")
        await broker.admin.declare("others")
        for _ in range(20):
            await broker.admin.publish("orders", b"tea")
        move = asyncio.create_task(broker.admin.move("orders", "others", per_second=0.1))
        await turns(20)
        assert not move.done()
    with pytest.raises(BrokerStopped):
        await asyncio.wait_for(move, 2)


async def test_who_waits_for_a_commit_learns_that_the_store_failed():
    store = MemoryStore()
    broker = Broker(storage="memory:")
    await broker.start(store)
    await broker.admin.declare("orders")
    cause = StoreFenced("somebody else has it")
    store.fail_next_write(cause)
    with pytest.raises(BrokerStopped, match="store failed: somebody else has it") as refusal:
        await asyncio.wait_for(broker.admin.publish("orders", b"tea"), 2)
    assert refusal.value.__cause__ is cause
    with pytest.raises(BrokerStopped):
        await broker.admin.queues()
    await broker.stop()


async def test_an_end_is_for_all_who_wait_and_is_the_first_one():
    ending = Ending()
    early, in_time = ending.future(), ending.future()
    resolve(in_time)
    cause = StoreFenced("mine now")
    ending.end(cause)
    ending.end()
    await in_time
    with pytest.raises(BrokerStopped, match="mine now") as refusal:
        await early
    assert refusal.value.__cause__ is cause
    with pytest.raises(BrokerStopped, match="mine now"):
        ending.future()


async def test_clients_of_a_failed_broker_are_sent_away_and_nobody_is_let_in(tmp_path):
    first = Broker(storage=str(tmp_path))
    await first.start()
    await first.admin.declare("orders")
    lost = asyncio.Event()
    connection = await aio_pika.connect(port=first.ports["amqp"])
    reasons = []

    def on_close(sender, error):
        reasons.append(error)
        lost.set()

    connection.close_callbacks.add(on_close)
    async with aiomqtt.Client("127.0.0.1", first.ports["mqtt"], protocol=aiomqtt.ProtocolVersion.V5) as mqtt:
        heir = Broker(storage=str(tmp_path))
        await heir.start(take_over=True)
        with pytest.raises(BrokerStopped):
            await asyncio.wait_for(first.admin.publish("orders", b"tea"), 5)
        await asyncio.wait_for(lost.wait(), 5)
        with pytest.raises(aiomqtt.MqttError, match="Disconnected"):
            await asyncio.wait_for(anext(aiter(mqtt.messages)), 5)
        assert first.failed.is_set()
        assert "INTERNAL_ERROR - the broker's store failed" in str(reasons[0])
        for port in first.ports.values():
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", port)
        await first.stop()
        await heir.stop()
