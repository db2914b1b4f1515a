"""Input that no MQTT client should send ends that one connection, with the specification's code."""

import os
import random

import pytest

from tests.e2e import raw_mqtt as wire
from tests.e2e.broker_process import ForeignBroker
from tests.e2e.raw_mqtt import V5, V311

MALFORMED, PROTOCOL_ERROR, NOT_SUPPORTED = 0x81, 0x82, 0x84
VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])


@pytest.fixture
def bystander(mqtt, name):
    """Another connection that must still work after the test."""
    client = mqtt()
    client.subscribe(f"{name}/bystander")
    yield client
    client.publish(f"{name}/bystander", "still here")
    assert client.take_one().payload == b"still here"


def said_by(broker, reasons: set[int]) -> set[int | None]:
    """mosquitto often hangs up without a DISCONNECT where MQTT 5 only recommends one."""
    return {*reasons, None} if isinstance(broker, ForeignBroker) else set(reasons)


# before CONNECT, or instead of it; and what CONNACK may say before the broker hangs up (None: nothing)
BEFORE = {
    "garbage": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", {None}),
    "zeros": (b"\x00" * 32, {None}),
    "an AMQP client": (b"AMQP\x00\x00\x09\x01", {None}),
    "publish first": (wire.publish("a", b"x", version=V311), {None}),
    "subscribe first": (wire.subscribe("a", version=V311), {None}),
    "ping first": (wire.packet(wire.PINGREQ, 0), {None}),
    "remaining length of five bytes": (b"\x10\xff\xff\xff\xff\x01", {None}),
    "huge": (b"\x10\xff\xff\xff\x7f" + b"x" * 1_000, {None, MALFORMED, 0x95}),
    "unknown protocol name": (wire.connect(V311, "c", name="MQTX"), {None, 0x01, NOT_SUPPORTED}),
    "unknown version": (wire.connect(9, "c"), {0x01, NOT_SUPPORTED}),
    "reserved connect flag": (wire.connect(V311, "c", flags=0x03), {None}),
    "reserved connect flag in 5": (wire.connect(V5, "c", flags=0x03), {None, MALFORMED}),
    "will QoS 3": (wire.connect(V311, "c", flags=0x1E, after=wire.string("t") + wire.string("p")), {None}),
    "will flags without a will": (wire.connect(V311, "c", flags=0x22), {None}),
    "password without a user name in 3.1.1": (
        wire.connect(V311, "c", flags=0x42, after=wire.string("p")),
        {None, 0x04},
    ),
    "cut short": (wire.connect(V311, "c")[:-1][:1] + b"\x04" + wire.string("MQ"), {None}),
    "bytes after the end": (
        wire.packet(wire.CONNECT, 0, wire.connect(V311, "c")[2:] + b"more"),
        {None, MALFORMED},
    ),
    "reserved bits in the first byte": (b"\x1f" + wire.connect(V311, "c")[1:], {None, MALFORMED}),
    "client id that is not UTF-8": (
        wire.packet(wire.CONNECT, 0, wire.string("MQTT") + b"\x04\x02\x00\x00" + wire.string(b"\xff\xfe")),
        {None, 0x02},
    ),
    "unknown property": (wire.connect(V5, "c", props=b"\x7f\x00"), {None, MALFORMED}),
    "property twice": (
        wire.connect(V5, "c", props=b"\x21\x00\x05\x21\x00\x05"),
        {None, MALFORMED, PROTOCOL_ERROR},
    ),
    "receive maximum 0": (wire.connect(V5, "c", props=b"\x21\x00\x00"), {None, MALFORMED, PROTOCOL_ERROR}),
    "properties longer than the packet": (
        wire.packet(wire.CONNECT, 0, wire.string("MQTT") + b"\x05\x02\x00\x00\x7f"),
        {None, MALFORMED},
    ),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.extension if case == "huge" else ()) for case in BEFORE]
)
def test_invalid_first_packet_ends_the_connection(raw_mqtt, bystander, case):
    data, reasons = BEFORE[case]
    connection = raw_mqtt(version=None)
    connection.send_quietly(data)
    assert connection.farewell() in reasons  # type: ignore[operator]


