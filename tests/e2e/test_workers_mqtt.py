"""MQTT over several workers: clients cannot tell which worker they are connected to."""

import os
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import paho.mqtt.client as paho
import pika
import pika.exceptions
import pytest

from broker.mqtt import native
from broker.mqtt.each_topic import EachTopic
from broker.network.tls.making import Authority, write_pair
from config import limits
from config.access_settings import PermissionSettings, UserSettings, UsersSettings
from config.settings import Settings, VhostSettings
from config.users_file import save_users
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.raw_mqtt import (
    CONNACK,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V311,
    WAIT_S,
    Packet,
    RawMqtt,
    acknowledgement,
    connect,
    packet,
    properties,
    publish,
    string,
    subscribe,
)
from tests.e2e.several_workers import (
    SeveralWorkers,
    connected,
    default_settings,
    settings_at,
    several_workers,
)
from tests.e2e.workers import pids
from tests.waiting import pass_time, until

LASTING = b"\x11" + struct.pack(">I", 3600)


@pytest.fixture(scope="module", params=["2 workers", "3 workers", "2 nodes"])
def workers(request: pytest.FixtureRequest) -> Iterator[SeveralWorkers]:
    count, kind = request.param.split()
    with several_workers(int(count), are_nodes=kind == "nodes") as several:
        yield several


def subscribed(client: RawMqtt, topic_filter: str, options: int = 2, version: int = V5) -> None:
    client.send_bytes(subscribe(topic_filter, options, version=version))
    assert client.expect(SUBACK).body[-1] == options & 3


def payload_of(received: Packet, version: int = V5) -> bytes:
    """The payload of a PUBLISH with no properties of more than 127 bytes."""
    body = received.body
    at = 2 + struct.unpack_from(">H", body)[0]
    if received.flags & 6:
        at += 2
    if version == V5:
        at += 1 + body[at]
    return body[at:]


def published(client: RawMqtt, topic: str, payload: bytes, qos: int, version: int = V5, **more: bool) -> int:
    """Publish, and return the reason code of the answer."""
    client.send_bytes(publish(topic, payload, qos=qos, version=version, **more))
    if not qos:
        return 0
    answer = client.expect(PUBACK if qos == 1 else PUBREC)
    if qos == 2:
        client.send_bytes(acknowledgement(PUBREL, 1))
        client.expect(PUBCOMP)
    return answer.body[2] if len(answer.body) > 2 else 0


# homes


@pytest.mark.parametrize("version", [V311, V5])
def test_client_that_connects_anywhere_is_served_by_its_home(workers: SeveralWorkers, version: int) -> None:
    for home in range(workers.count):
        client_id = workers.client_of(home, f"home{version}")
        for at in range(workers.count):
            client = connected(workers.port(at), client_id, version)
            assert [workers.has(number, client_id) for number in range(workers.count)] == [
                number == home for number in range(workers.count)
            ]
            client.quiet()
            client.drop()


def test_client_without_identifier_stays_where_it_is(workers: SeveralWorkers) -> None:
    client = RawMqtt(workers.port(1), version=None)
    client.send_bytes(connect(V5, ""))
    client.expect(CONNACK)
    assert len(workers.brokers[1].hub.transports) == 1
    client.drop()


def test_connect_that_comes_in_parts_with_packets_behind_it_is_handed_over_whole(
    workers: SeveralWorkers,
) -> None:
    client = RawMqtt(workers.port(0), version=None)
    said = (
        connect(V5, workers.client_of(1, "parts")) + subscribe("parts", 1) + publish("parts", b"own", qos=1)
    )
    client.send_bytes(said[:7])
    client.send_bytes(said[7:30])
    client.send_bytes(said[30:])
    client.expect(CONNACK)
    answers = [client.read() for _ in range(3)]
    assert {answer.kind for answer in answers if answer is not None} == {SUBACK, PUBLISH, PUBACK}
    client.drop()


def test_second_connection_of_a_client_takes_over_from_another_port(workers: SeveralWorkers) -> None:
    client_id = workers.client_of(0, "taken")
    first = connected(workers.port(0), client_id)
    second = connected(workers.port(1), client_id)
    assert first.farewell() == 0x8E
    second.quiet()
    second.drop()


# plain topics


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publish_at_one_worker_is_heard_at_all(workers: SeveralWorkers, version: int, qos: int) -> None:
    topic = f"heard/{version}/{qos}"
    clients = []
    for home in range(workers.count):
        client = connected(workers.port(0), workers.client_of(home, f"heard{version}{qos}"), version)
        subscribed(client, ("heard/+/#", topic, "heard/#")[home], 2, version)
        clients.append(client)
    publisher = connected(workers.port(1), workers.client_of(1, "publisher"), version)
    assert published(publisher, topic, b"hello", qos, version) == 0
    for client in clients:
        received = client.expect(PUBLISH)
        assert payload_of(received, version) == b"hello"
        assert received.flags >> 1 & 3 == qos
        client.drop()
    publisher.drop()


