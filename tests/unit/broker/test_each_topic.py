"""broker.mqtt.each_topic: publishes to many topics passed on in C, byte for byte as without."""

import asyncio
import gc
import os
import random
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from broker.app import Broker
from broker.connections.registry import Goodbye
from broker.mqtt import native
from broker.mqtt.frontend import MqttFrontends
from broker.mqtt.publishing.publish import TopicTarget
from broker.mqtt.settling.outbound import Outbound
from broker.network.transport import Transport
from config import limits
from config.mqtt_settings import MqttSettings
from config.settings import (
    AmqpListenerSettings,
    ListenersSettings,
    MqttListenerSettings,
    Settings,
    StorageSettings,
)
from protocols.mqtt import packets as p
from protocols.mqtt.client import PacketReader
from protocols.mqtt.codec import encode_packet
from protocols.mqtt.constants import MQTT_3_1_1, MQTT_5
from protocols.mqtt.events import PublishShape, run_of
from protocols.mqtt.properties import Properties
from queue_manager.api import BindingDefinition, QueueDeclaration
from queue_manager.quota_accounts import NO_SHARE, Account, Share
from tests.e2e import raw_mqtt as wire

compiled = pytest.mark.skipif(native.pass_on_each is None, reason="broker/mqtt/native/each.c is not compiled")

pass_on_each: Any = native.pass_on_each

STORIES = int(os.environ.get("SLUICEMQ_STORIES", 3))
RECEIVE_MAXIMUM = 20
UNSENT_BYTES_MAX = 1 << 16


class Loopback(asyncio.Transport):
    """A transport that keeps what is written to it; the client has not taken `waiting_bytes` of it."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.waiting_bytes = 0
        self.protocol: Any = None

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def set_write_buffer_limits(self, high: Any = None, low: Any = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.waiting_bytes

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


class Client:
    """One client, without a network."""

    def __init__(self, hub: Any, fronts: MqttFrontends, name: str, version: int, **options: Any) -> None:
        self.version = version
        self.transport = Transport(hub, fronts.accept, lambda: None)
        self.loopback = Loopback()
        self.loopback.protocol = self.transport
        self.transport.connection_made(self.loopback)
        self.send(wire.connect(version, name, **options))

    @property
    def outbound(self) -> Any:
        frontend: Any = self.transport.frontend
        return frontend.outbound

    def send(self, data: bytes) -> None:
        self.loopback.protocol.data_received(data)

    def take(self) -> bytes:
        written, self.loopback.written = self.loopback.written, []
        return b"".join(written)

    def drop(self) -> None:
        self.loopback.protocol.connection_lost(None)


class Side:
    """A broker with its clients by name; the one that is not `in_c` has none of that for them."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch, *, in_c: bool) -> None:
        self.hub = broker.hub
        self.fronts = MqttFrontends(broker.hub)
        self.clients: dict[str, Client] = {}
        self.passed_on = 0
        self._monkeypatch = monkeypatch
        self._pass_on_each = self._counting if in_c else None

    def _counting(self, *arguments: Any) -> tuple[int, int]:
        count, stop = pass_on_each(*arguments)
        self.passed_on += count
        return count, stop

    async def connect(self, name: str, version: int = MQTT_3_1_1, **options: Any) -> Client:
        with self._monkeypatch.context() as patched:
            patched.setattr(native, "pass_on_each", self._pass_on_each)
            client = Client(self.hub, self.fronts, name, version, **options)
            await turns()
        self.clients[name] = client
        return client

    async def subscribe(self, name: str, topic_filter: str, qos: int = 1, **options: Any) -> None:
        client = self.clients[name]
        asked = p.Subscribe(1, [p.SubscriptionRequest(topic_filter, qos, **options)])
        client.send(encode_packet(asked, client.version))
        await turns()


async def turns(count: int = 12) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
async def sides(monkeypatch) -> AsyncIterator[list[Side]]:
    """Two brokers that are alike, the first with what is in C."""
    monkeypatch.setattr(limits, "EVENTS_TURN_MS", 10_000)
    async with AsyncExitStack() as stack:
        found = []
        for in_c in (True, False):
            settings = Settings(
                storage=StorageSettings(url="memory:"),
                listeners=ListenersSettings(
                    mqtt=MqttListenerSettings(port=0), amqp=AmqpListenerSettings(port=0)
                ),
                mqtt=MqttSettings(receive_maximum=RECEIVE_MAXIMUM, max_unsent_bytes=UNSENT_BYTES_MAX),
            )
            broker = await stack.enter_async_context(Broker(settings))
            found.append(Side(broker, monkeypatch, in_c=in_c))
        yield found
        for side in found:
            for client in side.clients.values():
                client.drop()


