"""What the specifications of MQTT 5 and 3.1.1 ask of a server, clause by clause, over a bare socket.

`docs/mqtt-conformance.md` says which test is whose. Clauses are those of MQTT 5; in parentheses those of
3.1.1 where they are numbered otherwise.
"""

import struct

import pytest

from tests.e2e import raw_mqtt as wire
from tests.e2e.raw_mqtt import V5, V311, RawMqtt

VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])
QOS_1_AND_2 = pytest.mark.parametrize("qos", [1, 2])


def text(value):
    return wire.string(value)


def sub(packet_id, *filters, version, props=b""):
    """SUBSCRIBE; each filter is a pair of filter and options."""
    body = struct.pack(">H", packet_id) + wire.properties(version, props)
    return wire.packet(
        wire.SUBSCRIBE, 2, body + b"".join(text(name) + bytes([options]) for name, options in filters)
    )


def unsub(packet_id, *filters, version):
    body = struct.pack(">H", packet_id) + wire.properties(version)
    return wire.packet(wire.UNSUBSCRIBE, 2, body + b"".join(map(text, filters)))


class Delivery:
    """A PUBLISH as it came."""

    def __init__(self, packet, version):
        self.dup, self.qos, self.retain = (
            bool(packet.flags & 8),
            packet.flags >> 1 & 3,
            bool(packet.flags & 1),
        )
        size = int.from_bytes(packet.body[:2], "big")
        self.topic, rest = packet.body[2 : 2 + size].decode(), packet.body[2 + size :]
        self.packet_id = 0
        if self.qos:
            self.packet_id, rest = int.from_bytes(rest[:2], "big"), rest[2:]
        self.properties = b""
        if version == V5:
            size = rest[0]
            assert size < 0x80
            self.properties, rest = rest[1 : 1 + size], rest[1 + size :]
        self.payload = rest


@pytest.fixture
def connect(broker):
    opened = []

    def make(version, client_id="", **options):
        client = RawMqtt(broker.mqtt_port, version=version, client_id=client_id, **options)
        client.version = version  # type: ignore[attr-defined]
        opened.append(client)
        return client

    yield make
    for client in opened:
        client.drop()


@pytest.fixture
def bare(broker):
    opened = []

    def make(data):
        client = RawMqtt(broker.mqtt_port, version=None)
        opened.append(client)
        client.send_quietly(data)
        return client

    yield make
    for client in opened:
        client.drop()


def subscribe(client, topic_filter, options=1, props=b""):
    client.send_bytes(sub(77, (topic_filter, options), version=client.version, props=props))
    suback = client.expect(wire.SUBACK)
    assert suback.body[:2] == b"\x00\x4d"
    return suback.body[-1]


def publish(client, topic, payload=b"x", **options):
    """Publish and have it answered to the end."""
    qos = options.get("qos", 0)
    client.send_bytes(wire.publish(topic, payload, version=client.version, **options))
    packet_id = options.get("packet_id", 1)
    if qos == 1:
        assert client.expect(wire.PUBACK).body[:2] == struct.pack(">H", packet_id)
    elif qos == 2:
        assert client.expect(wire.PUBREC).body[:2] == struct.pack(">H", packet_id)
        client.send_bytes(wire.acknowledgement(wire.PUBREL, packet_id))
        assert client.expect(wire.PUBCOMP).body[:2] == struct.pack(">H", packet_id)


def take(client, timeout_s=5):
    return Delivery(client.expect(wire.PUBLISH, timeout_s), client.version)


def quiet(client):
    """Nothing came before the answer to a ping."""
    client.send_bytes(wire.packet(wire.PINGREQ, 0))
    client.expect(wire.PINGRESP)


# What a server must take for malformed or a protocol error: clause, bytes in 3.1.1, in 5, reason code in 5.

BAD_TEXT = (b"a\xed\xa0\x80", b"a\xff", b"a\x00b")


