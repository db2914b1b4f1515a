"""Publishes that the core accepts, and that a queue elsewhere refuses before they are confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import httpx
import pytest
from pamqp import commands

from broker.app import Broker
from config.settings import (
    AmqpListenerSettings,
    HttpListenerSettings,
    ListenersSettings,
    MqcoreListenerSettings,
    MqttListenerSettings,
    Settings,
    StorageSettings,
)
from protocols.amqp091.client import encode_publish
from protocols.amqp10 import performatives as p
from queue_manager.outcomes import (
    REFUSED_DEPTH,
    REFUSED_IDENTITY,
    REFUSED_IN_PART,
    REFUSED_LOST,
    REFUSED_PAUSED,
    REFUSED_SIZE,
    UNROUTED,
)
from tests.e2e.raw_amqp import RawAmqp
from tests.e2e.raw_amqp10 import RawAmqp10, message
from tests.e2e.raw_mqtt import PUBACK, PUBREC, V5, V311, RawMqtt, publish
from tests.unit.broker.distant import REFUSED_BODY, Distance, distant_client


@pytest.fixture(params=[None, 1, 2])
async def broker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    monkeypatch.setattr("broker.app.ShardClient", distant_client(Distance(request.param)))
    listeners = ListenersSettings(
        mqtt=MqttListenerSettings(port=0),
        amqp=AmqpListenerSettings(port=0),
        http=HttpListenerSettings(port=0),
        mqcore=MqcoreListenerSettings(port=0),
    )
    async with Broker(Settings(storage=StorageSettings(url="memory:"), listeners=listeners)) as broker:
        await broker.admin.declare("q")
        yield broker


def refused(outcome: int) -> bytes:
    """The body of a publish that is refused so."""
    return REFUSED_BODY + b"%d" % outcome


def bodies_of(seed: int, count: int, *outcomes: int) -> list[bytes]:
    """Bodies of which some are refused."""
    chance = Random(seed)
    return [refused(chance.choice(outcomes)) if chance.random() < 0.3 else b"taken" for _ in range(count)]


# AMQP 0.9.1


@pytest.mark.parametrize("burst", [1, 7, 60])
async def test_each_refused_publish_gets_a_nack_in_order_and_no_ack_stands_for_it(
    broker: Broker, burst: int
) -> None:
    bodies = bodies_of(5, 180, REFUSED_DEPTH, REFUSED_LOST, REFUSED_SIZE, REFUSED_PAUSED)
    bodies[-1] = refused(REFUSED_DEPTH)

    def client() -> list[tuple[int, bool]]:
        raw = RawAmqp(broker.ports["amqp"])
        raw.open_channel(confirm=True)
        persistent = b"\x10\x00\x02"
        for at in range(0, len(bodies), burst):
            parts = [encode_publish("q", body, persistent) for body in bodies[at : at + burst]]
            raw.send_bytes(b"".join(parts))
        told: list[tuple[int, bool]] = []
        while len(told) < len(bodies):
            received = raw.read()
            assert received is not None
            method: Any = received.method
            is_ack = isinstance(method, commands.Basic.Ack)
            assert is_ack or isinstance(method, commands.Basic.Nack)
            last = told[-1][0] if told else 0
            assert method.multiple or method.delivery_tag == last + 1
            told += [(tag, is_ack) for tag in range(last + 1, method.delivery_tag + 1)]
        raw.drop()
        return told

    told = await asyncio.to_thread(client)
    assert told == [(tag, body == b"taken") for tag, body in enumerate(bodies, 1)]


async def test_publishes_without_confirms_are_refused_in_silence(broker: Broker) -> None:
    def client() -> None:
        raw = RawAmqp(broker.ports["amqp"])
        raw.open_channel()
        raw.publish(1, "q", refused(REFUSED_DEPTH), b"\x10\x00\x02")
        raw.call(1, commands.Queue.Declare(queue="other", durable=True), commands.Queue.DeclareOk)
        raw.drop()

    await asyncio.to_thread(client)


# MQTT


@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
async def test_mqtt_5_has_a_reason_code_for_each_in_order(broker: Broker, qos: int, kind: int) -> None:
    codes = {
        REFUSED_DEPTH: 0x97,
        REFUSED_IDENTITY: 0x83,
        REFUSED_LOST: 0x80,
        REFUSED_IN_PART: 0x97,
        UNROUTED: 0x10,
    }
    bodies = bodies_of(3, 60, *codes)

    def client() -> list[tuple[int, int]]:
        raw = RawMqtt(broker.ports["mqtt"])
        for packet_id, body in enumerate(bodies, 1):
            raw.send_bytes(publish("$queue/q", body, version=V5, qos=qos, packet_id=packet_id))
        answers = [raw.expect(kind).body for _ in bodies]
        # what was refused is nothing that the client has to release, and its identifier is free
        raw.send_bytes(publish("$queue/q", b"taken", version=V5, qos=1, packet_id=999))
        raw.expect(PUBACK)
        raw.drop()
        return [(int.from_bytes(each[:2], "big"), each[2] if len(each) > 2 else 0) for each in answers]

    told = await asyncio.to_thread(client)
    expected = [0 if body == b"taken" else codes[int(body[len(REFUSED_BODY) :])] for body in bodies]
    assert told == list(enumerate(expected, 1))


async def test_mqtt_3_1_1_is_told_what_was_taken_before_its_connection_ends(broker: Broker) -> None:
    def client() -> list[int]:
        raw = RawMqtt(broker.ports["mqtt"], version=V311)
        bodies = [b"taken", refused(REFUSED_IN_PART), b"taken", refused(REFUSED_DEPTH), b"taken"]
        for packet_id, body in enumerate(bodies, 1):
            raw.send_bytes(publish("$queue/q", body, version=V311, qos=1, packet_id=packet_id))
        told = []
        while (received := raw.read()) is not None:
            assert received.kind == PUBACK
            told.append(int.from_bytes(received.body[:2], "big"))
        raw.drop()
        return told

    assert await asyncio.to_thread(client) == [1, 2, 3]


# AMQP 1.0


async def test_amqp_1_0_has_an_outcome_for_each(broker: Broker) -> None:
    conditions = {
        REFUSED_DEPTH: "amqp:resource-limit-exceeded",
        REFUSED_SIZE: "amqp:link:message-size-exceeded",
        REFUSED_IDENTITY: "amqp:precondition-failed",
    }
    bodies = bodies_of(9, 90, *conditions, REFUSED_LOST, UNROUTED)

    def client() -> dict[int, Any]:
        raw = RawAmqp10(broker.ports["amqp"])
        raw.begin()
        raw.attach_sender("/queues/q")
        ids = []
        for body in bodies:
            ids.append(raw.transfer(message(body)))
        told = raw.outcomes(len(ids))
        raw.socket.close()
        return {index: told[number] for index, number in enumerate(ids)}

    told = await asyncio.to_thread(client)
    for index, body in enumerate(bodies):
        state = told[index]
        if body == b"taken":
            assert state == p.Accepted()
        elif body == refused(REFUSED_LOST):
            assert state == p.Modified(delivery_failed=True)
        elif body == refused(UNROUTED):
            assert state == p.Released()
        else:
            assert state.error.condition == conditions[int(body[len(REFUSED_BODY) :])]


# HTTP


async def test_a_request_that_publishes_is_told(broker: Broker) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
        mqcore = f"http://127.0.0.1:{broker.ports['mqcore']}/q/messages"
        statuses = {b"taken": 201, refused(REFUSED_DEPTH): 503, refused(REFUSED_SIZE): 413}
        statuses |= {refused(REFUSED_LOST): 503, refused(REFUSED_IDENTITY): 409}
        for body, status in statuses.items():
            assert (await client.post(mqcore, content=body)).status_code == status
        api = f"http://127.0.0.1:{broker.ports['http']}/api/v1/queues/q/messages"
        assert (await client.post(api, json={"body": "taken"})).status_code == 200
        answer = await client.post(api, json={"body": refused(REFUSED_DEPTH).decode()})
        assert answer.status_code >= 400
        assert "the queue is full" in answer.text
