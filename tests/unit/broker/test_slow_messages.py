"""A message that does not get finished while others wait for its room, over both protocols."""

import asyncio

import aiomqtt
import pytest
from pamqp import commands
from structlog.testing import capture_logs

from broker.app import Broker
from config import limits
from tests.e2e import raw_mqtt as wire
from tests.e2e.raw_amqp import BODY as BODY_FRAME
from tests.e2e.raw_amqp import HEADER, RawAmqp, content_header, frame
from tests.e2e.raw_mqtt import RawMqtt
from tests.waiting import until_so

BODY = bytes(800_000)  # more than is read at once


@pytest.fixture(autouse=True)
def tight(monkeypatch):
    monkeypatch.setattr(limits, "UNFINISHED_BYTES_MAX", 1_000_000)
    monkeypatch.setattr(limits, "UNFINISHED_BYTES_FREE", 1_000)
    monkeypatch.setattr(limits, "UNFINISHED_TIMEOUT_S", 0.3)
    monkeypatch.setattr(limits, "DEADLINE_CHECK_INTERVAL_MS", 50)
    monkeypatch.setattr(limits, "AMQP_FRAME_BYTES_MAX", 8_192)


async def publish(port: int) -> None:
    async with aiomqtt.Client("127.0.0.1", port) as client:
        await client.publish("plain", BODY, qos=1)


async def test_slow_mqtt_message_ends_its_connection_for_who_waits():
    async with Broker() as broker:
        slow = await asyncio.to_thread(RawMqtt, broker.ports["mqtt"])
        slow.send_bytes(wire.publish("plain", BODY, qos=1)[:-1])
        await until_so(lambda: broker.hub.bodies._granted)  # it has begun to come
        with capture_logs() as logged:
            await asyncio.wait_for(publish(broker.ports["mqtt"]), 5)
        assert await asyncio.to_thread(slow.farewell) == 0x97
        assert [line["event"] for line in logged] == ["mqtt.disconnected"]
        slow.drop()


async def test_slow_mqtt_message_is_waited_for_while_nobody_else_needs_its_room():
    async with Broker() as broker:
        slow = await asyncio.to_thread(RawMqtt, broker.ports["mqtt"])
        message = wire.publish("plain", BODY, qos=1)
        slow.send_bytes(message[:-1])
        await until_so(lambda: broker.hub.bodies._granted)
        later = broker.clock.monotonic() + 2 * limits.UNFINISHED_TIMEOUT_S
        await broker.hub.check_deadlines(later)
        assert broker.hub.bodies.overdue(later) is None
        slow.send_bytes(message[-1:])
        assert (await asyncio.to_thread(slow.expect, wire.PUBACK)).body[:2] == b"\x00\x01"
        slow.drop()


LARGE_CONNECT = wire.connect(props=(b"\x26" + wire.string("k") + wire.string("v" * 60_000)) * 2)


def half_connects(port: int, count: int) -> list[RawMqtt]:
    """Strangers who have said all but the last byte of a large CONNECT."""
    strangers = [RawMqtt(port, version=None) for _ in range(count)]
    for stranger in strangers:
        stranger.send_bytes(LARGE_CONNECT[:-1])
    return strangers


async def test_messages_do_not_wait_for_what_strangers_have_not_finished(monkeypatch):
    monkeypatch.setattr(limits, "UNFINISHED_OF_STRANGERS_BYTES_MAX", 200_000)
    async with Broker() as broker:
        port = broker.ports["mqtt"]
        strangers = await asyncio.to_thread(half_connects, port, 12)
        assert len(LARGE_CONNECT) * len(strangers) > limits.UNFINISHED_BYTES_MAX
        room = broker.hub.bodies_of_strangers
        await until_so(lambda: len(room._granted) + len(room._waiting) == len(strangers))
        with capture_logs() as logged:
            await asyncio.wait_for(publish(port), 0.9 * limits.MQTT_HANDSHAKE_TIMEOUT_S)
        assert not logged
        for stranger in strangers:
            stranger.drop()