# on a connection that is open: packets of both versions, and the reason code of MQTT 5's DISCONNECT
def violations(version: int) -> dict[str, tuple[bytes, set[int]]]:
    block = wire.properties(version)
    bad_subscribe = wire.string("t")
    return {
        "second CONNECT": (wire.connect(version, "again"), {PROTOCOL_ERROR}),
        "packet type 0": (b"\x00\x00", {MALFORMED, PROTOCOL_ERROR}),
        "CONNACK from a client": (
            wire.packet(wire.CONNACK, 0, b"\x00\x00" + block),
            {MALFORMED, PROTOCOL_ERROR},
        ),
        "SUBACK from a client": (
            wire.packet(wire.SUBACK, 0, b"\x00\x01" + block + b"\x00"),
            {MALFORMED, PROTOCOL_ERROR},
        ),
        "PINGRESP from a client": (wire.packet(wire.PINGRESP, 0), {MALFORMED, PROTOCOL_ERROR}),
        "QoS 3": (wire.packet(wire.PUBLISH, 6, wire.string("t") + b"\x00\x01" + block), {MALFORMED}),
        "DUP at QoS 0": (wire.publish("t", version=version, dup=True), {MALFORMED, PROTOCOL_ERROR}),
        "packet id 0": (wire.publish("t", version=version, qos=1, packet_id=0), {MALFORMED, PROTOCOL_ERROR}),
        "subscribe with packet id 0": (
            wire.subscribe("t", version=version, packet_id=0),
            {MALFORMED, PROTOCOL_ERROR},
        ),
        "wildcard in a topic": (wire.publish("a/+", version=version), {MALFORMED, PROTOCOL_ERROR, 0x90}),
        "empty topic": (wire.publish("", version=version), {MALFORMED, PROTOCOL_ERROR, 0x90}),
        "topic that is not UTF-8": (wire.publish(b"\xff\xfe", version=version), {MALFORMED}),
        "topic with NUL": (wire.publish("a\0b", version=version), {MALFORMED, PROTOCOL_ERROR, 0x90}),
        "topic with a surrogate": (wire.publish(b"\xed\xa0\x80", version=version), {MALFORMED}),
        "topic longer than the packet": (wire.packet(wire.PUBLISH, 0, b"\x00\x09abc"), {MALFORMED}),
        "publish with no packet id": (wire.packet(wire.PUBLISH, 2, wire.string("t")), {MALFORMED}),
        "filter that is not UTF-8": (wire.subscribe(b"\xff", version=version), {MALFORMED}),
        "subscribe to nothing": (
            wire.packet(wire.SUBSCRIBE, 2, b"\x00\x01" + block),
            {MALFORMED, PROTOCOL_ERROR},
        ),
        "subscribe with no options": (
            wire.packet(wire.SUBSCRIBE, 2, b"\x00\x01" + block + bad_subscribe),
            {MALFORMED},
        ),
        "subscribe at QoS 3": (wire.subscribe("t", 3, version=version), {MALFORMED, PROTOCOL_ERROR}),
        "reserved subscribe options": (
            wire.subscribe("t", 0xC1, version=version),
            {MALFORMED, PROTOCOL_ERROR},
        ),
        "subscribe flags": (b"\x80" + wire.subscribe("t", version=version)[1:], {MALFORMED}),
        "unsubscribe from nothing": (
            wire.packet(wire.UNSUBSCRIBE, 2, b"\x00\x01" + block),
            {MALFORMED, PROTOCOL_ERROR},
        ),
        "unsubscribe flags": (
            wire.packet(wire.UNSUBSCRIBE, 0, b"\x00\x01" + block + wire.string("t")),
            {MALFORMED},
        ),
        "pubrel flags": (wire.packet(wire.PUBREL, 0, b"\x00\x01"), {MALFORMED}),
        "pingreq flags": (wire.packet(wire.PINGREQ, 3), {MALFORMED}),
        "ping with a body": (wire.packet(wire.PINGREQ, 0, b"x"), {MALFORMED}),
        "puback cut short": (wire.packet(wire.PUBACK, 0, b"\x00"), {MALFORMED}),
        "remaining length of five bytes": (b"\x30\xff\xff\xff\xff\x01", {MALFORMED}),
        "larger than any packet": (b"\x30\xff\xff\xff\x7f" + b"x" * 500, {MALFORMED, 0x95}),
    }


LENIENT_PEER = {  # mosquitto looks away
    "DUP at QoS 0",
    "SUBACK from a client",
    "PINGRESP from a client",
    "larger than any packet",
    "pingreq flags",
    "ping with a body",
    "topic with NUL",
}


@VERSIONS
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.extension if case in LENIENT_PEER else ())
        for case in violations(V5)
    ],
)
def test_violation_ends_the_connection(broker, raw_mqtt, bystander, version, case):
    data, reasons = violations(version)[case]
    connection = raw_mqtt(version=version)
    connection.send_quietly(data)
    assert connection.farewell() in (said_by(broker, reasons) if version == V5 else {None})


