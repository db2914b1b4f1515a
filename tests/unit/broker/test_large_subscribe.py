"""A SUBSCRIBE or UNSUBSCRIBE of very many filters: answered as one, acted on in parts."""

import asyncio

import pytest

from broker.app import Broker
from broker.mqtt.consuming.subscribe import Subscriptions
from config import limits
from tests.e2e.raw_mqtt import (
    CONNACK,
    PUBLISH,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V311,
    RawMqtt,
    connect,
    packet,
    properties,
    publish,
    string,
)

COUNT = 3 * limits.MQTT_FILTERS_PER_EVENT_MAX + 5


@pytest.fixture
async def broker():
    async with Broker(storage="memory:") as broker:
        yield broker


def asking(kind, filters, version, options=b"\x00"):
    body = b"\x00\x07" + properties(version) + b"".join(string(each) + options for each in filters)
    return packet(kind, 2, body)


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize("clean", [True, False])
async def test_it_is_answered_once_with_a_code_for_each_filter_in_order(broker, monkeypatch, version, clean):
    monkeypatch.setattr(limits, "EVENTS_TURN_MS", -1)
    sizes = []
    on_subscribe, on_unsubscribe = Subscriptions.on_subscribe, Subscriptions.on_unsubscribe

    def noting(handle):
        def note(self, event):
            sizes.append(len(event.filters))
            handle(self, event)

        return note

    monkeypatch.setattr(Subscriptions, "on_subscribe", noting(on_subscribe))
    monkeypatch.setattr(Subscriptions, "on_unsubscribe", noting(on_unsubscribe))
    filters = [f"t/{number}" for number in range(COUNT)]
    filters[100] = "$queue/q/$nothing"  # refused

    def run():
        client = RawMqtt(broker.ports["mqtt"], version=None)
        lasting = b"\x11\x00\x00\x00\x64" if version == V5 and not clean else b""
        client.send_bytes(connect(version, "c", flags=2 * clean, props=lasting))
        client.expect(CONNACK)
        client.send_bytes(asking(SUBSCRIBE, filters, version))
        suback = client.expect(SUBACK)
        client.send_bytes(publish(f"t/{COUNT - 1}", b"last", version=version))
        last = client.expect(PUBLISH)
        client.send_bytes(asking(UNSUBSCRIBE, [*filters, "never"], version, b""))
        unsuback = client.expect(UNSUBACK)
        client.drop()
        return suback.body, last.body, unsuback.body

    suback, last, unsuback = await asyncio.to_thread(run)
    codes = suback[-COUNT:]
    assert codes[100] >= 0x80
    assert set(codes[:100] + codes[101:]) == {0}
    assert last.endswith(b"last")
    if version == V5:
        assert b"$queue/q/$nothing" in suback
        codes = unsuback[-COUNT - 1 :]
        assert [number for number, code in enumerate(codes) if code] == [100, COUNT]
    assert max(sizes) == limits.MQTT_FILTERS_PER_EVENT_MAX
    assert sum(sizes) == 2 * COUNT + 1


async def test_only_some_of_very_many_refusals_are_told_their_reason(broker):
    filters = [f"$queue/q{number}/$nothing{'x' * 60_000}"[:60_000] for number in range(20)]

    def run():
        client = RawMqtt(broker.ports["mqtt"], version=V5, client_id="c")
        client.send_bytes(asking(SUBSCRIBE, filters, V5))
        body = client.expect(SUBACK).body
        client.drop()
        return body

    body = await asyncio.to_thread(run)
    assert all(code >= 0x80 for code in body[-20:])