async def settled(side: Side) -> dict[str, bytes]:
    """What the clients were sent, once all of it was."""
    await turns()
    await side.hub.client.commits.durable()
    await turns(40)
    return {name: client.take() for name, client in side.clients.items()}


async def on_both(sides: list[Side], do: Any) -> dict[str, bytes]:
    """Do the same with both, and give what both sent alike, the first here.

    Who ended over what he sent may have, or not, PUBACKs of the publishes before that.
    """
    told = []
    for side in sides:
        await do(side)
        told.append(await settled(side))
    in_c, in_python = [dict[str, Any](each) for each in told]
    for name, client in sides[0].clients.items():
        if client.transport.frontend.connection.closed:
            in_c[name], in_python[name] = without_pubacks(in_c[name]), without_pubacks(in_python[name])
    assert in_c == in_python
    return told[0]


def without_pubacks(data: bytes) -> list[tuple[int, bytes]]:
    return [one for one in PacketReader().feed(data) if one[0] >> 4 != wire.PUBACK]


def publish(topic: str, payload: bytes, packet_id: int, version: int = MQTT_3_1_1, **options: Any) -> bytes:
    return wire.publish(topic, payload, version=version, qos=1, packet_id=packet_id, **options)


def round_of(topics: list[str], version: int = MQTT_3_1_1, first: int = 1, **options: Any) -> bytes:
    """One publish to each topic."""
    return b"".join(
        publish(topic, f"to {topic}".encode(), first + number, version, **options)
        for number, topic in enumerate(topics)
    )


TOPICS = [f"device/{number}" for number in range(6)]


async def begin(sides: list[Side], version: int = MQTT_3_1_1, props: bytes = b"") -> None:
    """A publisher, and a subscriber for each topic; two rounds, so that C has the next one."""

    async def do(side: Side) -> None:
        await side.connect("publisher", version)
        for topic in TOPICS:
            await side.connect(topic, version, props=props)
            await side.subscribe(topic, topic)
        for first in (1, 101):
            side.clients["publisher"].send(round_of(TOPICS, version, first))
            await turns()

    await on_both(sides, do)
    sides[0].passed_on = 0


async def publish_round(
    sides: list[Side], passed_on: int, data: bytes = b"", **options: Any
) -> dict[str, bytes]:
    """Publish to all, and see how many of these went by C."""
    version = sides[0].clients["publisher"].version

    async def do(side: Side) -> None:
        side.passed_on = 0
        side.clients["publisher"].send(data or round_of(TOPICS, version, 201, **options))

    told = await on_both(sides, do)
    assert sides[0].passed_on == passed_on
    return told


VERSIONS = pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5], ids=["3.1.1", "5"])


@compiled
@VERSIONS
async def test_each_of_many_subscribers_gets_its_publish_and_the_publisher_its_pubacks(sides, version):
    await begin(sides, version)
    told = await publish_round(sides, len(TOPICS))
    assert told["publisher"] == b"".join(b"\x40\x02\x00" + bytes([201 + n]) for n in range(len(TOPICS)))
    for topic in TOPICS:
        assert told[topic] == publish(topic, f"to {topic}".encode(), 3, version)


@compiled
async def test_properties_go_on_as_they_came(sides):
    await begin(sides, MQTT_5)
    pair = wire.user_property("k", "v")
    await publish_round(sides, 0, props=pair)  # other shapes
    told = await publish_round(sides, len(TOPICS), props=pair)
    assert all(pair in told[topic] for topic in TOPICS)
    await publish_round(sides, 0)


@compiled
async def test_several_publishes_for_one_subscriber_are_one_write(sides):
    async def do(side: Side) -> None:
        await side.connect("publisher")
        await side.connect("reader")
        await side.subscribe("reader", "device/#")
        for first in (1, 101):
            side.clients["publisher"].send(round_of(TOPICS, first=first))
            await turns()

    await on_both(sides, do)
    sides[0].passed_on = 0
    for side in sides:
        side.clients["publisher"].send(round_of(TOPICS))
        await turns(40)
    assert sides[0].passed_on == len(TOPICS)
    assert [len(side.clients["reader"].loopback.written) for side in sides] == [1, 1]