VIOLATIONS_OF_5 = {
    "unknown property": (wire.publish("t", props=b"\x7f\x00"), {MALFORMED}),
    "property of another packet": (wire.publish("t", props=b"\x21\x00\x05"), {MALFORMED, PROTOCOL_ERROR}),
    "property twice": (wire.publish("t", props=b"\x01\x01\x01\x01"), {MALFORMED, PROTOCOL_ERROR}),
    "property value out of range": (wire.publish("t", props=b"\x01\x02"), {MALFORMED, PROTOCOL_ERROR}),
    "property cut short": (wire.publish("t", props=b"\x02\x00"), {MALFORMED}),
    "property block longer than the packet": (
        wire.packet(wire.PUBLISH, 0, wire.string("t") + b"\x40"),
        {MALFORMED},
    ),
    "user property that is not UTF-8": (wire.publish("t", props=b"\x26\x00\x01\xff\x00\x00"), {MALFORMED}),
    "response topic with a wildcard": (
        wire.publish("t", props=b"\x08" + wire.string("a/#")),
        {MALFORMED, PROTOCOL_ERROR, 0x90},
    ),
    "subscription identifier from a client": (
        wire.publish("t", props=b"\x0b\x01"),
        {MALFORMED, PROTOCOL_ERROR},
    ),
    "subscription identifier 0": (wire.subscribe("t", props=b"\x0b\x00"), {MALFORMED, PROTOCOL_ERROR, 0xA1}),
    "retain handling 3": (wire.subscribe("t", 0x31), {MALFORMED, PROTOCOL_ERROR}),
    "no local on a shared subscription": (wire.subscribe("$share/g/t", 0x05), {PROTOCOL_ERROR, 0x9E}),
    "topic alias 0": (wire.publish("t", props=b"\x23\x00\x00"), {MALFORMED, PROTOCOL_ERROR, 0x94}),
    "topic alias never set": (wire.publish("", props=b"\x23\x00\x01"), {PROTOCOL_ERROR, 0x94}),
    "AUTH without an authentication method": (
        wire.packet(15, 0, b"\x18\x00"),
        {MALFORMED, PROTOCOL_ERROR, 0x8C},
    ),
    "unknown DISCONNECT code": (wire.packet(wire.DISCONNECT, 0, b"\x55"), {MALFORMED, PROTOCOL_ERROR, None}),
}

LENIENT_PEER_5 = {
    "subscription identifier from a client",
    "topic alias never set",
    "property value out of range",
    "response topic with a wildcard",
    "no local on a shared subscription",
    "unknown DISCONNECT code",
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.extension if case in LENIENT_PEER_5 else ())
        for case in VIOLATIONS_OF_5
    ],
)
def test_violation_of_mqtt_5_ends_the_connection(broker, raw_mqtt, bystander, case):
    data, reasons = VIOLATIONS_OF_5[case]
    connection = raw_mqtt()
    connection.send_quietly(data)
    assert connection.farewell() in said_by(broker, reasons)


@pytest.mark.extension
def test_topic_alias_beyond_the_maximum_ends_the_connection(raw_mqtt, bystander):
    """[MQTT-3.3.2-9]: 0x94"""
    connection = raw_mqtt()
    connection.send_bytes(wire.publish("t", props=b"\x23\xff\xff"))
    assert connection.farewell() == 0x94


@VERSIONS
def test_malformed_filters_are_refused(raw_mqtt, bystander, version):
    """[MQTT-4.7.1-2]: as a reason in SUBACK, or as the end of the connection"""
    for topic_filter in ("a/#/b", "a#", "+a", "a/b+"):
        connection = raw_mqtt(version=version)
        connection.send_bytes(wire.subscribe(topic_filter, version=version))
        received = connection.read()
        if received is not None and received.kind == wire.SUBACK:
            assert received.body[-1] >= 0x80
        elif received is not None:
            assert (received.kind, received.body[0]) in {
                (wire.DISCONNECT, code) for code in (0x81, 0x82, 0x8F)
            }


@VERSIONS
@pytest.mark.parametrize("size", [1, 2, 3, 5, 10])
def test_client_that_disconnects_inside_a_packet_harms_no_other(raw_mqtt, bystander, version, size):
    connection = raw_mqtt(version=version)
    connection.send_bytes(wire.publish("t", b"x" * 100, version=version, qos=1)[:size])
    connection.drop()


@VERSIONS
def test_acknowledgements_of_unknown_packets_are_tolerated(raw_mqtt, bystander, version):
    connection = raw_mqtt(version=version)
    connection.send_bytes(wire.acknowledgement(wire.PUBACK, 77) + wire.acknowledgement(wire.PUBREL, 78))
    assert connection.expect(wire.PUBCOMP).body[:2] == b"\x00\x4e"


@pytest.mark.parametrize("seed", range(6))
@VERSIONS
def test_input_with_wrong_bytes_harms_no_other_connection(raw_mqtt, bystander, version, seed):
    rng = random.Random(seed)
    for _ in range(10):
        good = bytearray(
            wire.subscribe("flipped/a", 1, version=version)
            + wire.publish("flipped/a", b"payload", version=version, qos=2, packet_id=3)
            + wire.acknowledgement(wire.PUBREL, 3)
            + wire.packet(
                wire.UNSUBSCRIBE, 2, b"\x00\x04" + wire.properties(version) + wire.string("flipped/a")
            )
        )
        for _ in range(rng.randint(1, 5)):
            good[rng.randrange(len(good))] = rng.randrange(256)
        connection = raw_mqtt(version=version)
        connection.send_quietly(bytes(good))
        connection.drop()


def test_random_input_on_fifty_connections_harms_no_other(bystander, raw_mqtt):
    rng = random.Random(os.getpid())
    for _ in range(50):
        raw_mqtt(version=None).send_quietly(rng.randbytes(rng.randint(1, 500)))