async def test_strangers_who_wait_for_room_have_no_more_time_than_others(monkeypatch):
    monkeypatch.setattr(limits, "UNFINISHED_OF_STRANGERS_BYTES_MAX", 200_000)
    monkeypatch.setattr(limits, "MQTT_HANDSHAKE_TIMEOUT_S", 0.5)
    async with Broker() as broker:
        strangers = await asyncio.to_thread(half_connects, broker.ports["mqtt"], 4)
        for stranger in strangers:
            await asyncio.to_thread(stranger.farewell)  # which fails where it stays
            stranger.drop()


async def test_a_client_with_a_large_connect_is_let_in_and_leaves_its_room(monkeypatch):
    monkeypatch.setattr(limits, "UNFINISHED_OF_STRANGERS_BYTES_MAX", 200_000)
    async with Broker() as broker:
        port = broker.ports["mqtt"]
        for _ in range(4):
            [client] = await asyncio.to_thread(half_connects, port, 1)
            await until_so(lambda: broker.hub.bodies_of_strangers._granted)
            client.send_bytes(LARGE_CONNECT[-1:] + wire.publish("plain", bytes(100_000), qos=1)[:-1])
            await asyncio.to_thread(client.expect, wire.CONNACK)
            client.send_bytes(bytes(1))
            await asyncio.to_thread(client.expect, wire.PUBACK)
            client.drop()
        await asyncio.wait_for(publish(port), 5)


FRAME_BYTES = 8_000


def begin_amqp(client: RawAmqp, size: int) -> None:
    """Publish a body of `size` bytes but for its last frame."""
    client.send(1, commands.Basic.Publish(0, "", "work"))
    client.send_bytes(frame(HEADER, 1, content_header(size)))
    for _ in range(size // FRAME_BYTES - 1):
        client.send_bytes(frame(BODY_FRAME, 1, bytes(FRAME_BYTES)))


def end_amqp(client: RawAmqp) -> None:
    """The last frame, and the confirm."""
    client.send_bytes(frame(BODY_FRAME, 1, bytes(FRAME_BYTES)))
    client.expect(commands.Basic.Ack)


def connect_amqp(port: int) -> RawAmqp:
    client = RawAmqp(port, frame_max=8_192)
    client.open_channel(confirm=True)
    client.call(1, commands.Queue.Declare(0, "work"), commands.Queue.DeclareOk)
    return client


async def test_slow_amqp_message_ends_its_connection_for_who_waits():
    async with Broker() as broker:
        slow = await asyncio.to_thread(connect_amqp, broker.ports["amqp"])
        begin_amqp(slow, len(BODY))
        await until_so(lambda: broker.hub.bodies._granted)  # it has begun to come
        with capture_logs() as logged:
            await asyncio.wait_for(publish(broker.ports["mqtt"]), 5)
        reason = await asyncio.to_thread(slow.close_reason)
        assert reason is not None
        assert reason[0] == 506, "RESOURCE_ERROR"
        assert [line["event"] for line in logged] == ["amqp.connection_error"]
        slow.drop()


async def test_finished_failed_and_forsaken_amqp_bodies_give_their_room_back():
    async with Broker() as broker:
        port = broker.ports["amqp"]
        first, second = [await asyncio.to_thread(connect_amqp, port) for _ in range(2)]
        for _ in range(3):
            begin_amqp(first, 800_000)
            await asyncio.to_thread(end_amqp, first)
            begin_amqp(second, 800_000)
            await asyncio.to_thread(end_amqp, second)
        begin_amqp(first, 800_000)
        first.send_bytes(b"what is no frame")  # a connection error, whose close this client does not answer
        await asyncio.to_thread(first.expect, commands.Connection.Close)
        begin_amqp(second, 800_000)
        second.drop()
        await asyncio.wait_for(publish(broker.ports["mqtt"]), 5)
        first.drop()