def _illegal():
    for number, bad in enumerate(BAD_TEXT):
        clause = "MQTT-1.5.4-2" if b"\0" in bad else "MQTT-1.5.4-1"
        yield f"{clause}/publish{number}", wire.publish(bad, version=V311), wire.publish(bad), 0x81
        yield f"MQTT-3.8.3-1/{number}", wire.subscribe(bad, version=V311), wire.subscribe(bad), 0x81
        yield f"MQTT-3.10.3-1/{number}", unsub(1, bad, version=V311), unsub(1, bad, version=V5), 0x81
        pair = b"\x26" + text(b"k") + text(bad)
        yield f"MQTT-1.5.7-1/{number}", None, wire.publish("t", props=pair), 0x81
        yield f"MQTT-3.3.2-13/{number}", None, wire.publish("t", props=b"\x08" + text(bad)), 0x81
        yield f"MQTT-3.3.2-19/{number}", None, wire.publish("t", props=b"\x03" + text(bad)), 0x81
    for kind in (wire.PUBREL, wire.SUBSCRIBE, wire.UNSUBSCRIBE):
        clause = {wire.PUBREL: "3.6.1-1", wire.SUBSCRIBE: "3.8.1-1", wire.UNSUBSCRIBE: "3.10.1-1"}[kind]
        body = b"\x00\x01" + (
            b"\x00\x01t\x00" if kind == wire.SUBSCRIBE else b"\x00\x01t" if kind > 8 else b""
        )
        body5 = body[:2] + (b"\x00" if kind != wire.PUBREL else b"") + body[2:]
        yield f"MQTT-{clause}", wire.packet(kind, 0, body), wire.packet(kind, 0, body5), 0x81
    yield "MQTT-2.1.3-1/pingreq", wire.packet(wire.PINGREQ, 1), wire.packet(wire.PINGREQ, 1), 0x81
    yield (
        "MQTT-2.1.3-1/puback",
        wire.packet(wire.PUBACK, 4, b"\0\1"),
        wire.packet(wire.PUBACK, 4, b"\0\1"),
        0x81,
    )
    yield "MQTT-3.14.1-1", wire.packet(wire.DISCONNECT, 1), wire.packet(wire.DISCONNECT, 1), 0x81
    yield "MQTT-3.15.1-1", wire.packet(15, 0), wire.packet(15, 1, b"\x18\x00"), 0x81
    yield "MQTT-1.5.5-1/length", b"\xc0\x80\x80\x80\x80\x01", b"\xc0\x80\x80\x80\x80\x01", 0x81
    yield "MQTT-1.5.5-1/longer-than-need-be", None, b"\x30\x05\x00\x01t\x80\x00", 0x81
    yield "MQTT-2.2.1-3/subscribe", sub(0, ("t", 0), version=V311), sub(0, ("t", 0), version=V5), 0x82
    yield "MQTT-2.2.1-3/unsubscribe", unsub(0, "t", version=V311), unsub(0, "t", version=V5), 0x82
    for qos in (1, 2):
        options = {"qos": qos, "packet_id": 0}
        yield (
            f"MQTT-2.2.1-3/publish{qos}",
            wire.publish("t", version=V311, **options),
            wire.publish("t", **options),
            0x82,
        )
    yield "MQTT-3.1.0-2", wire.connect(V311, "again"), wire.connect(V5, "again"), 0x82
    yield "MQTT-3.3.1-4", b"\x36\x06\x00\x01t\x00\x01x", b"\x36\x06\x00\x01t\x00\x01\x00", 0x81
    yield "MQTT-3.3.1-2", wire.publish("t", version=V311, dup=True), wire.publish("t", dup=True), 0x81
    for topic in ("a/+", "#", "a/#/b"):
        yield f"MQTT-3.3.2-2/{topic}", wire.publish(topic, version=V311), wire.publish(topic), 0x90
    yield "MQTT-4.7.3-1/publish", wire.publish("", version=V311), wire.publish(""), None
    yield "MQTT-3.3.2-8", None, wire.publish("t", props=b"\x23\x00\x00"), 0x94
    yield "MQTT-3.3.2-14", None, wire.publish("t", props=b"\x08" + text("a/+")), 0x82
    yield "MQTT-3.3.4-6", None, wire.publish("t", props=b"\x0b\x01"), 0x82
    yield "MQTT-3.8.3-2", sub(1, version=V311), sub(1, version=V5), 0x82
    yield "MQTT-3.10.3-2", unsub(1, version=V311), unsub(1, version=V5), 0x82
    yield "MQTT-3.8.3-5", sub(1, ("t", 4), version=V311), sub(1, ("t", 0x40), version=V5), 0x81
    yield "MQTT-3.8.3-5/qos", sub(1, ("t", 3), version=V311), sub(1, ("t", 3), version=V5), None
    yield "MQTT-3.8.3-4", None, sub(1, ("$share/g/t", 4), version=V5), 0x82
    for wrong in ("a/#/b", "a#", "+a", "a/b+"):
        clause = "4.7.1-1" if "#" in wrong else "4.7.1-2"
        yield f"MQTT-{clause}/{wrong}", sub(1, (wrong, 0), version=V311), sub(1, (wrong, 0), version=V5), None
    for wrong in ("$share/", "$share//t", "$share/g", "$share/g/", "$share/+/t", "$share/a#/t"):
        yield f"MQTT-4.8.2-1/{wrong}", None, sub(1, (wrong, 0), version=V5), None
    yield "MQTT-3.14.2-2", None, wire.packet(wire.DISCONNECT, 0, b"\x00\x05\x11\x00\x00\x00\x05"), 0x82
    yield "MQTT-4.12.0-7", wire.packet(15, 0, b""), wire.packet(15, 0, b"\x18\x04\x15" + text("m")), None
    yield "MQTT-3.4.2-1", None, wire.packet(wire.PUBACK, 0, b"\x00\x01\x01"), 0x82
    yield "MQTT-3.6.2-1", None, wire.packet(wire.PUBREL, 2, b"\x00\x01\x80"), 0x82
    yield "MQTT-2.2.2-1/twice", None, wire.publish("t", props=b"\x01\x00\x01\x00"), 0x82
    yield "MQTT-4.13.1-1/type-0", b"\x00\x00", b"\x00\x00", 0x81


ILLEGAL = list(_illegal())


@pytest.mark.parametrize(
    ("version", "data", "code"),
    [
        pytest.param(version, data, code, id=f"{clause}-{'5' if version == V5 else '3.1.1'}")
        for clause, old, new, code in ILLEGAL
        for version, data in ((V311, old), (V5, new))
        if data is not None
    ],
)
def test_what_must_not_be_sent_ends_the_connection_or_is_refused(connect, version, data, code):
    """[MQTT-4.13.1-1], [MQTT-3.14.0-1] (4.8.0-1): DISCONNECT with the reason in 5, nothing in 3.1.1"""
    client = connect(version)
    client.send_quietly(data)
    answer = client.read()
    if answer is not None and answer.kind == wire.SUBACK:  # a filter by itself may be refused
        assert answer.body[-1] in (0x80, 0x8F)
        return
    if version == V311:
        assert answer is None
        return
    assert answer.kind == wire.DISCONNECT
    assert answer.body[0] >= 0x80
    assert code is None or answer.body[0] == code
    assert client.read() is None