def clients_of(side: Side) -> tuple[Client, Client, Client]:
    return side.clients["publisher"], side.clients[TOPICS[2]], side.clients[TOPICS[3]]


async def another_subscribes(side: Side) -> None:
    await side.connect("other")
    await side.subscribe("other", TOPICS[2], 0)


async def one_unsubscribes(side: Side) -> None:
    client = side.clients[TOPICS[2]]
    client.send(encode_packet(p.Unsubscribe(1, [TOPICS[2]]), client.version))


async def one_is_gone(side: Side) -> None:
    side.clients.pop(TOPICS[2]).drop()


async def one_is_taken_over(side: Side) -> None:
    client = await side.connect(TOPICS[2], side.clients[TOPICS[2]].version)
    assert client.take()


async def one_subscribes_at_qos_0(side: Side) -> None:
    await side.subscribe(TOPICS[2], TOPICS[2], 0)


async def the_publisher_is_behind(side: Side) -> None:
    publisher = side.clients["publisher"]
    publisher.transport._later = [object()]
    asyncio.get_running_loop().call_soon(publisher.transport._later.clear)


async def a_queue_is_bound(side: Side) -> None:
    client = side.hub.client
    await client.queues.declare(QueueDeclaration(name="jobs", durable=False, policy=side.hub.default_policy))
    await client.exchanges.bind(
        BindingDefinition(source="amq.topic", destination="jobs", routing_key="device.*")
    )


async def a_session_that_lasts_is_subscribed(side: Side) -> None:
    client = await side.connect("lasting", flags=0)
    client.send(wire.subscribe("device/#", version=client.version))


def paced() -> Share:
    share = Share(Account("", "", {}), Account("", "", {}))
    share.is_paced = True
    return share


async def the_publisher_has_a_quota(side: Side) -> None:
    side.clients["publisher"].transport.share = paced()


@compiled
@pytest.mark.parametrize(
    "happens",
    [
        another_subscribes,
        one_unsubscribes,
        one_is_gone,
        one_is_taken_over,
        one_subscribes_at_qos_0,
        a_queue_is_bound,
        a_session_that_lasts_is_subscribed,
        the_publisher_is_behind,
        the_publisher_has_a_quota,
    ],
)
async def test_all_go_the_long_way_where_a_topic_is_not_as_it_was_or_the_publisher_is_not_free(
    sides, happens
):
    await begin(sides)
    await on_both(sides, happens)
    if happens is the_publisher_is_behind:
        for side in sides:
            await the_publisher_is_behind(side)
            side.clients["publisher"].send(round_of(TOPICS))
    else:
        await publish_round(sides, 0)
    assert sides[0].passed_on == 0


@compiled
@VERSIONS
@pytest.mark.parametrize(
    ("packet", "before"),
    [
        ({"retain": True}, 2),
        ({"dup": True}, 2),
        ({"packet_id": 0}, 2),
        ({"qos": 0}, 2),
        ({"qos": 2}, 2),
        ({"topic": "device/new"}, 2),
        ({"topic": "$queue/new"}, 2),
        ({"topic": "a/#"}, 2),
        ({"topic": TOPICS[1]}, 1),
        ({"payload": bytes(17_000)}, 2),
    ],
    ids=str,
)
async def test_what_is_no_such_publish_goes_the_long_way_with_all_behind_it(sides, version, packet, before):
    await begin(sides, version)
    options: dict[str, Any] = {
        "topic": TOPICS[2],
        "payload": b"x",
        "qos": 1,
        "packet_id": 9,
        "version": version,
    }
    options |= packet
    odd = wire.publish(options.pop("topic"), options.pop("payload"), **options)
    data = round_of(TOPICS[:2], version) + odd + round_of(TOPICS[3:], version, 31)
    await publish_round(sides, before, data)


@compiled
@pytest.mark.parametrize("props", [b"\x23\x00\x01", b"\x01\x01"], ids=["topic alias", "text"])
async def test_publishes_whose_properties_ask_for_more_go_the_long_way(sides, props):
    await begin(sides, MQTT_5)
    for _ in range(3):
        await publish_round(sides, 0, props=props)


