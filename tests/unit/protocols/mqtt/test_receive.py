"""Input split anywhere gives the same events; truncated or random input never raises."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config import limits
from protocols.mqtt import constants as c
from protocols.mqtt import events
from protocols.mqtt import packets as p
from protocols.mqtt.codec import encode_packet
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.offer import Offer
from protocols.mqtt.properties import Properties, encode_properties
from tests.unit.protocols.mqtt.live import flat, live
from tests.unit.protocols.mqtt.strategies import answers, publishes, subscribes
from tests.vectors.mqtt import PACKETS, Case

NOT_FROM_CLIENTS = ("topic_alias", "subscription_identifiers")


def feed(version: int, chunks: list[bytes]) -> tuple[list[Any], bytes]:
    connection = live(version)
    found: list[Any] = []
    for chunk in chunks:
        found += connection.receive(chunk, 1.0)
    return flat(found), b"".join(connection.output)


def client_packets(version: int) -> st.SearchStrategy[p.Packet]:
    return st.one_of(
        publishes(version, NOT_FROM_CLIENTS), answers(version), subscribes(version), st.just(p.PingReq())
    )


@st.composite
def streams(draw: st.DrawFn, version: int) -> list[p.Packet]:
    """Packets with repetitions, so that runs of every kind come up."""
    stream: list[p.Packet] = []
    for packet in draw(st.lists(client_packets(version), max_size=6)):
        for _ in range(draw(st.integers(1, 3)) ** 3):
            stream.append(packet)
            if isinstance(packet, p.Publish) and packet.qos:
                packet = p.Publish(
                    packet.topic,
                    packet.payload[: draw(st.integers(0, 12))] if draw(st.booleans()) else packet.payload,
                    qos=packet.qos,
                    retain=packet.retain,
                    dup=packet.dup,
                    packet_id=packet.packet_id % 65_535 + 1,
                    properties=packet.properties,
                )
    return stream


def expected(version: int, stream: list[p.Packet]) -> list[Any]:
    """What the stream means, from the packets themselves, one by one."""
    plain: list[Any] = []
    held: set[int] = set()
    for packet in stream:
        if isinstance(packet, p.Publish):
            if packet.qos == 2:
                if packet.packet_id in held:
                    continue
                held.add(packet.packet_id)
            block = encode_properties(packet.properties, c.PUBLISH)
            what = (packet.topic, packet.qos, packet.retain, packet.dup, block)
            plain.append(("publish", *what, packet.packet_id, packet.payload))
        elif isinstance(packet, p.PublishAnswer):
            plain.append(("ack", packet.packet_type, packet.packet_id, packet.reason_code))
        elif isinstance(packet, p.Subscribe):
            given_ids = packet.properties.subscription_identifiers
            pairs = packet.properties.user_properties
            identifier = given_ids[0] if given_ids else None
            plain.append(("SubscribeReceived", packet.requests, True, packet.packet_id, identifier, pairs))
    return plain


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from((4, 5)))
def test_runs_equal_packets_one_by_one_and_any_split(data: st.DataObject, version: int) -> None:
    stream = data.draw(streams(version))
    wire = b"".join(encode_packet(packet, version) for packet in stream)
    whole = feed(version, [wire])
    assert whole[0] == expected(version, stream)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    edges = [0, *cuts, len(wire)]
    assert feed(version, [wire[a:b] for a, b in zip(edges, edges[1:], strict=False)]) == whole


def mixed_wire(version: int) -> bytes:
    pair = Properties(user_properties=[("k", "v")])
    stream: list[p.Packet] = [p.Publish("a/b", b"one"), p.Publish("a/b", b"two"), p.Publish("a/b", b"three")]
    stream += [p.Publish("q", b"x" * 200, qos=1, packet_id=i) for i in (1, 2)]
    stream += [
        p.Publish("q", b"", qos=2, packet_id=i, properties=pair if version == 5 else None) for i in (7, 7, 8)
    ]
    stream += [p.PubAck(1), p.PubAck(2), p.PubRel(8), p.PingReq()]
    stream += [p.Subscribe(1, [p.SubscriptionRequest("#", 1)]), p.Unsubscribe(2, ["#"]), p.Disconnect()]
    return b"".join(encode_packet(packet, version) for packet in stream)


@pytest.mark.parametrize("version", [4, 5])
def test_input_split_at_every_byte_gives_the_same_events(version: int) -> None:
    wire = mixed_wire(version)
    whole, output = feed(version, [wire])
    assert len(whole) >= 12
    for cut in range(1, len(wire)):
        assert feed(version, [wire[:cut], wire[cut:]]) == (whole, output)
    assert feed(version, [wire[i : i + 1] for i in range(len(wire))]) == (whole, output)


@pytest.mark.parametrize("case", PACKETS, ids=lambda case: f"v{case.version}_{case.name}")
def test_truncated_packet_gives_nothing_or_a_close(case: Case) -> None:
    for size in range(len(case.wire)):
        connection = MqttConnection(0.0) if isinstance(case.packet, p.Connect) else live(case.version)
        found = connection.receive(case.wire[:size], 1.0)
        assert [type(event) for event in found] in ([], [events.ConnectionLost])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80), st.sampled_from((4, 5)))
def test_random_bytes_never_raise(wire: bytes, version: int) -> None:
    for connection in (MqttConnection(0.0), live(version)):
        found = connection.receive(wire, 1.0) + connection.receive(b"\xc0\x00" * 9, 1.0)
        found += connection.receive_eof()
        lost = [event for event in found if isinstance(event, events.ConnectionLost)]
        assert len(lost) == 1
        assert found[-1] is lost[0]


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from((4, 5)))
def test_mutated_packets_never_raise_however_they_are_split(data: st.DataObject, version: int) -> None:
    wire = bytearray(mixed_wire(version))
    for _ in range(data.draw(st.integers(1, 3))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(wire)))
    whole = feed(version, [bytes(wire)])
    parts = feed(version, [bytes(wire[:cut]), bytes(wire[cut:])])
    assert parts == whole


def test_large_payload_in_many_chunks_arrives_whole() -> None:
    connection = live(4, offer=Offer(packet_bytes_max=2**23))
    wire = encode_packet(p.Publish("t", bytes(2**22), qos=1, packet_id=1), 4)
    found: list[Any] = []
    for start in range(0, len(wire), 1000):
        found += connection.receive(wire[start : start + 1000], 1.0)
    (run,) = found
    assert run.payloads == [bytes(2**22)]


def test_packet_above_the_size_limit_is_refused() -> None:
    fits = encode_packet(p.Publish("t", b"x" * 92), 4)
    connection = live(4, offer=Offer(packet_bytes_max=len(fits)))
    assert len(connection.receive(fits, 1.0)) == 1
    (lost,) = connection.receive(encode_packet(p.Publish("t", b"x" * 93), 4), 1.0)
    assert lost.reason_code == c.PACKET_TOO_LARGE


def test_filters_of_a_large_packet_come_in_parts_in_order() -> None:
    size = limits.MQTT_FILTERS_PER_EVENT_MAX
    for count in (1, size, size + 1, 3 * size):
        requests = [p.SubscriptionRequest(f"t/{number}", 1) for number in range(count)]
        events, *_ = feed(5, [encode_packet(p.Subscribe(7, requests), 5)])
        assert [request for event in events for request in event[1]] == requests
        assert [event[2] for event in events] == [False] * (len(events) - 1) + [True]
        assert max(len(event[1]) for event in events) <= size