def _invalid_connects():
    """Clause, packet, CONNACK code; None: no answer is needed."""
    for version in (V311, V5):
        props = b"\x00" if version == V5 else b""
        will = props + text("t") + text("x")
        code = 0x81 if version == V5 else None
        for clause, flags, after in (
            ("3.1.2-3", 0x03, b""),
            ("3.1.2-9", 0x06, b""),
            ("3.1.2-9", 0x06, props + text("t")),
            ("3.1.2-11", 0x0A, b""),
            ("3.1.2-12", 0x1E, will),
            ("3.1.2-13", 0x22, b""),
            ("3.1.2-16", 0x02, text("user")),
            ("3.1.2-17", 0x82, b""),
            ("3.1.2-18", 0x82, text("user") + text("secret")),
            ("3.1.2-19", 0xC2, text("user")),
            ("3.1.3-1", 0x86, text("user")),
            ("3.1.3-12", 0x82, text(b"\xff")),
        ):
            yield f"MQTT-{clause}", version, wire.connect(version, "c", flags=flags, after=after), code
        yield "MQTT-3.1.3-4", version, wire.connect(version, flags=2)[:-2] + text(b"\xff"), code
        yield (
            "MQTT-3.1.3-11",
            version,
            wire.connect(version, "c", flags=6, after=props + text(b"\xff") + text("x")),
            code,
        )
        wild = wire.connect(version, "c", flags=6, after=props + text("a/#") + text("x"))
        yield "MQTT-3.1.3-11/wildcard", version, wild, 0x90 if version == V5 else None
    yield "MQTT-3.1.2-22 of 3.1.1", V311, wire.connect(V311, "c", flags=0x42, after=text("secret")), None
    yield "MQTT-3.1.3-8 of 3.1.1", V311, wire.connect(V311, "", flags=0), 0x02
    yield "MQTT-3.1.2-2/level-3", V311, wire.connect(3, "c"), 0x01
    yield "MQTT-3.1.2-2/level-6", V5, wire.packet(1, 0, text("MQTT") + b"\x06\x02\0\0\0" + text("c")), 0x84
    yield "MQTT-3.1.2-1", V5, wire.connect(V5, "c", name="MQTX"), None
    yield "MQTT-4.12.0-1", V5, wire.connect(V5, "c", props=b"\x15" + text("none")), 0x8C
    yield "MQTT-3.1.4-1/auth-data", V5, wire.connect(V5, "c", props=b"\x16" + text("x")), 0x82


INVALID_CONNECTS = list(_invalid_connects())


@pytest.mark.parametrize(
    ("version", "data", "code"),
    [
        pytest.param(version, data, code, id=f"{number}-{clause}-{'5' if version == V5 else '3.1.1'}")
        for number, (clause, version, data, code) in enumerate(INVALID_CONNECTS)
    ],
)
def test_connect_that_is_not_valid_is_refused(bare, version, data, code):
    """[MQTT-3.1.4-1], [MQTT-3.2.2-6], [MQTT-3.2.2-7], [MQTT-3.2.2-8] (3.2.2-4, 3.2.2-5)"""
    client = bare(data)
    answer = client.read()
    if answer is None:
        assert code is None, "the specification asks for an answer, or we promise one"
        return
    assert answer.kind == wire.CONNACK
    assert answer.body[0] == 0
    assert answer.body[1] == code if code is not None else answer.body[1] > 0
    assert client.read() is None


@pytest.mark.parametrize(
    "data", [wire.packet(wire.PINGREQ, 0), wire.publish("t"), wire.packet(wire.DISCONNECT, 0)]
)
def test_first_packet_must_be_connect(bare, data):
    """[MQTT-3.1.0-1], [MQTT-3.2.0-1]"""
    assert bare(data).read() is None


@VERSIONS
def test_nothing_is_done_before_and_after_a_refusal(connect, bare, name, version):
    """[MQTT-3.1.4-6] (3.1.4-5)"""
    watcher = connect(version)
    subscribe(watcher, name)
    refused = bare(
        wire.connect(version, "c", flags=0xC2, after=text("nobody") + text("x"))
        + wire.publish(name, version=version)
    )
    assert refused.expect(wire.CONNACK).body[1] in (4, 0x86)
    assert refused.read() is None
    quiet(watcher)


@VERSIONS
def test_connack_comes_once_and_first(bare, name, version):
    """[MQTT-3.1.4-5], [MQTT-3.2.0-1], [MQTT-3.2.0-2], [MQTT-3.2.2-1]: also before what answers the rest"""
    client = bare(wire.connect(version, name) + wire.packet(wire.PINGREQ, 0) + wire.packet(wire.PINGREQ, 0))
    connack = client.expect(wire.CONNACK)
    assert connack.body[:2] == b"\x00\x00"
    client.expect(wire.PINGRESP)
    client.expect(wire.PINGRESP)


@VERSIONS
@pytest.mark.parametrize("client_id", ["x", "0123456789abcdefghijklm", "x" * 2_000, "größe/+ #"])
def test_client_identifiers_are_taken_as_they_are(connect, version, client_id):
    """[MQTT-3.1.3-3], [MQTT-3.1.3-5]"""
    quiet(connect(version, client_id))


@VERSIONS
def test_empty_client_identifier_gets_a_unique_one(bare, version):
    """[MQTT-3.1.3-6], [MQTT-3.1.3-7], [MQTT-3.2.2-16] (3.1.3-6)"""
    first, second = bare(wire.connect(version)), bare(wire.connect(version))
    bodies = [client.expect(wire.CONNACK).body for client in (first, second)]
    for client in (first, second):
        quiet(client)
    if version == V5:
        assigned = [body[body.index(b"\x12") :] for body in bodies]
        assert assigned[0] != assigned[1]