def test_publish_that_nobody_hears_anywhere_is_answered_so(workers: SeveralWorkers) -> None:
    publisher = connected(workers.port(0), workers.client_of(0, "alone"))
    assert published(publisher, "nobody", b"x", 1) == 0x10
    for home in range(workers.count):
        client = connected(workers.port(0), workers.client_of(home, "somebody"))
        subscribed(client, "nobody")
        assert published(publisher, "nobody", b"x", 1) == 0
        client.expect(PUBLISH)
        client.send_bytes(packet(UNSUBSCRIBE, 2, b"\x00\x01" + properties(V5) + string("nobody")))
        client.expect(UNSUBACK)
        workers.settled()
        assert published(publisher, "nobody", b"x", 1) == 0x10
        client.drop()
    publisher.drop()


def test_publishes_of_one_client_come_in_order(workers: SeveralWorkers) -> None:
    client = connected(workers.port(0), workers.client_of(0, "order"))
    subscribed(client, "order/#", 1)
    publisher = connected(workers.port(0), workers.client_of(1, "orders"))
    for number in range(200):
        publisher.send_bytes(publish(f"order/{number % 3}", b"%d" % number, qos=1, packet_id=number + 1))
    for number in range(200):
        received = client.expect(PUBLISH)
        assert payload_of(received) == b"%d" % number
        at = 2 + struct.unpack_from(">H", received.body)[0]
        client.send_bytes(acknowledgement(PUBACK, struct.unpack_from(">H", received.body, at)[0]))
    client.drop()
    publisher.drop()


def test_lasting_session_keeps_what_is_published_at_another_worker(workers: SeveralWorkers) -> None:
    client_id = workers.client_of(0, "lasting")
    client = connected(workers.port(1), client_id, clean=False, props=LASTING)
    subscribed(client, "kept/+", 1)
    client.drop()
    workers.until_gone(client_id)
    publisher = connected(workers.port(0), workers.client_of(1, "keeping"))
    for qos in (1, 2):
        assert published(publisher, "kept/a", b"%d" % qos, qos) == 0
    client = connected(workers.port(workers.count - 1), client_id, clean=False, props=LASTING)
    assert client.connack.body[0] == 1
    assert [payload_of(client.expect(PUBLISH)) for _ in range(2)] == [b"1", b"2"]
    client.drop()
    connected(workers.port(0), client_id).drop()  # ends the session
    publisher.drop()


def test_will_of_a_client_is_heard_at_another_worker(workers: SeveralWorkers) -> None:
    client = connected(workers.port(0), workers.client_of(1, "mourner"))
    subscribed(client, "wills/#", 1)
    dying = RawMqtt(workers.port(0), version=None)
    will = properties(V5) + string("wills/a") + string("gone")
    dying.send_bytes(connect(V5, workers.client_of(0, "dying"), flags=0x02 | 0x04 | 0x08, after=will))
    dying.expect(CONNACK)
    dying.drop()
    assert payload_of(client.expect(PUBLISH)) == b"gone"
    client.drop()


def test_subscription_options_hold_for_what_comes_from_another_worker(workers: SeveralWorkers) -> None:
    client = connected(workers.port(0), workers.client_of(1, "options"))
    client.send_bytes(subscribe("options", 0x08 | 0x04 | 1, props=b"\x0b\x07"))
    client.expect(SUBACK)
    publisher = connected(workers.port(0), workers.client_of(0, "optional"))
    assert published(publisher, "options", b"as published", 1, retain=True) == 0
    received = client.expect(PUBLISH)
    assert received.flags & 1  # retain as published
    assert b"\x02\x0b\x07" in received.body  # its subscription identifier
    client.send_bytes(publish("options", b"own", qos=1, packet_id=9))
    kinds = [client.expect(PUBACK).kind]
    client.quiet()
    assert kinds == [PUBACK]
    published(publisher, "options", b"", 1, retain=True)
    client.drop()
    publisher.drop()


def test_amqp_publish_is_heard_by_mqtt_at_another_worker(workers: SeveralWorkers) -> None:
    client = connected(workers.port(0), workers.client_of(0, "amqp"))
    subscribed(client, "from/#", 1)
    connection = pika.BlockingConnection(pika.ConnectionParameters(port=workers.port(1, "amqp")))
    channel = connection.channel()
    channel.confirm_delivery()
    persistent = pika.BasicProperties(delivery_mode=2)
    channel.basic_publish("amq.topic", "from.amqp", b"hello", persistent, mandatory=True)
    assert payload_of(client.expect(PUBLISH)) == b"hello"
    connection.close()
    client.drop()


def test_mqtt_publish_comes_to_a_queue_of_another_worker(workers: SeveralWorkers) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters(port=workers.port(1, "amqp")))
    channel = connection.channel()
    channel.queue_declare("far", durable=True)
    channel.queue_bind("far", "amq.topic", "to.far")
    publisher = connected(workers.port(0), workers.client_of(0, "tofar"))
    assert published(publisher, "to/far", b"hello", 1) == 0
    assert channel.basic_get("far", auto_ack=True)[2] == b"hello"
    channel.queue_delete("far")
    connection.close()
    publisher.drop()