@compiled
@pytest.mark.parametrize(
    ("version", "props"),
    [(MQTT_3_1_1, b""), (MQTT_5, b"\x22\x00\x05")],
    ids=["other version", "topic aliases"],
)
async def test_subscribers_for_whom_publishes_are_rewritten_have_them_the_long_way(sides, version, props):
    async def do(side: Side) -> None:
        await side.connect("publisher", MQTT_5)
        for topic in TOPICS:
            await side.connect(topic, version, props=props)
            await side.subscribe(topic, topic)

    await on_both(sides, do)
    for _ in range(3):
        await publish_round(sides, 0)


async def one_takes_a_single_message_at_a_time(side: Side) -> None:
    clients_of(side)[1].outbound.window.limit(1)


async def one_has_messages_waiting(side: Side) -> None:
    client = clients_of(side)[1]
    window = client.outbound.window
    window.limit(1)
    side.clients["publisher"].send(publish(TOPICS[2], b"waits", 77))
    window.limit(10)


async def one_takes_only_small_packets(side: Side) -> None:
    clients_of(side)[1].outbound._connection.client_maximum_packet_size = 20


async def one_reads_too_slowly(side: Side) -> None:
    client = clients_of(side)[1]
    client.loopback.waiting_bytes = 2 * UNSENT_BYTES_MAX
    client.outbound._unchecked_bytes = limits.ROOM_CHECK_BYTES - 20


async def one_has_older_messages_coming(side: Side) -> None:
    clients_of(side)[1].outbound.hold()


async def one_uses_the_next_identifier(side: Side) -> None:
    clients_of(side)[1].outbound.window.in_use.add(3)


async def one_has_a_quota(side: Side) -> None:
    clients_of(side)[1].transport.share = paced()


async def one_is_at_its_last_identifier(side: Side) -> None:
    clients_of(side)[1].outbound.window._next = 65_535


@compiled
@pytest.mark.parametrize(
    "state",
    [
        one_takes_a_single_message_at_a_time,
        one_has_messages_waiting,
        one_takes_only_small_packets,
        one_reads_too_slowly,
        one_has_older_messages_coming,
        one_uses_the_next_identifier,
        one_has_a_quota,
        one_is_at_its_last_identifier,
    ],
)
async def test_a_subscriber_who_is_not_free_has_it_by_pass_on_and_the_others_in_c(sides, state, monkeypatch):
    await begin(sides)
    await on_both(sides, state)
    sides[0].passed_on = 0
    asked: list[Outbound] = []
    pass_on = Outbound.pass_on

    def noting(outbound: Outbound, run: Any) -> None:
        asked.append(outbound)
        pass_on(outbound, run)

    monkeypatch.setattr(Outbound, "pass_on", noting)
    sides[0].clients["publisher"].send(round_of(TOPICS, first=201))
    in_c = await settled(sides[0])
    by_pass_on = list(asked)
    sides[1].clients["publisher"].send(round_of(TOPICS, first=201))
    assert in_c == await settled(sides[1])
    odd = clients_of(sides[0])[1].outbound
    assert by_pass_on == ([] if state is one_is_at_its_last_identifier else [odd])
    assert sides[0].passed_on == len(TOPICS)
    await publish_round(sides, len(TOPICS))


@compiled
async def test_lone_publishes_and_those_of_a_round_come_in_their_order(sides):
    await begin(sides)

    async def do(side: Side) -> None:
        device = await side.connect("device")
        for number in range(3):
            device.send(publish(TOPICS[2], b"lone %d" % number, number + 1))
            if number == 0:
                await turns()
        side.clients["publisher"].send(round_of(TOPICS, first=201))
        device.send(publish(TOPICS[2], b"lone 3", 9))

    told = await on_both(sides, do)
    assert sides[0].passed_on == len(TOPICS)
    bodies = [body.split(b"2", 1)[1][2:] for _, body in PacketReader().feed(told[TOPICS[2]])]
    assert bodies == [b"lone 0", b"lone 1", b"lone 2", b"to device/2", b"lone 3"]