@VERSIONS
def test_second_connection_takes_the_client_identifier_over(connect, name, version):
    """[MQTT-3.1.4-3], [MQTT-3.1.3-2] (3.1.4-2)"""
    first = connect(version, name)
    second = connect(version, name)
    assert first.farewell() == (0x8E if version == V5 else None)
    quiet(second)


@VERSIONS
@pytest.mark.timed
def test_silence_beyond_keep_alive_ends_the_connection(broker, connect, version):
    """[MQTT-3.1.2-22] (3.1.2-24)"""
    client = connect(version, keep_alive=2)
    broker.pass_time(2.8)
    quiet(client)
    broker.pass_time(3.2)
    assert client.farewell() == (0x8D if version == V5 else None)


@VERSIONS
def test_ping_is_answered(connect, version):
    """[MQTT-3.12.4-1]"""
    quiet(connect(version))


@VERSIONS
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("how", ["drop", "disconnect", "error"])
def test_will_is_published_unless_the_client_said_goodbye(connect, name, version, retain, how):
    """[MQTT-3.1.2-7], [MQTT-3.1.2-8], [MQTT-3.1.2-10], [MQTT-3.1.2-14], [MQTT-3.1.2-15], [MQTT-3.14.4-3]
    (3.1.2-8, 3.1.2-10, 3.1.2-16, 3.1.2-17)"""
    watcher = connect(version)
    subscribe(watcher, name)
    leaving = RawMqtt(watcher.socket.getpeername()[1], version=None)
    after = (b"\x00" if version == V5 else b"") + text(name) + text("gone")
    leaving.send_bytes(wire.connect(version, f"{name}-w", flags=0x0E | retain << 5, after=after))
    leaving.expect(wire.CONNACK)
    if how == "disconnect":
        leaving.send_bytes(wire.packet(wire.DISCONNECT, 0))
        assert leaving.read() is None
        quiet(watcher)
        return
    if how == "error":
        leaving.send_bytes(b"\x00\x00")
    leaving.drop()
    will = take(watcher)
    assert (will.payload, will.qos, will.retain) == (b"gone", 1, False)
    late = connect(version)
    subscribe(late, name, 0)
    if retain:
        kept = take(late)
        assert (kept.payload, kept.retain) == (b"gone", True)
        publish(late, name, b"", retain=True)
    else:
        quiet(late)


def test_will_is_published_after_a_disconnect_that_asks_for_it(connect, name):
    """Section 3.14.2.1: 0x04"""
    watcher = connect(V5)
    subscribe(watcher, name, 0)
    leaving = RawMqtt(watcher.socket.getpeername()[1], version=None)
    leaving.send_bytes(wire.connect(V5, f"{name}-w", flags=0x06, after=b"\x00" + text(name) + text("gone")))
    leaving.expect(wire.CONNACK)
    leaving.send_bytes(wire.packet(wire.DISCONNECT, 0, b"\x04"))
    assert take(watcher).payload == b"gone"


@VERSIONS
def test_session_present_says_whether_there_was_a_session(bare, name, version):
    """[MQTT-3.1.2-4], [MQTT-3.1.2-5], [MQTT-3.1.2-6], [MQTT-3.2.2-2], [MQTT-3.2.2-3], [MQTT-4.1.0-1]
    (3.1.2-4, 3.1.2-6, 3.2.2-1 to 3.2.2-3)"""
    props = b"\x11\x00\x00\x00\x3c" if version == V5 else b""
    found = []
    for flags in (0, 0, 2, 0):
        keeps = props if flags == 0 or version == V5 else b""
        client = bare(wire.connect(version, name, flags=flags, props=keeps))
        found.append(client.expect(wire.CONNACK).body[0])
        client.send_bytes(wire.packet(wire.DISCONNECT, 0))
        assert client.read() is None
    assert found == [0, 1, 0, 1 if version == V5 else 0]


@VERSIONS
@QOS_1_AND_2
def test_messages_come_to_a_session_that_was_away_and_are_sent_again(bare, connect, name, version, qos):
    """[MQTT-3.1.2-23], [MQTT-3.3.1-1], [MQTT-4.4.0-1], [MQTT-4.5.0-1] (3.1.2-5)"""
    props = b"\x11\x00\x00\x00\x3c" if version == V5 else b""

    def come():
        client = bare(wire.connect(version, name, flags=0, props=props))
        client.version = version  # type: ignore[attr-defined]
        client.expect(wire.CONNACK)
        return client

    first = come()
    subscribe(first, name, qos)
    first.send_bytes(wire.packet(wire.DISCONNECT, 0))
    assert first.read() is None
    publish(connect(version), name, b"kept", qos=qos)
    second = come()
    once = take(second)
    second.drop()
    third = come()
    again = take(third)
    assert (once.payload, once.qos, once.dup) == (b"kept", qos, False)
    assert (again.payload, again.qos, again.dup, again.packet_id) == (b"kept", qos, True, once.packet_id)
    kind = wire.PUBACK if qos == 1 else wire.PUBREC
    third.send_bytes(wire.acknowledgement(kind, again.packet_id))
    if qos == 2:
        third.expect(wire.PUBREL)
        third.drop()
        fourth = come()
        assert fourth.expect(wire.PUBREL).body[:2] == struct.pack(">H", again.packet_id)
        fourth.send_bytes(wire.acknowledgement(wire.PUBCOMP, again.packet_id))
        quiet(fourth)
    else:
        quiet(third)


@VERSIONS
def test_retained_message_is_the_last_and_goes_with_an_empty_one(connect, name, version):
    """[MQTT-3.3.1-5] to [MQTT-3.3.1-8] (3.3.1-5 to 3.3.1-12, 3.1.2-7)"""
    client = connect(version)
    publish(client, name, b"first", retain=True, qos=1)
    publish(client, name, b"last", retain=True)
    publish(client, name, b"not kept")
    client.drop()
    late = connect(version)
    subscribe(late, name, 1)
    kept = take(late)
    assert (kept.payload, kept.retain) == (b"last", True)
    publish(late, name, b"", retain=True)
    assert take(late).payload == b""
    later = connect(version)
    subscribe(later, name)
    quiet(later)