@pytest.mark.skipif(native.pass_on_each is None, reason="broker/mqtt/native/each.c is not compiled")
def test_publishes_passed_on_in_c_come_to_what_is_bound_meanwhile_at_another_worker(
    workers: SeveralWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_on: list[int] = []
    take = EachTopic.take

    def counted(*told: Any) -> tuple[int, int]:
        taken = take(*told)
        passed_on.append(taken[0])
        return taken

    monkeypatch.setattr(EachTopic, "take", counted)
    commander = connected(workers.port(0), workers.client_of(0, "commander"))
    devices = [connected(workers.port(0), workers.client_of(0, f"device{number}")) for number in range(10)]
    for number, device in enumerate(devices):
        subscribed(device, f"each/{number}", 1)
    connection = pika.BlockingConnection(pika.ConnectionParameters(port=workers.port(1, "amqp")))
    channel = connection.channel()

    def command(payload: bytes) -> None:
        passed_on.clear()
        chunk = [publish(f"each/{n}", payload, qos=1, packet_id=n + 1) for n in range(len(devices))]
        commander.send_bytes(b"".join(chunk))
        answers = [commander.expect(PUBACK).body for _ in devices]
        assert [answer[:2] for answer in answers] == [struct.pack(">H", n + 1) for n in range(len(devices))]
        assert not any(answer[2:3].strip(b"\0") for answer in answers)
        assert [payload_of(device.expect(PUBLISH)) for device in devices] == [payload] * len(devices)

    command(b"first")  # topics are known to the decoder from now on
    command(b"alone")
    assert sum(passed_on) > 1
    for turn in (b"bound", b"bound again"):
        channel.queue_declare("each", durable=True)
        channel.queue_bind("each", "amq.topic", "each.#")
        command(turn)
        assert [channel.basic_get("each", auto_ack=True)[2] for _ in devices] == [turn] * len(devices)
        channel.queue_delete("each")
        command(b"alone again")
        command(b"in C again")
        assert sum(passed_on) > 1
    connection.close()
    for client in (commander, *devices):
        client.drop()


@pytest.mark.parametrize("begins", ["publish", "subscribe"])
def test_queue_that_clients_of_all_workers_begin_to_use_at_once_is_one(
    workers: SeveralWorkers, begins: str
) -> None:
    numbers = range(workers.count)
    clients = [
        connected(workers.port(number), workers.client_of(number, f"first{begins}")) for number in numbers
    ]
    for name in [f"first-{begins}-{number}" for number in range(8)]:
        topic = f"$queue/{name}"
        publishes = [
            [publish(topic, b"%d-%d" % (number, index), qos=1, packet_id=index + 1) for index in range(5)]
            for number in numbers
        ]
        begin = subscribe(f"$share/all/{topic}", 0, packet_id=9)
        for client, own in zip(clients, publishes, strict=True):  # in one write each
            client.send_bytes(b"".join([begin, *own] if begins == "subscribe" else [*own, begin]))
        sent = sorted(b"%d-%d" % (number, index) for number in numbers for index in range(5))
        came: list[Packet] = []

        def all_came(came: list[Packet] = came, count: int = len(sent)) -> bool:
            for client in clients:
                with suppress(TimeoutError):
                    while True:
                        came.append(client.read(0.01))  # type: ignore[arg-type]
            return [packet.kind for packet in came].count(PUBLISH) >= count

        until(all_came)
        kinds = [packet.kind for packet in came]
        assert kinds.count(PUBACK) == len(sent)
        assert kinds.count(SUBACK) == len(clients)
        assert sorted(payload_of(packet) for packet in came if packet.kind == PUBLISH) == sent
        holding = [
            number for number in numbers if name in workers.brokers[number].hub.client.shard.manager.queues
        ]
        assert len(holding) == 1
    for client in clients:
        client.drop()


@pytest.fixture
def slow(workers: SeveralWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the second worker tell late of what changes by itself."""
    second = workers.brokers[1]._workers
    assert second is not None
    tell_late = partial(second._loop.call_later, 0.3, second.directory.tell)
    monkeypatch.setattr(second.directory, "on_change", tell_late)


@pytest.mark.parametrize("begins", ["anew", "session"])
def test_queue_that_went_as_it_is_subscribed_to_again_is_made_anew(
    workers: SeveralWorkers, slow: None, begins: str
) -> None:
    name = f"going-{begins}"
    connection = pika.BlockingConnection(pika.ConnectionParameters(port=workers.port(1, "amqp")))
    connection.channel().queue_declare(name, auto_delete=True)
    client_id = workers.client_of(0, name)
    old = client = connected(workers.port(0), client_id, clean=False, props=LASTING)
    subscribed(client, f"$queue/{name}", 1)
    if begins == "anew":
        client.send_bytes(packet(UNSUBSCRIBE, 2, b"\0\5" + properties(V5) + string(f"$queue/{name}")))
        client.expect(UNSUBACK)
        subscribed(client, f"$queue/{name}", 1)
    else:
        client = connected(workers.port(0), client_id, clean=False, props=LASTING)
        assert client.connack.body[0] == 1

    def is_delivered() -> bool:
        """What a resumed session publishes before its queue is made anew goes with the old one."""
        client.send_bytes(publish(f"$queue/{name}", b"kept", qos=1))
        with suppress(TimeoutError):
            while received := client.read(0.3):
                if received.kind == PUBLISH:
                    return payload_of(received) == b"kept"
        return False

    until(is_delivered)
    old.drop()
    client.drop()
    connection.close()


# retained messages


def retained_of(client: RawMqtt, topic_filter: str, count: int, options: int = 2) -> list[bytes]:
    """Subscribe, and return the retained messages that come; there are no more than so many."""
    client.send_bytes(subscribe(topic_filter, options))
    client.expect(SUBACK)
    found: list[bytes] = []
    for _ in range(count):
        received = client.expect(PUBLISH)
        assert received.flags & 1
        found.append(payload_of(received))
    # a last one of a filter of its own comes behind all others
    client.send_bytes(subscribe("last", 0))
    client.expect(SUBACK)
    assert payload_of(client.expect(PUBLISH)) == b"last"
    return sorted(found)


def test_retained_message_set_at_one_worker_is_read_at_all(workers: SeveralWorkers) -> None:
    publisher = connected(workers.port(0), workers.client_of(0, "setting"))
    topics = sorted([f"set/{number}" for number in range(10)] + ["set/y", "set/z/z"])
    published(publisher, "last", b"last", 1, retain=True)
    for topic in topics:
        assert published(publisher, topic, topic.encode(), 1, retain=True) == 0
    for home in range(workers.count):
        client = connected(workers.port(0), workers.client_of(home, "reading"))
        assert retained_of(client, "set/#", len(topics), 0) == [topic.encode() for topic in topics]
        assert retained_of(client, "set/#", 0, 0x10) == []  # retain handling 1: it is no new subscription
        assert retained_of(client, "set/y", 0, 0x20) == []
        assert retained_of(client, "set/z/+", 1) == [b"set/z/z"]
        client.drop()
    for topic in topics:
        assert published(publisher, topic, b"", 1, retain=True) in (0, 0x10)
    client = connected(workers.port(0), workers.client_of(1, "reading"))
    assert retained_of(client, "set/#", 0) == []
    client.drop()
    publisher.drop()


def test_retained_message_is_replaced_from_any_worker(workers: SeveralWorkers) -> None:
    for home in range(workers.count):
        publisher = connected(workers.port(0), workers.client_of(home, "replacing"))
        published(publisher, "last", b"last", 1, retain=True)
        published(publisher, "replaced", b"%d" % home, 2, retain=True)
        publisher.drop()
    for home in range(workers.count):
        client = connected(workers.port(0), workers.client_of(home, "reading"))
        assert retained_of(client, "replaced", 1) == [b"%d" % (workers.count - 1)]
        client.drop()


@pytest.mark.parametrize("props", [b"", LASTING], ids=["clean", "lasting"])
def test_retained_messages_of_a_worker_that_is_away_come_once_it_is_back(
    monkeypatch: pytest.MonkeyPatch, props: bytes
) -> None:
    monkeypatch.setattr(limits, "WORKER_WAIT_MS", 20_000)
    with several_workers(2) as two:
        publisher = connected(two.port(0), two.client_of(0, "setting"))
        for home in (0, 1):
            assert published(publisher, two.client_of(home, "of/worker"), b"%d" % home, 1, retain=True) == 0
        reader, leaving, unsubscribing, changing = clients = [
            connected(two.port(0), two.client_of(0, name), clean=not props, props=props)
            for name in ("reading", "leaving", "unsubscribing", "changing")
        ]
        with two.cut_off(1):
            for client in clients:
                client.send_bytes(subscribe("of/+", 1))
                client.expect(SUBACK)
                assert acknowledged(client) == b"0"
            leaving.drop()
            unsubscribing.send_bytes(packet(UNSUBSCRIBE, 2, struct.pack(">H", 9) + b"\0" + string("of/+")))
            unsubscribing.expect(UNSUBACK)
            changing.send_bytes(subscribe("of/+", 0))  # made anew: its messages are sent anew
            changing.expect(SUBACK)
            assert payload_of(changing.expect(PUBLISH)) == b"0"
            reader.quiet()
        assert acknowledged(reader) == b"1"
        assert payload_of(changing.expect(PUBLISH)) == b"1"
        for client in (reader, unsubscribing, changing):
            client.quiet()
            client.drop()
        publisher.drop()


def test_many_retained_messages_come_by_the_page(workers: SeveralWorkers) -> None:
    publisher = connected(workers.port(0), workers.client_of(0, "setting"))
    for number in range(1200):
        publisher.send_bytes(publish(f"many/{number}", b"%d" % number, retain=True))
    assert published(publisher, "many/last", b"last", 1, retain=True) == 0
    client = connected(workers.port(0), workers.client_of(1, "reading"))
    client.send_bytes(subscribe("many/#", 0))
    client.expect(SUBACK)
    found = {payload_of(client.expect(PUBLISH)) for _ in range(1201)}
    assert len(found) == 1201
    client.quiet()
    client.drop()
    publisher.drop()


# shared subscriptions


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_shared_subscription_over_all_workers_gets_each_message_once(
    workers: SeveralWorkers, qos: int
) -> None:
    homes = [0, 0, *range(1, workers.count)]
    members = [
        connected(workers.port(0), workers.client_of(home, f"member{place}"))
        for place, home in enumerate(homes)
    ]
    for member in members:
        subscribed(member, "$share/g/shared/#", qos)
    publisher = connected(workers.port(0), workers.client_of(1, "sharing"))
    count = 10 * len(members)
    for number in range(count):
        assert published(publisher, "shared/a", b"%d" % number, qos) == 0
    shares = [[payload_of(member.expect(PUBLISH)) for _ in range(10)] for member in members]
    assert sorted(sum(shares, [])) == sorted(b"%d" % number for number in range(count))
    for member in members[1:]:
        member.drop()
    workers.until_alone(members[0], publisher)
    for number in range(10):
        assert published(publisher, "shared/a", b"%d" % number, qos) == 0
    members[0].drop()
    publisher.drop()


# a worker that is away


@pytest.mark.parametrize("version", [V311, V5])
def test_client_whose_home_is_away_is_told_so_within_seconds(version: int) -> None:
    with several_workers(2) as two:
        client_id = two.client_of(1)
        two.run(two.brokers[1].stop())
        client = RawMqtt(two.port(0), version=None)
        client.send_bytes(connect(version, client_id))
        assert client.farewell(timeout_s=5) == (0x88 if version == V5 else 3)
        other = connected(two.port(0), two.client_of(0), version)
        other.quiet()
        other.drop()


@pytest.mark.parametrize("version", [V311, V5])
def test_publish_for_a_session_of_a_worker_that_is_away_is_refused(version: int) -> None:
    with several_workers(2) as two:
        session = connected(two.port(0), two.client_of(1), clean=False, props=LASTING)
        subscribed(session, "kept", 1)
        publisher = connected(two.port(0), two.client_of(0), version)
        two.run(two.brokers[1].stop())
        publisher.send_bytes(publish("kept", b"lost", qos=1, version=version))
        if version == V311:
            assert publisher.farewell() is None
        else:
            assert publisher.expect(PUBACK).body[2] == 0x80
            assert published(publisher, "others", b"", 1) == 0x10
        session.drop()


def test_session_keeps_a_subscription_to_a_queue_of_a_worker_that_is_away() -> None:
    with several_workers(2) as two:
        channel = pika.BlockingConnection(pika.ConnectionParameters(port=two.port(1, "amqp"))).channel()
        channel.queue_declare("away", durable=True)
        two.settled()
        session = connected(two.port(0), two.client_of(0), clean=False, props=LASTING)
        subscribed(session, "$share/g/$queue/away", 1)
        session.drop()
        two.until_gone(two.client_of(0))
        two.run(two.brokers[1].stop())
        for _ in range(2):
            session = connected(two.port(0), two.client_of(0), clean=False, props=LASTING)
            assert session.farewell() == 0x89
        session = connected(two.port(0), two.client_of(0, "other"))
        session.send_bytes(subscribe("$queue/away", 1))
        assert session.expect(SUBACK).body[-1] == 0x80
        session.drop()


def test_client_is_heard_while_it_waits_for_a_queue_of_a_worker_that_is_away() -> None:
    with several_workers(2) as two:
        channel = pika.BlockingConnection(pika.ConnectionParameters(port=two.port(1, "amqp"))).channel()
        channel.queue_declare("away", durable=True)
        two.settled()
        two.run(two.brokers[1].stop())
        client = connected(two.port(0), two.client_of(0))
        client.send_bytes(subscribe("$queue/away", 1, packet_id=1))
        client.send_bytes(publish("heard", b"m", qos=1, packet_id=2))
        client.expect(PUBACK)
        asked = range(3, 3 + limits.MQTT_HELD_REQUESTS_MAX)
        for number in asked:
            client.send_bytes(subscribe("plain", 0, packet_id=number))
        pass_time(0.2)  # what comes in one piece with them is read
        client.send_bytes(packet(PINGREQ, 0))
        answers = [client.read() for _ in range(1 + len(asked) + 1)]
        assert [each.kind for each in answers if each] == [SUBACK] * (1 + len(asked)) + [PINGRESP]
        found = [struct.unpack(">H", each.body[:2])[0] for each in answers[:-1] if each]
        assert found == [1, *asked]
        client.drop()


def test_subscriptions_that_wait_for_queues_of_a_worker_that_is_away_are_answered_one_by_one() -> None:
    with several_workers(2) as two:
        channel = pika.BlockingConnection(pika.ConnectionParameters(port=two.port(1, "amqp"))).channel()
        channel.queue_declare("away", durable=True)
        two.settled()
        two.run(two.brokers[1].stop())
        client = connected(two.port(0), two.client_of(0))
        filters = ("$queue/away", "$queue/away", "plain")
        for number, topic_filter in enumerate(filters, 1):
            client.send_bytes(subscribe(topic_filter, 0, packet_id=number))
        answers = [client.expect(SUBACK).body for _ in filters]
        assert [struct.unpack(">H", body[:2])[0] for body in answers] == [1, 2, 3]
        assert [body[-1] for body in answers] == [0x80, 0x80, 0]
        client.drop()


def test_publish_that_a_full_session_of_another_worker_refuses_is_answered_in_order() -> None:
    settings = default_settings()
    sessions = settings.mqtt.sessions.model_copy(update={"max_queued_messages": 10, "drop": "reject"})
    mqtt = settings.mqtt.model_copy(update={"sessions": sessions})
    with several_workers(2, settings.model_copy(update={"mqtt": mqtt})) as two:
        session_id = two.client_of(1)
        session = connected(two.port(0), session_id, clean=False, props=LASTING)
        subscribed(session, "kept/full", 1)
        session.drop()
        two.until_gone(session_id)
        publisher = connected(two.port(0), two.client_of(0))
        for number in range(30):
            topic = "kept/none" if number % 3 == 2 else "kept/full"
            publisher.send_bytes(publish(topic, b"%d" % number, qos=1, packet_id=number + 1))
        answers = [publisher.expect(PUBACK).body for _ in range(30)]
        codes = {struct.unpack(">H", each[:2])[0]: each[2] if len(each) > 2 else 0 for each in answers}
        assert sorted(codes) == list(range(1, 31))
        assert [number for number in codes if (number - 1) % 3 != 2] == [n for n in range(1, 31) if n % 3]
        kept = [code for number, code in codes.items() if (number - 1) % 3 != 2]
        assert kept == [0] * 10 + [0x97] * 10


@pytest.mark.extension
def test_kills_of_a_worker_lose_nothing_that_was_confirmed(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    broker = own_broker({"workers": 2})
    ids = [next(f"c{n}" for n in range(99) if _home(f"c{n}") == home) for home in (0, 1)]
    session = connected(broker.mqtt_port, ids[1], clean=False, props=LASTING)
    subscribed(session, "kept/#", 1)
    session.drop()
    publisher = connected(broker.mqtt_port, ids[0])
    confirmed: list[int] = []
    refused_count = 0
    number = 0
    for _ in range(4):
        until_number = number + 300
        while number < until_number:
            batch = range(number, number + 20)
            publisher.send_bytes(
                b"".join(
                    publish("kept/a", b"%d" % each, qos=1, packet_id=each % 60_000 + 1) for each in batch
                )
            )
            if number == until_number - 160:
                os.kill(pids(broker)[1], signal.SIGKILL)
            for each in batch:
                answer = publisher.expect(PUBACK).body
                assert struct.unpack(">H", answer[:2])[0] == each % 60_000 + 1
                if len(answer) > 2 and answer[2] >= 0x80:
                    refused_count += 1
                else:
                    confirmed.append(each)
            number += 20
        until(lambda: broker_answers(broker, ids[1]))
    assert refused_count
    assert confirmed
    session = connected(broker.mqtt_port, ids[1], clean=False, props=LASTING)
    assert session.connack.body[0] == 1
    found: set[int] = set()
    published(publisher, "kept/last", b"-1", 1)
    while -1 not in found:
        received = session.expect(PUBLISH)
        found.add(int(payload_of(received)))
        at = 2 + struct.unpack_from(">H", received.body)[0]
        session.send_bytes(acknowledgement(PUBACK, struct.unpack_from(">H", received.body, at)[0]))
    assert found >= set(confirmed)


def broker_answers(broker: BrokerProcess, client_id: str) -> bool:
    """Whether the worker of a client is there, which is told apart from that of its session."""
    client = RawMqtt(broker.mqtt_port, version=None)
    client.send_bytes(connect(V5, next(f"x{n}" for n in range(99) if _home(f"x{n}") == _home(client_id))))
    answer = client.read()
    client.drop()
    return answer is not None and answer.body[1] == 0


def _home(client_id: str) -> int:
    return crc32(f"/\x1d{client_id}".encode()) % 2


# TLS, WebSocket, proxies


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SeveralWorkers, Path]]:
    """Two workers with TLS, WebSocket over TLS, and a port behind a proxy; `seven` logs in by certificate."""
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority.made()
    write_pair(directory, "ca", authority.key, authority.certificate)
    write_pair(directory, "server", *authority.issue("localhost", ["localhost", "127.0.0.1"], is_server=True))
    write_pair(directory, "device", *authority.issue("device-7", is_server=False))
    everything = PermissionSettings(configure=".*", write=".*", read=".*")
    user = UserSettings(name="seven", certificates=("cn:device-7",), permissions=(everything,))
    save_users(directory / "users.yaml", UsersSettings(users=(user,)))
    pem = {"cert": f"{directory}/server.crt", "key": f"{directory}/server.key"}
    tls = {**pem, "client_ca": f"{directory}/ca.crt", "client_certificate": "optional"}
    settings = Settings.model_validate(
        {
            "storage": {"url": "memory:"},
            "access": {
                "users_file": f"{directory}/users.yaml",
                "anonymous": "always",
                "anonymous_permissions": [everything.model_dump()],
            },
            "listeners": {
                "mqtt": {"port": 0, "proxy_protocol": True},
                "amqp": {"port": 0},
                "mqtts": {"port": 0, "tls": tls},
                "mqtt_wss": {"port": 0, "tls": tls},
                "mqtt_ws": {"port": 0},
            },
        }
    )
    with several_workers(2, settings) as two:
        yield two, directory


@pytest.mark.parametrize("home", [0, 1])
@pytest.mark.parametrize("listener", ["mqtts", "mqtt_ws", "mqtt_wss"])
def test_connection_with_tls_or_frames_is_relayed(
    secured: tuple[SeveralWorkers, Path], listener: str, home: int
) -> None:
    two, directory = secured
    client_id = two.client_of(home, listener)
    transport: Literal["websockets", "tcp"] = "websockets" if "ws" in listener else "tcp"
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, transport=transport)
    if listener != "mqtt_ws":
        client.tls_set(f"{directory}/ca.crt", f"{directory}/device.crt", f"{directory}/device.key")
    received: list[bytes] = []
    client.on_message = lambda _client, _data, message: received.append(message.payload)
    client.connect("127.0.0.1", two.port(0, listener))
    client.loop_start()
    until(lambda: two.has(home, client_id))
    view = two.view(home, client_id)
    assert view.peer.startswith("127.0.0.1:")
    assert view.description.user == ("seven" if listener != "mqtt_ws" else "")
    body = b"x" * 3_000_000  # more than a relay takes at a time
    client.subscribe("large", 1)
    client.publish("large", body, 1).wait_for_publish(20)
    until(lambda: received)
    assert received == [body]
    client.disconnect()
    client.loop_stop()
    two.until_gone(client_id)


def test_client_behind_a_proxy_keeps_its_address(secured: tuple[SeveralWorkers, Path]) -> None:
    two, _ = secured
    client_id = two.client_of(1, "proxied")
    client = RawMqtt(two.port(0), version=None)
    client.send_bytes(b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 1883\r\n" + connect(V5, client_id))
    client.expect(CONNACK)
    assert two.view(1, client_id).peer == "192.0.2.7:4711"
    client.drop()


# share groups with lasting members


def lasting_member(workers: SeveralWorkers, home: int, name: str) -> RawMqtt:
    return connected(workers.port(0), workers.client_of(home, name), clean=False, props=LASTING)


def acknowledged(client: RawMqtt, timeout_s: float = WAIT_S) -> bytes:
    """Take a PUBLISH of QoS 1, answer it, and return its payload. Raises TimeoutError."""
    received = client.expect(PUBLISH, timeout_s)
    at = 2 + struct.unpack_from(">H", received.body)[0]
    client.send_bytes(acknowledgement(PUBACK, struct.unpack_from(">H", received.body, at)[0]))
    return payload_of(received)


def test_share_group_with_lasting_members_at_several_workers_gets_each_message_once(
    workers: SeveralWorkers,
) -> None:
    lasting = [lasting_member(workers, home, "sharer") for home in (0, 1)]
    members = [*lasting, connected(workers.port(0), workers.client_of(workers.count - 1, "clean"))]
    for member in members:
        subscribed(member, "$share/kept/parts/#", 1)
    plain = lasting_member(workers, 0, "beside")  # has what the filter matches besides
    subscribed(plain, "parts/#", 1)
    publisher = connected(workers.port(0), workers.client_of(1, "sharing"))
    for number in range(30):
        assert published(publisher, "parts/a", b"%d" % number, 1) == 0
    shares = [[acknowledged(member) for _ in range(10)] for member in members]
    everything = sorted(b"%d" % number for number in range(30))
    assert sorted(sum(shares, [])) == everything
    assert sorted(acknowledged(plain) for _ in range(30)) == everything
    for member in members:
        member.quiet()
        member.drop()
    plain.drop()
    workers.until_alone(publisher)
    for number in range(30, 40):  # nobody is there
        assert published(publisher, "parts/a", b"%d" % number, 1) == 0
    lasting = [lasting_member(workers, home, "sharer") for home in (0, 1)]
    waiting = sorted(b"%d" % number for number in range(30, 40))
    first: list[bytes] = []
    second: list[bytes] = []
    assert published(publisher, "parts/last", b"last", 1) == 0
    while len(first) + len(second) < 11:
        for member, found in zip(lasting, (first, second), strict=True):
            with suppress(TimeoutError):
                found.append(acknowledged(member, 0.05))
    assert sorted(first + second) == [*waiting, b"last"]
    for home in (0, 1):
        lasting[home].drop()
        for name in ("sharer", "beside"):  # end the sessions
            connected(workers.port(0), workers.client_of(home, name)).drop()
    workers.until_alone(publisher)
    assert published(publisher, "parts/a", b"x", 1) == 0x10
    publisher.drop()


# starts


def test_what_one_worker_had_is_there_with_several_and_after_a_start(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    ids = [f"old-{number}" for number in range(6)]
    topics = [f"old/{number}" for number in range(6)]
    with several_workers(1, settings) as one:
        for client_id in ids:
            client = connected(one.port(0), client_id, clean=False, props=LASTING)
            subscribed(client, f"to/{client_id}", 1)
            subscribed(client, "$share/old/jobs", 1)
            client.drop()
        publisher = connected(one.port(0), "p")
        one.until_alone(publisher)
        for topic in topics:
            published(publisher, topic, b"before", 1, retain=True)
        for client_id in ids:
            published(publisher, f"to/{client_id}", b"before", 1)
            published(publisher, "jobs", client_id.encode(), 1)
        publisher.drop()
    for start in (1, 2):
        with several_workers(3, settings) as three:
            publisher = connected(three.port(0), three.client_of(2))
            for topic in topics[::2]:
                published(publisher, topic, b"%d" % start, 1, retain=True)
            if start == 1:
                published(publisher, "last", b"last", 1, retain=True)
                for client_id in ids:
                    published(publisher, f"to/{client_id}", b"after", 1)
                    published(publisher, "jobs", client_id.upper().encode(), 1)
                published(publisher, "last", b"last", 1, retain=True)
            assert retained_of(publisher, "old/#", 6) == [b"%d" % start] * 3 + [b"before"] * 3
            if start == 2:
                jobs: list[bytes] = []
                for client_id in ids:
                    client = connected(three.port(1), client_id, clean=False, props=LASTING)
                    assert client.connack.body[0] == 1
                    found = [acknowledged(client)]
                    while True:
                        with suppress(TimeoutError):
                            found.append(acknowledged(client, 0.3))
                            continue
                        break
                    jobs += [each for each in found if each not in (b"before", b"after")]
                    assert [each for each in found if each in (b"before", b"after")] == [b"before", b"after"]
                assert sorted(jobs) == sorted(
                    name for each in ids for name in (each.encode(), each.upper().encode())
                )
            publisher.drop()


def test_amqp_publish_for_a_session_of_a_worker_that_is_away_is_nacked() -> None:
    with several_workers(2) as two:
        session = connected(two.port(0), two.client_of(1), clean=False, props=LASTING)
        subscribed(session, "from/#", 1)
        connection = pika.BlockingConnection(pika.ConnectionParameters(port=two.port(0, "amqp")))
        channel = connection.channel()
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=2)
        channel.basic_publish("amq.topic", "from.amqp", b"kept", persistent, mandatory=True)
        two.run(two.brokers[1].stop())
        with pytest.raises(pika.exceptions.NackError):
            channel.basic_publish("amq.topic", "from.amqp", b"lost", persistent, mandatory=True)
        connection.close()
        session.drop()


def test_queue_of_a_worker_that_is_away_is_not_made_anew_for_who_subscribes_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "WORKER_WAIT_MS", 100)
    with several_workers(2) as two:
        channels = [
            pika.BlockingConnection(pika.ConnectionParameters(port=two.port(number, "amqp"))).channel()
            for number in (0, 1)
        ]
        channels[1].queue_declare("of-the-other", durable=True)
        two.settled()
        client = connected(two.port(0), two.client_of(0))
        with two.cut_off(1):
            for topic in ("$queue/of-the-other", "$share/g/$queue/of-the-other"):
                client.send_bytes(subscribe(topic, 1))
                assert client.expect(SUBACK).body[-1] >= 0x80
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="down or inaccessible"):
                channels[0].basic_consume("of-the-other", lambda *_: None)
        subscribed(client, "$queue/of-the-other", 1)
        channels[1].basic_publish("", "of-the-other", b"m")  # where it was
        assert acknowledged(client) == b"m"
        client.drop()


def test_virtual_hosts_are_apart_at_all_workers() -> None:
    settings = default_settings().model_copy(update={"vhosts": (VhostSettings(name="other"),)})
    with several_workers(2, settings) as two:
        login = string("other:guest") + string("guest")
        clients = []
        for home in (0, 1):
            client = RawMqtt(two.port(0), version=None)
            client.send_bytes(connect(V5, two.client_of(home, vhost="other"), flags=0xC2, after=login))
            assert client.expect(CONNACK).body[1] == 0
            clients.append(client)
        outside = connected(two.port(0), two.client_of(1, "outside"))
        for client in (*clients, outside):
            subscribed(client, "apart/#", 1)
        assert published(clients[0], "apart/a", b"inside", 0, retain=True) == 0
        for client in clients:
            assert payload_of(client.expect(PUBLISH)) == b"inside"
        outside.quiet()
        publisher = connected(two.port(0), two.client_of(0, "outside"))
        assert published(publisher, "apart/a", b"outside", 1, retain=True) == 0
        assert payload_of(outside.expect(PUBLISH)) == b"outside"
        clients[1].send_bytes(subscribe("apart/+", 0))
        clients[1].expect(SUBACK)
        assert payload_of(clients[1].expect(PUBLISH)) == b"inside"