@compiled
async def test_a_subscriber_that_is_sent_away_gets_nothing_behind_its_disconnect(sides):
    await begin(sides, MQTT_5)

    async def do(side: Side) -> None:
        side.clients[TOPICS[2]].transport.send_away(Goodbye.DISMISSED)
        side.clients["publisher"].send(round_of(TOPICS, MQTT_5))

    told = await on_both(sides, do)
    assert sides[0].passed_on == len(TOPICS)
    assert [first >> 4 for first, _ in PacketReader().feed(told[TOPICS[2]])] == [wire.DISCONNECT]


@compiled
async def test_a_slow_subscriber_is_found_after_so_many_bytes_that_went_by_c(sides, monkeypatch):
    await begin(sides)
    monkeypatch.setattr(
        limits, "ROOM_CHECK_BYTES", 4 * len(publish(TOPICS[2], b"to " + TOPICS[2].encode(), 1))
    )
    for side in sides:
        client = side.clients[TOPICS[2]]
        client.loopback.waiting_bytes = 2 * UNSENT_BYTES_MAX
        client.outbound._unchecked_bytes = 0
    rounds = [await publish_round(sides, len(TOPICS)) for _ in range(6)]
    assert [bool(told[TOPICS[2]]) for told in rounds] == [True] * 4 + [False] * 2


@compiled
@pytest.mark.skipif(native.Door is None, reason="broker/mqtt/native/lone.c is not compiled")
async def test_a_subscriber_that_speaks_by_the_door_gets_its_publish_before_its_next_puback(sides):
    await begin(sides)

    async def do(side: Side) -> None:
        device = side.clients[TOPICS[2]]
        for number in range(3):
            device.send(publish(TOPICS[1], b"lone", number + 1))
            await turns()
        device.take()
        door: Any = device.transport.door
        assert door.is_open
        side.clients["publisher"].send(round_of(TOPICS))
        device.send(publish(TOPICS[1], b"lone", 9))

    told = await on_both(sides, do)
    assert sides[0].passed_on == len(TOPICS)
    assert [first >> 4 for first, _ in PacketReader().feed(told[TOPICS[2]])] == [wire.PUBLISH, wire.PUBACK]


@compiled
async def test_a_publisher_gets_its_own_publishes_between_its_pubacks(sides):
    await begin(sides)

    async def do(side: Side) -> None:
        await side.subscribe("publisher", TOPICS[2])
        side.clients["publisher"].send(round_of(TOPICS))

    await on_both(sides, do)
    told = await publish_round(sides, len(TOPICS))
    assert [first >> 4 for first, _ in PacketReader().feed(told["publisher"])] == [4, 4, 3, 4, 4, 4, 4]


@compiled
async def test_a_round_cut_anywhere_is_taken_all_the_same(sides):
    await begin(sides)
    data = round_of(TOPICS)
    for cut in range(0, len(data), 7):

        async def do(side: Side, cut: int = cut) -> None:
            side.clients["publisher"].send(data[:cut] or data)
            side.clients["publisher"].send(data[cut:])

        told = await on_both(sides, do)
        assert len(PacketReader().feed(told["publisher"])) == len(TOPICS) * (1 if cut else 2)
    assert sides[0].passed_on > 20 * len(TOPICS)


@compiled
async def test_more_than_the_receive_maximum_ends_the_connection(sides):
    """[MQTT-3.3.4-9]"""
    await begin(sides, MQTT_5)
    many = round_of(TOPICS * 4, MQTT_5)
    told = await publish_round(sides, RECEIVE_MAXIMUM, many)
    first, body = PacketReader().feed(told["publisher"])[-1]
    assert (first >> 4, body[0]) == (wire.DISCONNECT, 0x93)


@compiled
async def test_only_so_many_are_acted_on_at_once(sides, monkeypatch):
    monkeypatch.setattr(limits, "PASSED_ON_EACH_MAX", 4)
    await begin(sides)
    await publish_round(sides, 4)


@compiled
async def test_what_goes_to_several_subscribers_counts_for_each_of_them(sides, monkeypatch):
    """Or a chunk for topics that a thousand are subscribed to would keep all others waiting for seconds."""
    monkeypatch.setattr(limits, "PASSED_ON_EACH_MAX", 5)
    await begin(sides)

    async def do(side: Side) -> None:
        await side.connect("all")
        await side.subscribe("all", "device/#")
        side.clients["publisher"].send(round_of(TOPICS))

    await on_both(sides, do)
    await publish_round(sides, 3)