def test_retain_handling_says_when_retained_messages_come(connect, name):
    """[MQTT-3.3.1-9], [MQTT-3.3.1-10], [MQTT-3.3.1-11], [MQTT-3.8.4-4]"""
    client = connect(V5)
    publish(client, name, b"kept", retain=True)
    came = []
    for handling in (1, 1, 0, 0, 2):
        subscribe(client, name, handling << 4)
        client.send_bytes(wire.packet(wire.PINGREQ, 0))
        answer = client.read()
        came.append(answer.kind == wire.PUBLISH)
        if came[-1]:
            client.expect(wire.PINGRESP)
    assert came == [True, False, True, True, False]
    publish(client, name, b"", retain=True)


@pytest.mark.parametrize(("options", "retain"), [(0x21, False), (0x29, True)])
def test_retain_flag_is_as_published_only_if_asked_for(connect, name, options, retain):
    """[MQTT-3.3.1-12], [MQTT-3.3.1-13]"""
    client = connect(V5)
    subscribe(client, name, options)
    publish(connect(V5), name, b"x", retain=True)
    assert take(client).retain is retain
    publish(connect(V5), name, b"", retain=True)
    assert take(client).retain is retain


def test_retain_flag_is_0_for_subscriptions_that_were_there(connect, name):
    """[MQTT-3.3.1-9] of 3.1.1"""
    client = connect(V311)
    subscribe(client, name)
    publish(client, name, b"x", retain=True)
    assert not take(client).retain
    publish(client, name, b"", retain=True)


@VERSIONS
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_qos_is_the_lower_one_and_its_exchange_is_kept(connect, name, version, published, granted):
    """[MQTT-3.3.4-1], [MQTT-3.8.4-8], [MQTT-4.3.1-1], [MQTT-4.3.2-1] to [MQTT-4.3.2-4], [MQTT-4.3.3-1] to
    [MQTT-4.3.3-8], [MQTT-4.3.3-11], [MQTT-2.2.1-2], [MQTT-2.2.1-4], [MQTT-2.2.1-5], [MQTT-3.3.2-1],
    [MQTT-3.3.2-3] (3.8.4-6, 4.3.1-1, 4.3.2-1, 4.3.2-2, 4.3.3-1, 4.3.3-2, 2.3.1-4 to 2.3.1-6)"""
    reader, writer = connect(version), connect(version)
    assert subscribe(reader, name, granted) == granted
    publish(writer, name, b"x", qos=published, packet_id=4711)
    got = take(reader)
    assert (got.topic, got.payload, got.qos, got.dup) == (name, b"x", min(published, granted), False)
    if got.qos == 1:
        reader.send_bytes(wire.acknowledgement(wire.PUBACK, got.packet_id))
    elif got.qos == 2:
        reader.send_bytes(wire.acknowledgement(wire.PUBREC, got.packet_id))
        assert reader.expect(wire.PUBREL).body[:2] == struct.pack(">H", got.packet_id)
        reader.send_bytes(wire.acknowledgement(wire.PUBCOMP, got.packet_id))
    assert (got.packet_id > 0) is (got.qos > 0)
    quiet(reader)


@VERSIONS
def test_qos_2_is_passed_on_once_until_its_pubrel(connect, name, version):
    """[MQTT-4.3.3-10], [MQTT-4.3.3-12], [MQTT-3.3.1-3] (4.3.3-2)"""
    reader, writer = connect(version), connect(version)
    subscribe(reader, name, 2)
    for dup in (False, True, True):
        writer.send_bytes(wire.publish(name, b"x", version=version, qos=2, packet_id=5, dup=dup))
        assert writer.expect(wire.PUBREC).body[:2] == b"\x00\x05"
    first = take(reader)
    assert not first.dup
    quiet(reader)
    writer.send_bytes(wire.acknowledgement(wire.PUBREL, 5))
    writer.expect(wire.PUBCOMP)
    publish(writer, name, b"y", qos=2, packet_id=5)
    assert take(reader).payload == b"y"


@VERSIONS
def test_qos_1_after_its_puback_is_a_new_message(connect, name, version):
    """[MQTT-4.3.2-5], [MQTT-3.3.1-3] (4.3.2-2)"""
    reader, writer = connect(version), connect(version)
    subscribe(reader, name, 1)
    for dup in (False, True):
        publish(writer, name, b"x", qos=1, packet_id=5, dup=dup)
        assert not take(reader).dup
    quiet(reader)


@VERSIONS
def test_pubrel_of_an_unknown_identifier_is_answered(connect, version):
    """[MQTT-4.3.3-11], [MQTT-3.7.2-1]: 0x92 in MQTT 5"""
    client = connect(version)
    client.send_bytes(wire.acknowledgement(wire.PUBREL, 999))
    assert client.expect(wire.PUBCOMP).body == (b"\x03\xe7\x92" if version == V5 else b"\x03\xe7")


def test_pubrec_of_an_unknown_identifier_is_answered_with_0x92(connect):
    """[MQTT-3.6.2-1], section 3.6.2.1"""
    client = connect(V5)
    client.send_bytes(wire.acknowledgement(wire.PUBREC, 999))
    assert client.expect(wire.PUBREL).body == b"\x03\xe7\x92"


