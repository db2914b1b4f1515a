"""broker.app: a broker in the test's own process, and what a declaration finds after a first use."""

import asyncio
import json
import os
import threading

import pika
import pytest
from structlog.testing import capture_logs

from broker.app import Broker
from config.settings import (
    HttpListenerSettings,
    ListenersSettings,
    MqttListenerSettings,
    Settings,
    StorageSettings,
)
from queue_manager.policy import QueuePolicy
from storage.batch import WriteOps
from storage.errors import FormatTooNew, StorageError, StoreInUse
from storage.records import QueueSpec, queue_spec
from tests.memory_store import MemoryStore


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
    assert broker.hub.client.shard.manager.queues.find("orders").durable


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


async def test_a_broker_that_runs_is_not_started_again(broker):
    ports = dict(broker.ports)
    with pytest.raises(RuntimeError, match="started already"):
        await broker.start()
    assert broker.ports == ports
    await asyncio.wait_for(broker.admin.declare("orders"), 2)


async def test_a_stopped_broker_starts_again_with_what_it_kept(tmp_path):
    broker = Broker(storage=str(tmp_path))
    for round_ in range(3):
        async with broker:
            await broker.admin.publish((await broker.admin.declare("orders")).name, b"tea")
            assert (await broker.admin.queue("orders")).ready == round_ + 1
            for port in broker.ports.values():
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
        await broker.stop()  # once more does nothing


async def test_a_broker_that_failed_to_start_or_failed_starts_again(tmp_path):
    broker = Broker(storage=str(tmp_path))
    with pytest.raises(StorageError):
        await broker.start(closed_store())
    await broker.start()
    heir = Broker(storage=str(tmp_path))
    await heir.start(take_over=True)
    with pytest.raises(StorageError):
        await broker.admin.declare("orders")
    assert broker.failed.is_set()
    await broker.stop()
    await heir.stop()
    async with broker:
        assert not broker.failed.is_set()
        assert broker.failure is None
        await broker.admin.declare("orders")


async def test_second_broker_on_a_directory_is_refused_until_the_first_stops(tmp_path):
    second = Broker(storage=str(tmp_path))
    async with Broker(storage=str(tmp_path)) as first:
        with pytest.raises(StoreInUse, match=f"in use by process {os.getpid()} since"):
            await second.start()
        await first.admin.declare("orders")
    async with second:
        assert [view.name for view in await second.admin.queues()] == ["orders"]


def closed_store():
    store = MemoryStore()
    store.crash()
    return store


async def test_nothing_can_be_asked_of_a_broker_before_its_start():
    broker = Broker()
    with pytest.raises(RuntimeError, match="has not been started"):
        _ = broker.admin
    await broker.stop()


@pytest.mark.parametrize("storage", ["", " ", "memory:x", "s3://"])
def test_what_is_no_storage_is_refused(storage):
    with pytest.raises(ValueError, match="StorageSettings"):
        Broker(storage=storage)


async def test_queue_of_a_newer_release_ends_the_start_and_is_told_as_such():
    store = MemoryStore()
    policy = QueuePolicy(visibility_timeout_ms=1_000, message_bytes_max=100)
    fields = {**policy.fields(), "log": "jobs", "arguments": None, "default_group": False, "colour": "red"}
    ops = WriteOps()
    ops.put(
        queue_spec.key("jobs"),
        queue_spec.encode(QueueSpec(extensions={"policy": json.dumps(fields).encode()})),
    )
    await store.write(ops)
    with pytest.raises(FormatTooNew, match="policy has colour .written by a newer release"):
        await Broker().start(store)


async def test_http_that_cannot_be_put_together_is_told_and_refused_while_others_are_served(monkeypatch):
    is_connected = threading.Event()

    def fail(*arguments):
        is_connected.wait(10)
        raise OSError("no templates")

    monkeypatch.setattr("broker.http.application.http_servers", fail)
    listeners = ListenersSettings(mqtt=MqttListenerSettings(port=0), http=HttpListenerSettings(port=0))
    settings = Settings(storage=StorageSettings(url="memory:"), listeners=listeners)
    with capture_logs() as logged:
        async with Broker(settings) as broker:
            reader, _ = await asyncio.open_connection("127.0.0.1", broker.ports["http"])
            is_connected.set()
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(), 5)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", broker.ports["http"])
            _, writer = await asyncio.open_connection("127.0.0.1", broker.ports["mqtt"])
            writer.close()
    assert "http.not_started" in [line["event"] for line in logged]
