"""Consumers over a client whose answers come later, and in any order where they are of different queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from random import Random
from struct import pack
from typing import Any

import httpx
import pytest
from pamqp import commands

from broker.app import Broker
from broker.http.station import Station
from config.settings import (
    AmqpListenerSettings,
    HttpListenerSettings,
    ListenersSettings,
    MqcoreListenerSettings,
    MqttListenerSettings,
    Settings,
    StorageSettings,
)
from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from protocols.amqp10.framing import encode_frame
from tests.e2e.raw_amqp import RawAmqp, method_frame
from tests.e2e.raw_amqp10 import RawAmqp10
from tests.e2e.raw_mqtt import (
    CONNACK,
    PUBACK,
    PUBLISH,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    Packet,
    RawMqtt,
    acknowledgement,
    connect,
    packet,
    properties,
    publish,
    string,
    subscribe,
    user_property,
)
from tests.unit.broker.distant import Distance, distant_client
from tests.waiting import turns, until_so


@pytest.fixture(params=["near", "far", 1, 2])
async def broker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    """A broker whose client is near or far from its shard, or (a number) now and then either."""
    if request.param != "near":
        distance = Distance(None if request.param == "far" else request.param)
        monkeypatch.setattr("broker.app.ShardClient", distant_client(distance))
    listeners = ListenersSettings(
        mqtt=MqttListenerSettings(port=0),
        amqp=AmqpListenerSettings(port=0),
        http=HttpListenerSettings(port=0),
        mqcore=MqcoreListenerSettings(port=0),
    )
    async with Broker(Settings(storage=StorageSettings(url="memory:"), listeners=listeners)) as broker:
        yield broker


@pytest.fixture
def amqp(broker: Broker) -> Iterator[Callable[[], RawAmqp]]:
    made = []

    def open_one() -> RawAmqp:
        client = RawAmqp(broker.ports["amqp"])
        client.open_channel()
        made.append(client)
        return client

    yield open_one
    for client in made:
        client.drop()


async def filled(broker: Broker, name: str, *bodies: bytes) -> None:
    await broker.admin.declare(name)
    for body in bodies:
        await broker.admin.publish(name, body)


def methods(*sent: Any) -> bytes:
    return b"".join(method_frame(1, method) for method in sent)


async def nobody_consumes(broker: Broker, name: str, ready: int) -> None:
    """The queue has no consumer, and nothing of it is in flight."""

    async def is_left() -> bool:
        view = await broker.admin.queue(name)
        return (view.consumers, view.ready, view.in_flight) == (0, ready, 0)

    await until_so(is_left)


async def cut(broker: Broker) -> None:
    """Lose all connections as soon as a consumer of `q` is there, whether or not anybody was told."""

    async def is_there() -> int:
        return (await broker.admin.queue("q")).consumers

    await until_so(is_there)
    for peer in list(broker.hub.transports):
        peer.abort()


# AMQP 0.9.1


async def test_consume_ok_comes_before_the_first_delivery(
    broker: Broker, amqp: Callable[[], RawAmqp]
) -> None:
    await filled(broker, "q", b"one", b"two")

    def client() -> None:
        raw = amqp()
        raw.send(1, commands.Basic.Consume(queue="q", consumer_tag="c"))
        assert raw.expect(commands.Basic.ConsumeOk).consumer_tag == "c"
        assert [raw.read_content(commands.Basic.Deliver).body for _ in range(2)] == [b"one", b"two"]

    await asyncio.to_thread(client)


async def test_what_is_sent_behind_a_late_consume_is_done_behind_it(
    broker: Broker, amqp: Callable[[], RawAmqp]
) -> None:
    await filled(broker, "q")

    def client() -> None:
        raw = amqp()
        raw.send_bytes(
            methods(
                commands.Basic.Consume(queue="q", consumer_tag="a"),
                commands.Basic.Cancel("a"),
                commands.Basic.Consume(queue="q", consumer_tag="a", exclusive=True),
                commands.Basic.Consume(queue="q", consumer_tag="b", nowait=True),
            )
        )
        raw.expect(commands.Basic.ConsumeOk)
        raw.expect(commands.Basic.CancelOk)
        raw.expect(commands.Basic.ConsumeOk)
        close = raw.expect(commands.Channel.Close)
        assert (close.reply_code, close.class_id, close.method_id) == (403, 60, 20)
        raw.send(1, commands.Channel.CloseOk())
        raw.open_channel()
        raw.send_bytes(
            methods(commands.Basic.Consume(queue="q", consumer_tag="a"), commands.Queue.Delete(queue="q"))
        )
        raw.expect(commands.Basic.ConsumeOk)
        raw.expect(commands.Basic.Cancel)
        raw.expect(commands.Queue.DeleteOk)

    await asyncio.to_thread(client)


async def test_a_deleted_queue_cancels_a_consumer_whose_answer_was_late(
    broker: Broker, amqp: Callable[[], RawAmqp]
) -> None:
    await filled(broker, "q")

    def client() -> None:
        raw, other = amqp(), amqp()
        raw.send(1, commands.Basic.Consume(queue="q", consumer_tag="c"))
        other.call(1, commands.Queue.Declare(queue="q", passive=True), commands.Queue.DeclareOk)
        other.call(1, commands.Queue.Delete(queue="q"), commands.Queue.DeleteOk)
        told = [raw.read() for _ in range(2)]
        kinds = [type(each.method) for each in told if each is not None]
        gone = [commands.Channel.Close]  # it was deleted first
        assert kinds in ([commands.Basic.ConsumeOk, commands.Basic.Cancel], gone)

    await asyncio.to_thread(client)


@pytest.mark.parametrize(
    ("consume", "code", "class_id", "method_id"),
    [
        (commands.Basic.Consume(queue="none"), 404, 60, 20),
        (commands.Basic.Consume(queue="q", arguments={"x-consumer-group": "a/b\x00"}), 406, 60, 20),
        (commands.Basic.Consume(queue="q", exclusive=True), 403, 60, 20),
        (commands.Basic.Consume(queue="mine"), 405, 60, 20),
    ],
)
async def test_a_refusal_closes_the_channel_with_the_class_and_method_of_the_consume(
    broker: Broker,
    amqp: Callable[[], RawAmqp],
    consume: commands.Basic.Consume,
    code: int,
    class_id: int,
    method_id: int,
) -> None:
    await filled(broker, "q")

    def client() -> Any:
        other = amqp()
        other.call(1, commands.Queue.Declare(queue="mine", exclusive=True), commands.Queue.DeclareOk)
        other.call(1, commands.Basic.Consume(queue="q", consumer_tag="c"), commands.Basic.ConsumeOk)
        raw = amqp()
        behind = method_frame(1, commands.Queue.Declare(queue="never"))
        raw.send_bytes(method_frame(1, consume) + behind)
        return raw.expect(commands.Channel.Close)

    close = await asyncio.to_thread(client)
    assert (close.reply_code, close.class_id, close.method_id) == (code, class_id, method_id)
    assert "never" not in [view.name for view in await broker.admin.queues()]


async def test_a_channel_closed_before_the_answer_leaves_no_consumer_and_no_claim(
    broker: Broker, amqp: Callable[[], RawAmqp]
) -> None:
    await filled(broker, "q", b"one", b"two")

    def client() -> None:
        raw = amqp()
        for _ in range(5):
            raw.send_bytes(methods(commands.Basic.Consume(queue="q"), commands.Channel.Close(200, "", 0, 0)))
            raw.expect(commands.Channel.CloseOk)
            raw.open_channel()

    await asyncio.to_thread(client)
    await nobody_consumes(broker, "q", 2)


async def test_a_connection_lost_before_the_answer_leaves_no_consumer_and_no_claim(
    broker: Broker, amqp: Callable[[], RawAmqp]
) -> None:
    await filled(broker, "q", b"one", b"two")
    for _ in range(3):
        raw = await asyncio.to_thread(amqp)
        raw.send_bytes(methods(commands.Basic.Consume(queue="q"), commands.Basic.Consume(queue="q")))
        await cut(broker)
        await nobody_consumes(broker, "q", 2)


def read_gets(raw: RawAmqp, count: int) -> list[bytes | None]:
    """The answers to as many basic.get; None: there was nothing."""
    bodies: list[bytes | None] = []
    for _ in range(count):
        received = raw.read()
        assert received is not None
        if isinstance(received.method, commands.Basic.GetEmpty):
            bodies.append(None)
            continue
        assert isinstance(received.method, commands.Basic.GetOk)
        raw.read()
        body = raw.read()
        assert body is not None
        bodies.append(body.payload)
    return bodies


async def test_gets_of_many_queues_are_answered_in_their_order(
    broker: Broker, amqp: Callable[[], RawAmqp]
) -> None:
    chance = Random(7)
    names = "abc"
    left = {name: [b"%s%d" % (name.encode(), number) for number in range(20)] for name in names}
    for name in names:
        await filled(broker, name, *left[name])
    wanted = [chance.choice(names) for _ in range(100)]

    def client() -> list[bytes | None]:
        raw = amqp()
        raw.send_bytes(methods(*[commands.Basic.Get(queue=name, no_ack=True) for name in wanted]))
        return read_gets(raw, len(wanted))

    expected = [left[name].pop(0) if left[name] else None for name in wanted]
    assert await asyncio.to_thread(client) == expected


async def test_each_message_is_got_once_by_many_channels(broker: Broker, amqp: Callable[[], RawAmqp]) -> None:
    bodies = [b"%03d" % number for number in range(40)]
    await filled(broker, "q", *bodies)

    def client() -> list[bytes | None]:
        clients = [amqp() for _ in range(4)]
        for raw in clients:
            raw.send_bytes(methods(*[commands.Basic.Get(queue="q") for _ in range(15)]))
        return [body for raw in clients for body in read_gets(raw, 15)]

    got = await asyncio.to_thread(client)
    assert sorted(filter(None, got)) == bodies
    assert got.count(None) == 20


async def test_what_is_published_behind_a_get_is_not_got_by_it(
    broker: Broker, amqp: Callable[[], RawAmqp]
) -> None:
    await filled(broker, "q")

    def client() -> list[bytes | None]:
        raw = amqp()
        get = commands.Basic.Get(queue="q", no_ack=True)
        raw.send(1, get)
        raw.publish(1, "q", b"one")
        raw.send(1, get)
        raw.send(1, get)
        return read_gets(raw, 3)

    assert await asyncio.to_thread(client) == [None, b"one", None]


async def test_what_was_got_by_a_channel_that_ends_before_the_answer_returns(
    broker: Broker, amqp: Callable[[], RawAmqp]
) -> None:
    await filled(broker, "q", b"one", b"two")

    def client() -> None:
        raw = amqp()
        gets = methods(commands.Basic.Get(queue="q"), commands.Basic.Get(queue="q"))
        for _ in range(3):
            raw.send_bytes(gets + methods(commands.Channel.Close(200, "", 0, 0)))
            raw.expect(commands.Channel.CloseOk)
            raw.open_channel()
        raw.send_bytes(gets)

    await asyncio.to_thread(client)

    async def is_claimed() -> int:
        return (await broker.admin.queue("q")).in_flight

    await until_so(is_claimed)
    for peer in list(broker.hub.transports):
        peer.abort()
    await nobody_consumes(broker, "q", 2)


# MQTT


def filters(*topics: str, options: int = 1) -> bytes:
    wanted = b"".join(string(topic) + bytes([options]) for topic in topics)
    return packet(SUBSCRIBE, 2, pack(">H", 7) + properties(V5) + wanted)


def unsubscribe(topic: str) -> bytes:
    return packet(UNSUBSCRIBE, 2, pack(">H", 8) + properties(V5) + string(topic))


async def test_a_suback_waits_for_all_of_its_filters(broker: Broker) -> None:
    for name in "abc":
        await filled(broker, name, name.encode())

    def client() -> list[Packet]:
        raw = RawMqtt(broker.ports["mqtt"], client_id="reader")
        raw.send_bytes(filters("plain/+", "$queue/a", "$queue/b/$ack", "$queue/c", "$queue/b"))
        raw.send_bytes(unsubscribe("$queue/c"))
        came: dict[int, list[Packet]] = {
            SUBACK: [],
            UNSUBACK: [],
            PUBLISH: [],
        }  # what is there may come first
        while not ({b"a", b"b"} <= {each.body[-1:] for each in came[PUBLISH]} and came[UNSUBACK]):
            received = raw.read()
            assert received is not None
            assert received.kind != UNSUBACK or came[SUBACK]
            came[received.kind].append(received)
        raw.drop()
        return [*came[SUBACK], *came[UNSUBACK]]

    suback, unsuback = await asyncio.to_thread(client)
    assert list(suback.body[-5:]) == [1, 1, 0x8F, 1, 1]
    assert unsuback.body[-1] == 0
    for name in "ab":
        await nobody_consumes(broker, name, 1)


async def test_a_subscription_that_is_refused_late_has_its_code_at_its_place(broker: Broker) -> None:
    await filled(broker, "a")
    await filled(broker, "b")

    def client() -> Packet:
        alone = RawMqtt(broker.ports["mqtt"], client_id="alone")
        props = user_property("consumer-group", "g") + user_property("exclusive", "true")
        alone.send_bytes(subscribe("$queue/a", props=props))
        assert alone.expect(SUBACK).body[-1] == 1
        other = RawMqtt(broker.ports["mqtt"], client_id="other")
        body = pack(">H", 7) + properties(V5, user_property("consumer-group", "g"))
        body += b"".join(string(topic) + b"\x01" for topic in ("$queue/b", "$queue/a", "$queue/b/#"))
        other.send_bytes(packet(SUBSCRIBE, 2, body))
        answer = other.expect(SUBACK)
        other.drop()
        alone.drop()
        return answer

    suback = await asyncio.to_thread(client)
    assert list(suback.body[-3:]) == [1, 0x83, 1]
    assert b"$queue/a: " in suback.body


async def test_an_mqtt_client_lost_before_the_answer_leaves_no_consumer_and_no_group(broker: Broker) -> None:
    await filled(broker, "q", b"one")

    def client() -> RawMqtt:
        raw = RawMqtt(broker.ports["mqtt"], version=None)
        raw.send_bytes(connect())  # no identifier: its group goes with it
        raw.expect(CONNACK)
        raw.send_bytes(filters("$queue/q", "$queue/q/#"))
        return raw  # let go of, it would be closed before its consumer is seen

    async def is_left() -> bool:
        view = await broker.admin.queue("q")
        groups = await broker.admin.groups("q")
        return (view.consumers, view.ready, [each.name for each in groups]) == (0, 1, [])

    for _ in range(3):
        raw = await asyncio.to_thread(client)
        await cut(broker)
        await until_so(is_left)
        raw.drop()


async def test_control_topics_settle_what_they_name(broker: Broker) -> None:
    await filled(broker, "q", b"one", b"two", b"three")

    def control(verb: str, offset: int, packet_id: int) -> bytes:
        props = user_property("message-id", f"q:{offset}") + user_property("group-id", "g")
        return publish(f"$queue/q/{verb}", qos=1, packet_id=packet_id, props=props)

    def client() -> list[tuple[int, int]]:
        raw = RawMqtt(broker.ports["mqtt"])
        raw.send_bytes(subscribe("$queue/q", props=user_property("consumer-group", "g")))
        kinds = [packet.kind for packet in (raw.read() for _ in range(4)) if packet is not None]
        assert sorted(kinds) == [PUBLISH, PUBLISH, PUBLISH, SUBACK]
        asked = [
            control("$ack", 0, 1),
            control("$reject", 1, 2),
            control("$ack", 0, 3),
            control("$ack", 7, 4),
        ]
        raw.send_bytes(b"".join([*asked, control("$extend", 2, 5)]))
        answers = [raw.expect(PUBACK).body for _ in range(5)]
        raw.drop()
        return [(int.from_bytes(each[:2], "big"), each[2] if len(each) > 2 else 0) for each in answers]

    told = await asyncio.to_thread(client)
    assert sorted(told) == [(1, 0), (2, 0), (3, 0x90), (4, 0x90), (5, 0)]

    async def is_settled() -> bool:
        group = await broker.admin.group("q", "g")
        return (group.ready, group.in_flight) == (1, 0)

    await until_so(is_settled)


async def test_a_session_that_comes_back_consumes_again(broker: Broker) -> None:
    await filled(broker, "q", b"one")
    never = b"\x11\xff\xff\xff\xff"

    def client() -> None:
        reader = RawMqtt(broker.ports["mqtt"], client_id="reader", props=never)
        reader.send_bytes(subscribe("$queue/q"))
        assert {packet.kind for packet in (reader.read(), reader.read()) if packet} == {SUBACK, PUBLISH}
        reader.drop()
        back = RawMqtt(broker.ports["mqtt"], version=None)
        back.send_bytes(connect(client_id="reader", flags=0, props=never))
        assert back.expect(CONNACK).body[0] == 1
        back.send_bytes(acknowledgement(PUBACK, back_id(back.expect(PUBLISH))))
        back.send_bytes(unsubscribe("$queue/q"))
        assert back.expect(UNSUBACK).body[-1] == 0
        back.drop()

    await asyncio.to_thread(client)
    await nobody_consumes(broker, "q", 0)


def back_id(delivery: Packet) -> int:
    """The packet identifier of a delivery."""
    topic_bytes = int.from_bytes(delivery.body[:2], "big")
    return int.from_bytes(delivery.body[2 + topic_bytes : 4 + topic_bytes], "big")


# AMQP 1.0


def receiver(queue: str, handle: int = 1, **fields: Any) -> bytes:
    wanted = p.Source(f"/queues/{queue}")
    return encode_frame(0, p.Attach(f"r-{handle}", handle, c.RECEIVER, 0, 0, wanted, p.Target(), **fields))


def credit(count: int, handle: int = 1, *, drain: bool = False) -> bytes:
    return encode_frame(0, p.Flow(0, 2_048, 0, 2_048, handle, 0, count, drain=drain))


@pytest.fixture
def amqp10(broker: Broker) -> Iterator[Callable[[], RawAmqp10]]:
    made = []

    def open_one() -> RawAmqp10:
        client = RawAmqp10(broker.ports["amqp"])
        client.begin()
        made.append(client)
        return client

    yield open_one
    for client in made:
        client.socket.close()


async def test_credit_that_comes_before_a_link_is_attached_is_given_to_it(
    broker: Broker, amqp10: Callable[[], RawAmqp10]
) -> None:
    await filled(broker, "q", b"one", b"two", b"three")

    def client() -> None:
        raw = amqp10()
        raw.send_bytes(receiver("q") + credit(2))
        assert raw.expect(p.Attach).source is not None
        assert [raw.receive().body for _ in range(2)] == [b"one", b"two"]

    await asyncio.to_thread(client)


async def test_a_drain_that_comes_before_a_link_is_attached_is_answered(
    broker: Broker, amqp10: Callable[[], RawAmqp10]
) -> None:
    await filled(broker, "q", b"one")

    def client() -> None:
        raw = amqp10()
        raw.send_bytes(receiver("q") + credit(9, drain=True))
        assert raw.expect(p.Attach).source is not None
        assert raw.receive().body == b"one"
        flow = raw.expect(p.Flow)
        assert (flow.link_credit, flow.delivery_count, flow.drain) == (0, 9, True)

    await asyncio.to_thread(client)


async def test_links_are_attached_as_their_answers_come(
    broker: Broker, amqp10: Callable[[], RawAmqp10]
) -> None:
    for name in "abc":
        await filled(broker, name, name.encode())

    def client() -> None:
        raw = amqp10()
        for handle, name in enumerate("abc", 1):
            raw.send_bytes(receiver(name, handle) + credit(1, handle))
        attached: set[int] = set()
        received: dict[int, bytes] = {}
        while len(received) < 3:
            frame = raw.read()
            assert frame is not None
            if isinstance(frame.body, p.Attach):
                attached.add(int(frame.body.handle))
            else:
                assert int(frame.body.handle) in attached
                received[int(frame.body.handle)] = frame.payload[-1:]
        assert received == {1: b"a", 2: b"b", 3: b"c"}

    await asyncio.to_thread(client)


async def test_a_link_that_is_refused_late_is_attached_and_detached(
    broker: Broker, amqp10: Callable[[], RawAmqp10]
) -> None:
    await filled(broker, "q")

    def client() -> None:
        alone = {t.Symbol("exclusive"): True}
        one, other = amqp10(), amqp10()
        one.send_bytes(receiver("q", properties=alone))
        assert one.expect(p.Attach).source is not None
        other.send_bytes(receiver("q") + credit(5))
        assert other.expect(p.Attach).source is None
        detach = other.expect(p.Detach)
        assert detach.error.condition == "amqp:resource-locked" or detach.closed

    await asyncio.to_thread(client)


async def test_a_link_or_session_ended_before_the_answer_leaves_no_consumer(
    broker: Broker, amqp10: Callable[[], RawAmqp10]
) -> None:
    await filled(broker, "q", b"one")

    def client() -> None:
        raw = amqp10()
        for _ in range(3):
            raw.send_bytes(receiver("q") + credit(5) + encode_frame(0, p.Detach(1, True)))
            raw.expect(p.Attach)
            while not isinstance(raw.read().body, p.Detach):  # type: ignore[union-attr]
                pass
        raw.send_bytes(receiver("q") + credit(5) + encode_frame(0, p.End()))
        while not isinstance(raw.read().body, p.End):  # type: ignore[union-attr]
            pass

    await asyncio.to_thread(client)
    await nobody_consumes(broker, "q", 1)
    lost = await asyncio.to_thread(amqp10)
    lost.send_bytes(receiver("q") + credit(5))
    await cut(broker)
    await nobody_consumes(broker, "q", 1)


async def test_a_durable_subscription_gives_what_it_kept_behind_its_attach(
    broker: Broker, amqp10: Callable[[], RawAmqp10]
) -> None:
    source = p.Source(
        "news",
        durable=2,
        expiry_policy=t.Symbol("never"),
        distribution_mode=t.Symbol("copy"),
        capabilities=(t.Symbol("topic"),),
    )
    attach = encode_frame(0, p.Attach("sub", 1, c.RECEIVER, 0, 0, source, p.Target()))

    def subscriber() -> None:
        raw = amqp10()
        raw.send_bytes(attach)
        raw.expect(p.Attach)
        raw.send_bytes(encode_frame(0, p.Detach(1, False)))
        raw.expect(p.Detach)

    def back() -> None:
        raw = amqp10()
        raw.send_bytes(attach + credit(1))
        assert raw.expect(p.Attach).source is not None
        assert raw.receive().body == b"kept"

    await asyncio.to_thread(subscriber)
    (view,) = [view for view in await broker.admin.queues() if view.name.startswith("amq.sub")]
    await broker.admin.publish(view.name, b"kept")
    await asyncio.to_thread(back)


# HTTP


async def test_a_request_waits_for_its_message_and_is_refused_beside_an_exclusive_consumer(
    broker: Broker, amqp: Callable[[], RawAmqp]
) -> None:
    await filled(broker, "q")
    await filled(broker, "taken")
    url = f"http://127.0.0.1:{broker.ports['mqcore']}"

    def client() -> None:
        raw = amqp()
        consume = commands.Basic.Consume(queue="taken", exclusive=True)
        raw.call(1, consume, commands.Basic.ConsumeOk)
        with httpx.Client(base_url=url, trust_env=False, timeout=20) as mq:
            refused = mq.get("/taken/messages", params={"wait": "5s"})
            assert refused.status_code == 403, refused.text
            assert mq.get("/q/messages", params={"wait": "50ms"}).status_code == 204

    await asyncio.to_thread(client)
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as mq:
        waits = asyncio.create_task(mq.get("/q/messages", params={"wait": "20s"}))
        await asyncio.sleep(0)
        assert (await mq.post("/q/messages", content=b"job")).status_code == 201
        assert (await waits).content == b"job"


async def test_requests_at_once_are_given_a_message_each(broker: Broker) -> None:
    bodies = [b"%03d" % number for number in range(20)]
    await filled(broker, "q", *bodies)
    url = f"http://127.0.0.1:{broker.ports['mqcore']}"
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as mq:
        answers = await asyncio.gather(*[mq.get("/q/messages") for _ in range(24)])
        assert sorted(answer.content for answer in answers if answer.status_code == 200) == bodies
        assert [answer.status_code for answer in answers].count(204) == 4


async def test_what_was_claimed_for_a_request_that_is_gone_returns(broker: Broker) -> None:
    await filled(broker, "q", b"one", b"two")
    queue = broker.hub.client.consuming.find("q")
    station = Station(broker.hub, queue, "", tells_offsets=False)
    fetching = asyncio.create_task(station.fetch(2))
    await turns()
    fetching.cancel()
    (found,) = await asyncio.gather(fetching, return_exceptions=True)
    if isinstance(found, list):
        station.give_back(found)  # it was there before
    await nobody_consumes(broker, "q", 2)


async def test_topics_are_followed(broker: Broker) -> None:
    url = f"http://127.0.0.1:{broker.ports['http']}/api/v1/topics/tail"
    async with httpx.AsyncClient(trust_env=False, timeout=20) as client, client.stream("GET", url) as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == "{}"

        def publisher() -> None:
            raw = RawMqtt(broker.ports["mqtt"])
            raw.send_bytes(publish("t", b"heard"))
            raw.drop()

        await asyncio.to_thread(publisher)
        assert "heard" in await anext(lines)