def test_refusals_of_the_client_end_an_exchange(connect, name):
    """[MQTT-4.4.0-2], [MQTT-4.8.2-6], [MQTT-4.3.3-9]"""
    other, client, writer = connect(V5), connect(V5, props=b"\x21\x00\x01"), connect(V5)
    subscribe(client, f"$share/g/{name}", 2)
    for qos in (1, 2):
        publish(writer, name, b"x", qos=qos, packet_id=qos)
        got = take(client)
        subscribe(other, f"$share/g/{name}", 2)
        kind = wire.PUBACK if qos == 1 else wire.PUBREC
        client.send_bytes(wire.packet(kind, 0, struct.pack(">H", got.packet_id) + b"\x80"))
        quiet(client)
        quiet(other)
        other.send_bytes(unsub(9, f"$share/g/{name}", version=V5))
        other.expect(wire.UNSUBACK)


@VERSIONS
def test_acknowledgements_and_messages_keep_their_order(connect, name, version):
    """[MQTT-4.6.0-5], [MQTT-4.6.0-6], [MQTT-4.6.0-2], [MQTT-4.6.0-3], [MQTT-4.6.0-4]"""
    reader, writer = connect(version), connect(version)
    subscribe(reader, name, 2)
    for qos, kind in ((1, wire.PUBACK), (2, wire.PUBREC)):
        writer.send_bytes(
            b"".join(
                wire.publish(name, b"%d" % i, version=version, qos=qos, packet_id=i) for i in range(1, 40)
            )
        )
        assert [writer.expect(kind).body[:2] for _ in range(39)] == [
            struct.pack(">H", i) for i in range(1, 40)
        ]
        got = [take(reader) for _ in range(39)]
        assert [one.payload for one in got] == [b"%d" % i for i in range(1, 40)]
        if qos == 2:
            reader.send_bytes(b"".join(wire.acknowledgement(wire.PUBREC, one.packet_id) for one in got))
            rels = [int.from_bytes(reader.expect(wire.PUBREL).body[:2], "big") for _ in got]
            assert rels == [one.packet_id for one in got]


@VERSIONS
def test_suback_answers_every_filter_in_order(connect, name, version):
    """[MQTT-3.8.4-1], [MQTT-3.8.4-2], [MQTT-3.8.4-5] to [MQTT-3.8.4-7], [MQTT-3.9.3-1], [MQTT-3.9.3-2],
    [MQTT-2.2.1-6] (2.3.1-7, 3.8.4-4, 3.8.4-5)"""
    client = connect(version)
    filters = [(f"{name}/{qos}", qos) for qos in (2, 0, 1)]
    client.send_bytes(sub(1234, *filters, version=version))
    suback = client.expect(wire.SUBACK)
    assert (suback.body[:2], suback.body[-3:]) == (struct.pack(">H", 1234), b"\x02\x00\x01")


@VERSIONS
def test_same_filter_replaces_the_subscription(connect, name, version):
    """[MQTT-3.8.4-3]"""
    client = connect(version)
    subscribe(client, name, 2)
    subscribe(client, name, 0)
    publish(connect(version), name, b"x", qos=2)
    assert take(client).qos == 0
    quiet(client)


@VERSIONS
def test_unsubscribe_is_answered_and_ends_the_subscription(connect, name, version):
    """[MQTT-3.10.4-1] to [MQTT-3.10.4-6], [MQTT-3.11.3-1], [MQTT-3.11.3-2], [MQTT-2.2.1-6]"""
    client, writer = connect(version), connect(version)
    subscribe(client, f"{name}/+", 1)
    subscribe(client, f"{name}/a", 1)
    publish(writer, f"{name}/b", b"begun", qos=1, packet_id=1)
    begun = take(client)
    client.send_bytes(unsub(31, f"{name}/+", f"{name}/c", f"{name}/#", version=version))
    unsuback = client.expect(wire.UNSUBACK)
    assert unsuback.body[:2] == struct.pack(">H", 31)
    assert unsuback.body[2:] == (b"\x00\x00\x11\x11" if version == V5 else b"")
    client.send_bytes(wire.acknowledgement(wire.PUBACK, begun.packet_id))
    publish(writer, f"{name}/b", b"gone", qos=1, packet_id=2)
    publish(writer, f"{name}/a", b"still", qos=1, packet_id=3)
    assert take(client).payload == b"still"
    quiet(client)


@VERSIONS
@pytest.mark.parametrize(
    ("topic_filter", "topic", "matches"),
    [
        ("{}/#", "{}", True),
        ("{}/#", "{}/a/b", True),
        ("{}/+", "{}/a", True),
        ("{}/+", "{}/", True),
        ("{}/+", "{}", False),
        ("{}/+", "{}/a/b", False),
        ("+/{}", "/{}", True),
        ("/{}", "{}", False),
        ("{}", "{}/", False),
        ("{}/a", "{}/A", False),
        ("{}/ a", "{}/ a", True),
        ("{}/\ufeffa", "{}/\ufeffa", True),
        ("{}/a", "{}/\ufeffa", False),
        ("{}/\u00e9", "{}/e\u0301", False),
        ("+/{}", "$x/{}", False),
        ("#", "$x/{}", False),
        ("$x/#", "$x/{}", True),
        ("{}/+/+/#", "{}/a//b/c", True),
    ],
)
def test_topics_are_matched_level_by_level_as_they_are(connect, name, version, topic_filter, topic, matches):
    """[MQTT-1.5.4-3], [MQTT-4.7.1-1], [MQTT-4.7.1-2], [MQTT-4.7.2-1], [MQTT-4.7.3-4]
    (1.5.3-3, 4.7.1-2, 4.7.1-3)"""
    client = connect(version)
    subscribe(client, topic_filter.format(name), 0x20 if version == V5 else 0)
    kept = _retained(client)
    assert all(packet.flags & 1 for packet in kept)
    publish(client, topic.format(name), b"here")
    if matches:
        assert take(client).topic == topic.format(name)
    quiet(client)


