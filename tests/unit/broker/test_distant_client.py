"""Front-ends and administration over a client whose answers come later, as from another process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from pamqp import commands

from broker.app import Broker
from config.queue_settings import QueueSettings
from protocols.amqp091.content import Properties, encode_properties
from tests.e2e.raw_amqp import RawAmqp, method_frame
from tests.e2e.raw_mqtt import PUBACK, RawMqtt, publish, user_property
from tests.unit.broker.distant import Distance, Distant


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(storage="memory:") as broker:
        client: Any = broker.hub.client
        for name in ("queues", "streams", "epochs"):
            setattr(client, name, Distant(getattr(client, name), Distance()))
        yield broker


@pytest.fixture
def amqp(broker: Broker) -> Iterator[Callable[..., RawAmqp]]:
    made = []

    def open_one(*, confirm: bool = False) -> RawAmqp:
        client = RawAmqp(broker.ports["amqp"])
        client.open_channel(confirm=confirm)
        made.append(client)
        return client

    yield open_one
    for client in made:
        client.drop()


async def test_what_follows_a_declaration_waits_for_it(broker: Broker, amqp: Callable[..., RawAmqp]) -> None:
    def client() -> None:
        raw = amqp()
        raw.send(1, commands.Queue.Declare(queue="q", durable=True))
        raw.publish(1, "q", b"first")
        raw.send(1, commands.Basic.Get(queue="q", no_ack=True))
        raw.send(1, commands.Queue.Delete(queue="q"))
        assert raw.expect(commands.Queue.DeclareOk).queue == "q"
        assert raw.read_content(commands.Basic.GetOk).body == b"first"
        assert raw.expect(commands.Queue.DeleteOk).message_count == 0

    await asyncio.to_thread(client)


async def test_a_refusal_that_comes_later_closes_the_channel_of_its_method(
    broker: Broker, amqp: Callable[..., RawAmqp]
) -> None:
    def client() -> Any:
        raw = amqp()
        passive = method_frame(1, commands.Queue.Declare(queue="none", passive=True))
        raw.send_bytes(passive + method_frame(1, commands.Queue.Declare(queue="never")))
        return raw.expect(commands.Channel.Close)

    close = await asyncio.to_thread(client)
    assert (close.reply_code, close.class_id, close.method_id) == (404, 50, 10)
    assert [view.name for view in await broker.admin.queues()] == []


async def test_an_answer_for_a_closed_channel_is_dropped(
    broker: Broker, amqp: Callable[..., RawAmqp]
) -> None:
    def client() -> None:
        raw = amqp()
        declare = method_frame(1, commands.Queue.Declare(queue="q"))
        raw.send_bytes(declare + method_frame(1, commands.Channel.Close(200, "", 0, 0)))
        raw.expect(commands.Channel.CloseOk)
        raw.open_channel()
        raw.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)

    await asyncio.to_thread(client)


def staged(attempt: str) -> bytes:
    headers = [("x-stage-producer", "job"), ("x-stage-epoch", 1), ("x-stage-part", 0)]
    return encode_properties(Properties(delivery_mode=2), [*headers, ("x-stage-attempt", attempt)])


async def test_calls_are_answered_and_confirmed_in_their_order(
    broker: Broker, amqp: Callable[..., RawAmqp]
) -> None:
    await broker.admin.declare("q")

    def client() -> list[Any]:
        listener = amqp()
        listener.call(1, commands.Queue.Declare(queue="answers", exclusive=True), commands.Queue.DeclareOk)
        listener.call(1, commands.Basic.Consume(queue="answers", no_ack=True), commands.Basic.ConsumeOk)
        raw = amqp(confirm=True)
        raw.publish(1, "$queue/q", b"row", staged("a"))
        call = encode_properties(
            Properties(reply_to="answers"), [("x-stage-producer", "job"), ("x-stage-epoch", 1)]
        )
        commit = json.dumps({"parts": [[0, "a", 1]]}).encode()
        for _ in range(3):
            raw.publish(1, "$queue/q/$stage-commit", commit, call)
        raw.publish(1, "$queue/q/$stage-status", b"", call)
        answers = [json.loads(listener.read_content(commands.Basic.Deliver).body) for _ in range(4)]
        assert raw.read_confirms(5) == [1, 2, 3, 4, 5]
        return answers

    answers = await asyncio.to_thread(client)
    assert [answer["status"] for answer in answers] == ["committed", "already", "already", "ok"]
    assert (await broker.admin.queue("q")).ready == 1


async def test_an_offset_is_confirmed_over_mqtt_when_its_answer_came(broker: Broker) -> None:
    await broker.admin.declare(QueueSettings(name="log", type="stream"))
    for number in range(4):
        await broker.admin.publish("log", b"%d" % number)
    await broker.admin.create_group("log", "readers")

    def client() -> list[int]:
        raw = RawMqtt(broker.ports["mqtt"], version=5)
        try:
            codes = []
            for number, offset in enumerate((b"2", b"9"), 1):
                props = user_property("group-id", "readers")
                raw.send_bytes(publish("$queue/log/$commit", offset, qos=1, packet_id=number, props=props))
                packet = raw.expect(PUBACK)
                codes.append(packet.body[2] if len(packet.body) > 2 else 0)
            return codes
        finally:
            raw.drop()

    assert await asyncio.to_thread(client) == [0, 0x90]
    assert (await broker.admin.group("log", "readers")).committed == 3