@compiled
async def test_a_bug_of_ours_costs_the_publisher_alone(sides, monkeypatch):
    await begin(sides)
    real = TopicTarget.direct

    def broken(target):
        if target._shape.topic == TOPICS[3]:
            raise ZeroDivisionError
        return real(target)

    monkeypatch.setattr(TopicTarget, "direct", broken)
    side = sides[0]
    side.clients["publisher"].send(round_of(TOPICS))
    told = await settled(side)
    assert [bool(told[topic]) for topic in TOPICS] == [True] * 3 + [False] * 3
    assert side.clients["publisher"].transport.frontend.connection.closed


@compiled
async def test_a_publisher_that_is_gone_is_forgotten(sides):
    await begin(sides)
    side = sides[0]
    client = side.clients.pop("publisher")
    gone = weakref.ref(client.transport.frontend)
    client.drop()
    await turns(40)
    del client
    gc.disable()
    try:
        assert gone() is None
    finally:
        gc.enable()


class Story:
    """What happens to both sides, by chance. The first two clients publish, the others subscribe.

    How many publishes go by one call may differ, and with it the place of a PUBACK among what a publisher is
    subscribed to itself, and what a slow client still gets: he is looked at for each or is not slow.
    """

    VERSIONS = (*[MQTT_5] * 40, MQTT_3_1_1)
    NAMES = tuple(f"client{number}" for number in range(8))
    FILTERS = (*TOPICS * 4, "device/+", "$share/g/device/1")

    def __init__(self, sides: list[Side], seed: int, *, some_are_slow: bool) -> None:
        self.sides = sides
        self.some_are_slow = some_are_slow
        self.chance = random.Random(seed)
        self.packet_id = 0
        self.topic = ""

    async def go(self, steps: int) -> None:
        for name in self.NAMES:
            await self.connect(name)
        await self.begin_anew()
        for number in range(steps):
            await self.step()
            if number % 8 == 7:
                await self.begin_anew()

    async def begin_anew(self) -> None:
        """Nobody waits for anything, and each topic has its one subscriber."""

        async def do(side: Side) -> None:
            for client in side.clients.values():
                while not client.outbound.release():
                    pass
                asked = p.Unsubscribe(1, list(self.FILTERS))
                client.send(encode_packet(asked, client.version))
            for name, topic in zip(self.NAMES[2:], TOPICS, strict=True):
                await side.subscribe(name, topic)

        await self.both(do)

    async def step(self) -> None:
        chance = self.chance
        name = chance.choice(self.NAMES[2:])
        what = chance.random()
        if what < 0.85:
            await self.publish(chance.choice(self.NAMES[:2]))
        elif what < 0.86:
            await self.subscribe(name, chance.choice(self.FILTERS))
        elif what < 0.87:
            await self.connect(chance.choice(self.NAMES))
        elif what < 0.97:
            await self.state(name)
        else:
            topic = chance.choice(self.FILTERS)

            async def do(side: Side) -> None:
                client = side.clients[name]
                client.send(encode_packet(p.Unsubscribe(1, [topic]), client.version))

            await self.both(do)

    async def both(self, do: Any) -> None:
        """Do it, have what came acknowledged by most, and those whose connections ended connect anew."""
        told = await on_both(self.sides, do)
        answers: dict[str, bytes] = {}
        for name, data in told.items():
            version = self.sides[0].clients[name].version
            if self.chance.random() < 0.8:
                answers[name] = b"".join(self._answer(one, version) for one in PacketReader().feed(data))

        async def answer(side: Side) -> None:
            for name, data in answers.items():
                if data:
                    side.clients[name].send(data)

        await on_both(self.sides, answer)
        for name in list(self.sides[0].clients):
            ended = [side.clients[name].transport.frontend.connection.closed for side in self.sides]
            assert ended[0] == ended[1]
            if ended[0]:
                for side in self.sides:
                    side.clients.pop(name).drop()
                await self.connect(name)

    @staticmethod
    def _answer(one: tuple[int, bytes], version: int) -> bytes:
        first, body = one
        if first >> 4 == wire.PUBLISH and first & 6 == 2:
            at = 2 + (body[0] << 8 | body[1])
            return b"\x40\x02" + body[at : at + 2]
        return b""

    async def connect(self, name: str) -> None:
        chance = self.chance
        version = chance.choice(self.VERSIONS)
        props = b""
        if version == MQTT_5:
            props = chance.choice(
                (*[b""] * 30, *[b"\x21\x00\x02"] * 4, b"\x27\x00\x00\x00\x28", b"\x22\x00\x02")
            )

        async def do(side: Side) -> None:
            old = side.clients.get(name)
            client = await side.connect(name, version, props=props)
            client.transport.take_lone = None  # which has orders of its own
            if old is not None:
                old.drop()

        await on_both(self.sides, do)

    async def subscribe(self, name: str, topic_filter: str) -> None:
        qos = self.chance.choice((0, 2, *[1] * 30))
        options = {"retain_as_published": True} if self.chance.random() < 0.2 else {}
        identifier = self.chance.random() < 0.03

        async def do(side: Side) -> None:
            client = side.clients[name]
            properties = Properties(subscription_identifiers=[7]) if identifier else Properties()
            asked = p.Subscribe(
                1,
                [p.SubscriptionRequest(topic_filter, qos, **options)],
                properties if client.version == MQTT_5 else Properties(),
            )
            client.send(encode_packet(asked, client.version))

        await self.both(do)

    async def state(self, name: str) -> None:
        what = self.chance.randrange(0 if self.some_are_slow else 1, 3)
        waiting_bytes = self.chance.choice((0, 0, 2 * UNSENT_BYTES_MAX))

        async def do(side: Side) -> None:
            client = side.clients[name]
            outbound = client.outbound
            if what == 0:
                client.loopback.waiting_bytes = waiting_bytes
            elif what == 1:
                outbound.window._next = 65_534
            else:
                outbound.hold()

        await self.both(do)

    def one(self, version: int) -> bytes:
        """One publish, nearly always such as C takes."""
        chance = self.chance
        if chance.random() < 0.98:
            self.topic = chance.choice([topic for topic in TOPICS if topic != self.topic])
        self.packet_id = self.packet_id % 65_535 + 1
        rare = chance.random()
        return wire.publish(
            self.topic if rare < 0.997 else chance.choice(("device/odd", "$queue/q")),
            chance.randbytes(chance.choice((0, 1, 30, 100, 130, 300))),
            version=version,
            qos=chance.choice((0, 2)) if 0.95 < rare < 0.953 else 1,
            packet_id=self.packet_id if rare > 0.001 else 0,
            dup=0.94 < rare < 0.942,
            retain=0.93 < rare < 0.932,
            props=b"\x26\x00\x01k\x00\x01v" if version == MQTT_5 and chance.random() < 0.002 else b"",
        )

    async def publish(self, name: str) -> None:
        chance = self.chance
        version = self.sides[0].clients[name].version
        data = bytearray()
        for _ in range(chance.randrange(1, 25)):
            data += self.one(version)
        if chance.random() < 0.03:
            data[chance.randrange(len(data))] = chance.randrange(256)
        cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 0, 1, 2))))
        parts = [bytes(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]

        async def do(side: Side) -> None:
            for part in parts:
                side.clients[name].send(part)
                await turns(2)

        await self.both(do)


@compiled
@pytest.mark.parametrize("some_are_slow", [False, True], ids=["", "slow"])
@pytest.mark.parametrize("seed", range(STORIES))
async def test_all_clients_are_told_byte_for_byte_the_same_as_without_it(
    sides, seed, some_are_slow, monkeypatch
):
    monkeypatch.setattr(limits, "ROOM_CHECK_BYTES", 0 if some_are_slow else 1_000)
    monkeypatch.setattr(limits, "MQTT_SHAPES_PER_CONNECTION_MAX", 30)
    await Story(sides, seed, some_are_slow=some_are_slow).go(60)
    assert sides[0].passed_on > 0
    assert sides[1].passed_on == 0


class Subscriber:
    """Some subscriber that is no client."""

    def __init__(self) -> None:
        self.runs: list[Any] = []

    def pass_on(self, run: Any) -> None:
        self.runs.append(run)


def call(data: bytes, known: Any, connection: Any = None, **given: Any) -> tuple[int, int]:
    connection = connection or SimpleNamespace(closed=False, output=[])
    arguments = {
        "target": TopicTarget,
        "outbound": Outbound,
        "run_of": run_of,
        "flushes": [],
        "count": 9,
        "packet": 300,
        "unchecked": 9,
    }
    return pass_on_each(data, known, connection, *(arguments | given).values())


class Target:
    def __init__(self, direct: Any) -> None:
        self._direct = direct

    def direct(self) -> Any:
        return self._direct


def known_topic(subscriber: Any, tail: bytes = b"") -> dict[bytes, Any]:
    shape = PublishShape(0x32, "a", b"")
    shape.context = Target([subscriber])  # type: ignore[assignment]
    return {b"\x00\x01a": (shape, tail)}


@compiled
def test_no_bytes_make_it_look_beyond_their_end():
    """Each in an object of its own, so that a sanitizer would see it."""
    chance = random.Random(5)
    subscriber = Subscriber()
    known = known_topic(subscriber)
    whole = publish("a", b"xyz", 7)
    for _ in range(20_000):
        data = bytearray(whole)
        for _ in range(chance.choice((0, 1, 2))):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 0x32, 0x7F, 0x80, 0x81, 0xFF))
        end = chance.randrange(2, len(data) + 1)
        if chance.random() < 0.5:
            data[1] = end - 2
        count, stop = call(bytes(data[:end]), known, target=Target)
        assert (count, stop) in ((0, 0), (1, end), (1, 2 + data[1]))
    assert {run.payloads[0] for run in subscriber.runs} >= {b"xyz", b"xy", b""}