def _retained(client):
    """What other tests left behind, until the answer to a ping."""
    client.send_bytes(wire.packet(wire.PINGREQ, 0))
    kept = []
    while (packet := client.read()).kind != wire.PINGRESP:
        kept.append(packet)
    return kept


@VERSIONS
def test_longest_topic_and_deepest_topic_are_taken(connect, name, version):
    """[MQTT-4.7.3-3]"""
    client = connect(version)
    for topic in (name + "x" * (65_535 - len(name)), name + "/a" * 199):
        assert subscribe(client, topic, 0) == 0
        publish(client, topic, b"x")
        assert client.expect(wire.PUBLISH).body.endswith(b"x")


PROPERTIES = b"".join(
    (
        b"\x01\x01",
        b"\x03" + text("text/plain"),
        b"\x08" + text("answers/here"),
        b"\x09" + text(b"\x00\xff"),
        wire.user_property("b", "1"),
        wire.user_property("a", "2"),
        wire.user_property("b", "1"),
    )
)


def test_properties_of_a_publish_are_passed_on_unaltered_and_in_order(connect, name):
    """[MQTT-3.3.2-4], [MQTT-3.3.2-15] to [MQTT-3.3.2-18], [MQTT-3.3.2-20]"""
    client = connect(V5)
    subscribe(client, name, 0)
    publish(connect(V5), name, b"x", props=PROPERTIES)
    assert take(client).properties == PROPERTIES


@pytest.mark.timed
def test_message_expiry_counts_down_and_ends_retained_messages(broker, connect, name):
    """[MQTT-3.3.2-5], [MQTT-3.3.2-6]"""
    client = connect(V5)
    publish(client, name, b"x", retain=True, props=b"\x02\x00\x00\x00\x02")
    subscribe(client, name, 0)
    assert 1 <= int.from_bytes(take(client).properties[1:5], "big") <= 2
    broker.pass_time(2.05)
    late = connect(V5)
    subscribe(late, name, 0)
    quiet(late)


@pytest.mark.timed
def test_message_expiry_goes_on_while_a_message_waits_for_the_receive_maximum(broker, connect, name):
    """[MQTT-3.3.2-5], [MQTT-3.3.2-6]"""
    client, writer = connect(V5, props=b"\x21\x00\x01"), connect(V5)
    subscribe(client, name, 1)
    for packet_id, (payload, expiry_s) in enumerate(((b"first", 60), (b"expires", 1), (b"last", 60)), 1):
        props = b"\x02" + expiry_s.to_bytes(4, "big")
        publish(writer, name, payload, qos=1, packet_id=packet_id, props=props)
    first = take(client)
    broker.pass_time(1.05)
    client.send_bytes(wire.acknowledgement(wire.PUBACK, first.packet_id))
    last = take(client)
    assert last.payload == b"last"
    assert 50 < int.from_bytes(last.properties[1:5], "big") < 60
    client.send_bytes(wire.acknowledgement(wire.PUBACK, last.packet_id))
    quiet(client)


def test_no_local_holds_back_one_s_own_publishes(connect, name):
    """[MQTT-3.8.3-3]"""
    client = connect(V5)
    subscribe(client, name, 0x05)
    publish(client, name, b"mine", qos=1)
    quiet(client)
    publish(connect(V5), name, b"theirs")
    assert take(client).payload == b"theirs"


def test_receive_maximum_of_the_client_is_kept_while_other_packets_flow(connect, name):
    """[MQTT-3.3.4-9], [MQTT-3.3.4-10], [MQTT-4.9.0-1], [MQTT-4.9.0-2], [MQTT-4.9.0-3]"""
    client, writer = connect(V5, props=b"\x21\x00\x02"), connect(V5)
    subscribe(client, name, 2)
    for packet_id in range(1, 5):
        publish(writer, name, b"%d" % packet_id, qos=1, packet_id=packet_id)
    publish(writer, name, b"0")
    first, second, zero = take(client), take(client), take(client)
    assert [one.payload for one in (first, second, zero)] == [b"1", b"2", b"0"]
    quiet(client)
    client.send_bytes(wire.acknowledgement(wire.PUBACK, first.packet_id))
    assert take(client).payload == b"3"
    quiet(client)


def test_maximum_packet_size_of_the_client_is_kept(connect, name):
    """[MQTT-3.1.2-24], [MQTT-3.1.2-25]: as if the message had been sent"""
    client, writer = connect(V5, props=b"\x27\x00\x00\x00\x50"), connect(V5)
    subscribe(client, name, 1)
    for size in (200, 1):
        publish(writer, name, b"x" * size, qos=1)
    assert len(take(client).payload) == 1
    quiet(client)


@pytest.mark.parametrize(("size", "answer"), [(4, None), (8, 0x95)])
def test_client_that_takes_no_connack_gets_no_disconnect_either(bare, size, answer):
    """[MQTT-3.14.0-1], [MQTT-3.1.2-24]: a CONNACK refuses, if that fits"""
    client = bare(wire.connect(V5, "c", props=b"\x27" + size.to_bytes(4, "big")))
    received = client.read()
    if answer is None:
        assert received is None
    else:
        assert (received.kind, received.body) == (wire.CONNACK, bytes((0, answer, 0)))
        assert client.read() is None


