"""Publishes of QoS 1 that come one at a time, which are passed on by a shorter way than others."""

import struct

import pytest

from broker.mqtt import native
from tests.e2e import raw_mqtt as wire
from tests.e2e.mqtt import V5, V311, payloads

VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])

needs_compiled = pytest.mark.skipif(native.Door is None, reason="broker/mqtt/native/lone.c is not compiled")


@pytest.fixture(
    autouse=True, params=[pytest.param("_shared_broker", marks=needs_compiled), "_broker_in_python"]
)
def shared(request):
    return request.param


@pytest.fixture
def broker(request, shared):
    process = request.getfixturevalue(shared).running()
    yield process
    assert process.alive, process.log[-4000:]


class Device:
    """Publishes to one topic, and waits for each PUBACK."""

    def __init__(self, raw, topic, version=V5):
        self.raw, self.topic, self.version = raw, topic, version
        self._packet_id = 0

    def publish(self, payload, **options):
        """Return the reason code."""
        self._packet_id += 1
        options = {"version": self.version, "qos": 1, "packet_id": self._packet_id, **options}
        self.raw.send_bytes(wire.publish(self.topic, payload.encode(), **options))
        body = self.raw.expect(wire.PUBACK).body
        assert struct.unpack(">H", body[:2]) == (self._packet_id,)
        return body[2] if len(body) > 2 else 0


@VERSIONS
def test_lone_publishes_of_many_devices_come_in_the_order_of_each(mqtt, raw_mqtt, name, version):
    subscriber = mqtt(version=version)
    subscriber.subscribe(f"{name}/#", 1)
    devices = [Device(raw_mqtt(version=version), f"{name}/{number}", version) for number in range(5)]
    for number in range(20):
        for device in devices:
            device.publish("x" * number + f" {number}")
    messages = subscriber.take(100)
    for device in devices:
        own = [message.payload.decode().split()[-1] for message in messages if message.topic == device.topic]
        assert own == [str(number) for number in range(20)]
    assert {message.qos for message in messages} == {1}


def test_a_receive_maximum_of_one_holds_for_lone_publishes(raw_mqtt, name):
    subscriber = raw_mqtt(props=b"\x21\x00\x01")
    subscriber.send_bytes(wire.subscribe(name))
    subscriber.expect(wire.SUBACK)
    device = Device(raw_mqtt(), name)
    for number in range(5):
        device.publish(str(number))
    for number in range(5):
        body = subscriber.expect(wire.PUBLISH).body
        assert body.endswith(b"%d" % number)
        subscriber.quiet()
        at = 2 + len(name)
        subscriber.send_bytes(wire.acknowledgement(wire.PUBACK, struct.unpack_from(">H", body, at)[0]))


def test_lone_publishes_follow_subscriptions_as_they_change(mqtt, raw_mqtt, name):
    device = Device(raw_mqtt(), name)
    first, second = mqtt(), mqtt()
    first.subscribe(name, 1)
    assert [device.publish("1"), device.publish("2")] == [0, 0]
    second.subscribe(name, 0)
    device.publish("3")
    assert payloads(first.take(3)) == ["1", "2", "3"]
    assert payloads(second.take(1)) == ["3"]
    first.unsubscribe(name)
    device.publish("4")
    assert payloads(second.take(1)) == ["4"]
    second.unsubscribe(name)
    assert device.publish("5") == 0x10
    assert first.quiet()


def test_lone_publishes_stay_in_order_with_retained_ones_between(mqtt, raw_mqtt, name):
    subscriber = mqtt()
    subscriber.subscribe(name, 1)
    device = Device(raw_mqtt(), name)
    for number in range(30):
        device.publish(str(number), retain=number % 3 == 2)
    assert payloads(subscriber.take(30)) == [str(number) for number in range(30)]
    device.publish("", retain=True)


@VERSIONS
def test_a_lone_publish_with_packet_identifier_0_ends_the_connection(mqtt, raw_mqtt, name, version):
    """[MQTT-2.2.1-3]"""
    mqtt().subscribe(name, 1)
    device = Device(raw_mqtt(version=version), name, version)
    for _ in range(3):
        device.publish("a")
    device.raw.send_bytes(wire.publish(name, b"a", version=version, qos=1, packet_id=0))
    assert device.raw.farewell() == (0x82 if version == V5 else None)


def test_a_lone_publish_cut_in_two_is_taken_once_it_is_whole(mqtt, raw_mqtt, name):
    subscriber = mqtt()
    subscriber.subscribe(name, 1)
    device = Device(raw_mqtt(), name)
    for _ in range(3):
        device.publish("a")
    whole = wire.publish(name, b"b" * 50, qos=1, packet_id=7)
    device.raw.send_bytes(whole[:30])
    device.raw.send_bytes(whole[30:])
    assert device.raw.expect(wire.PUBACK).body[:2] == b"\x00\x07"
    assert payloads(subscriber.take(4))[-1] == "b" * 50


def test_a_client_gets_its_own_lone_publishes(raw_mqtt, name):
    client = raw_mqtt()
    client.send_bytes(wire.subscribe(name))
    client.expect(wire.SUBACK)
    for number in range(1, 6):
        client.send_bytes(wire.publish(name, b"%d" % number, qos=1, packet_id=number))
        kinds = {client.read().kind, client.read().kind}
        assert kinds == {wire.PUBACK, wire.PUBLISH}


def test_lone_publishes_come_in_order_with_what_the_device_subscribes_to_meanwhile(mqtt, raw_mqtt, name):
    subscriber = mqtt()
    subscriber.subscribe(f"{name}/#", 1)
    device = Device(raw_mqtt(), f"{name}/up")
    for number in range(1, 31):
        device.publish(str(number))
        if number % 10 == 0:
            device.raw.send_bytes(wire.subscribe(f"{name}/down/{number}"))
            device.raw.expect(wire.SUBACK)
            subscriber.publish(f"{name}/down/{number}", b"go", 0)
            assert device.raw.expect(wire.PUBLISH).body.endswith(b"go")
    own = [payload for payload in payloads(subscriber.take(33)) if payload != "go"]
    assert own == [str(number) for number in range(1, 31)]


@VERSIONS
def test_publishes_to_many_topics_come_in_order_with_lone_ones_between(mqtt, raw_mqtt, name, version):
    subscriber = mqtt(version=version)
    subscriber.subscribe(f"{name}/#", 1)
    publisher, device = raw_mqtt(version=version), Device(raw_mqtt(version=version), f"{name}/1", version)
    for number in range(1, 5):
        chunk = [
            wire.publish(f"{name}/{topic}", b"%d" % number, version=version, qos=1, packet_id=topic + 1)
            for topic in range(20)
        ]
        publisher.send_bytes(b"".join(chunk))
        answered = [publisher.expect(wire.PUBACK).body[:2] for _ in chunk]
        assert answered == [struct.pack(">H", topic + 1) for topic in range(20)]
        device.publish(f"{number} alone")
    messages = subscriber.take(84)
    of_topic = {f"{name}/{topic}": ["1", "2", "3", "4"] for topic in range(20)}
    of_topic[device.topic] = [told for number in "1234" for told in (number, f"{number} alone")]
    for topic, expected in of_topic.items():
        assert [m.payload.decode() for m in messages if m.topic == topic] == expected