@compiled
def test_a_subscriber_that_is_no_client_has_it_by_pass_on():
    subscriber = Subscriber()
    connection = SimpleNamespace(closed=False, output=[])
    assert call(publish("a", b"x", 7), known_topic(subscriber), connection, target=Target) == (1, 8)
    assert [(run.payloads, run.packet_ids) for run in subscriber.runs] == [([b"x"], [7])]
    assert connection.output == [b"\x40\x02\x00\x07"]


@compiled
def test_a_packet_that_is_too_large_is_left():
    assert call(publish("a", b"x", 7), known_topic(Subscriber()), target=Target, packet=7) == (0, 0)


@compiled
def test_none_is_taken_where_there_is_room_for_none():
    assert call(publish("a", b"x", 7), known_topic(Subscriber()), target=Target, count=0) == (0, 0)


@compiled
def test_a_length_that_is_not_in_its_shortest_form_is_left():
    data = publish("a", b"x", 7)
    longer = bytes((data[0], data[1] | 0x80, 0)) + data[2:]
    assert call(longer, known_topic(Subscriber()), target=Target) == (0, 0)


@compiled
def test_a_connection_that_closed_meanwhile_gets_no_puback():
    connection = SimpleNamespace(closed=True, output=[])
    assert call(publish("a", b"x", 7), known_topic(Subscriber()), connection, target=Target) == (1, 8)
    assert connection.output == []