@pytest.mark.parametrize("kind", ["puback", "pubrec", "suback", "disconnect"])
def test_reasons_are_left_out_where_they_do_not_fit(connect, kind):
    """[MQTT-3.2.2-19], [MQTT-3.2.2-20], [MQTT-3.4.2-2], [MQTT-3.4.2-3], [MQTT-3.5.2-2], [MQTT-3.5.2-3],
    [MQTT-3.6.2-2], [MQTT-3.6.2-3], [MQTT-3.7.2-2], [MQTT-3.7.2-3], [MQTT-3.9.2-1], [MQTT-3.9.2-2],
    [MQTT-3.11.2-1], [MQTT-3.11.2-2], [MQTT-3.14.2-3], [MQTT-3.14.2-4]"""
    client = connect(V5, "c" + kind, props=b"\x27\x00\x00\x00\x18")
    if kind in ("puback", "pubrec"):
        client.send_bytes(wire.publish("$SYS/x", qos=1 if kind == "puback" else 2))
        assert client.read().body == b"\x00\x01\x90"
    elif kind == "suback":
        client.send_bytes(wire.subscribe("$queue/+/x"))
        assert client.read().body == b"\x00\x01\x00\x8f"
    else:
        client.send_bytes(b"\x00\x00")
        assert client.read().body in (b"\x81", b"\x81\x00")


@pytest.mark.parametrize(("asked", "told"), [(b"", True), (b"\x17\x01", True), (b"\x17\x00", False)])
def test_problem_information_comes_as_asked_for(connect, asked, told):
    """[MQTT-3.1.2-29]"""
    client = connect(V5, props=asked)
    client.send_bytes(wire.publish("$SYS/x", qos=1))
    assert (len(client.expect(wire.PUBACK).body) > 3) is told
    client.send_bytes(b"\x00\x00")
    assert client.expect(wire.DISCONNECT).body[0] == 0x81


def test_response_information_is_not_told_unasked(bare):
    """[MQTT-3.1.2-28]"""
    body = bare(wire.connect(V5, "c-response", props=b"\x19\x00")).expect(wire.CONNACK).body
    assert b"\x1a" not in body[3:4]


def test_no_alias_is_sent_to_who_allows_none_and_none_is_carried_over(connect, name):
    """[MQTT-3.1.2-26], [MQTT-3.1.2-27], [MQTT-3.3.2-7], [MQTT-3.3.2-11], [MQTT-3.3.2-12]"""
    client = connect(V5)
    subscribe(client, name, 0)
    writer = connect(V5, f"{name}-w")
    writer.send_bytes(
        wire.publish(name, b"1", props=b"\x23\x04\x00") + wire.publish("", b"2", props=b"\x23\x04\x00")
    )
    for payload in (b"1", b"2"):
        got = take(client)
        assert (got.topic, got.payload, got.properties) == (name, payload, b"")
    again = connect(V5, f"{name}-w")
    again.send_bytes(wire.publish("", b"3", props=b"\x23\x04\x00"))
    assert again.farewell() == 0x82


def test_shared_subscription_keeps_to_the_qos_of_the_member(connect, name):
    """[MQTT-4.8.2-3]"""
    client = connect(V5)
    subscribe(client, f"$share/g/{name}", 0)
    publish(connect(V5), name, b"x", qos=2)
    assert take(client).qos == 0


@VERSIONS
def test_nothing_comes_behind_the_end_of_a_connection(connect, name, version):
    """[MQTT-3.14.4-1], [MQTT-3.14.4-2], [MQTT-4.13.2-1]"""
    client = connect(version)
    subscribe(client, name, 0)
    client.send_bytes(wire.packet(wire.DISCONNECT, 0) + wire.publish(name, b"late", version=version))
    assert client.read() is None


@pytest.mark.timed
def test_expiry_does_not_end_an_exchange_of_qos_2(broker, connect, name):
    """[MQTT-4.3.3-7], [MQTT-4.3.3-13]"""
    reader, writer = connect(V5), connect(V5)
    subscribe(reader, name, 2)
    writer.send_bytes(wire.publish(name, b"x", qos=2, packet_id=5, props=b"\x02\x00\x00\x00\x01"))
    writer.expect(wire.PUBREC)
    got = take(reader)
    broker.pass_time(1.05)
    reader.send_bytes(wire.acknowledgement(wire.PUBREC, got.packet_id))
    reader.expect(wire.PUBREL)
    reader.send_bytes(wire.acknowledgement(wire.PUBCOMP, got.packet_id))
    writer.send_bytes(wire.acknowledgement(wire.PUBREL, 5))
    assert writer.expect(wire.PUBCOMP).body[:2] == b"\x00\x05"
    quiet(reader)


@VERSIONS
@pytest.mark.parametrize("is_heard", [False, True])
def test_qos_2_is_passed_on_once_over_a_reconnect(bare, connect, name, version, is_heard):
    """[MQTT-4.3.3-10], [MQTT-4.4.0-1]: whether or not anybody was subscribed the first time"""
    props = b"\x11\x00\x00\x00\x3c" if version == V5 else b""
    packet = wire.publish(name, b"x", version=version, qos=2, packet_id=5)
    first = bare(wire.connect(version, name, flags=0, props=props))
    first.expect(wire.CONNACK)
    early = connect(version)
    if is_heard:
        subscribe(early, name)
    first.send_bytes(packet)
    first.expect(wire.PUBREC)
    first.drop()
    if is_heard:
        take(early)
    late = connect(version)
    subscribe(late, name)
    second = bare(wire.connect(version, name, flags=0, props=props))
    assert second.expect(wire.CONNACK).body[0] == 1
    second.send_bytes(bytes((packet[0] | 8,)) + packet[1:])
    assert second.expect(wire.PUBREC).body[:2] == b"\x00\x05"
    second.send_bytes(wire.acknowledgement(wire.PUBREL, 5))
    assert second.expect(wire.PUBCOMP).body == b"\x00\x05"
    quiet(late)