@compiled
@pytest.mark.parametrize(
    "known",
    [
        {b"\x00\x01a": ()},
        {b"\x00\x01a": (None, b"")},
        {b"\x00\x01a": (None, "")},
        {b"\x00\x01a": None},
        known_topic(None),
        known_topic(SimpleNamespace(pass_on=None)),
    ],
    ids=["nothing", "no shape", "text", "None", "nobody", "somebody else"],
)
def test_what_is_not_as_the_decoder_keeps_it_raises(known):
    with pytest.raises((TypeError, AttributeError, SystemError, IndexError)):
        call(publish("a", b"x", 7), known, target=Target)


@compiled
@pytest.mark.parametrize("changed", ["known", "direct"])
def test_what_is_looked_at_may_change_while_it_is_passed_on(changed):
    class Changing(Subscriber):
        def pass_on(self, run: Any) -> None:
            super().pass_on(run)
            shape, _ = found
            (known if changed == "known" else shape.context._direct).clear()

    subscriber = Changing()
    known = known_topic(subscriber)
    found = known[b"\x00\x01a"]
    found[0].context._direct.append(subscriber)
    assert call(publish("a", b"x", 7), known, target=Target) == (1, 8)
    assert len(subscriber.runs) == (2 if changed == "known" else 1)


def test_nobody_is_paced_without_a_quota():
    assert NO_SHARE.is_paced is False  # what is in C looks for exactly that
