"""Runs: encoding one equals encoding its packets singly; counting one by columns finds its true length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import LocalProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt import hot
from protocols.mqtt import packets as p
from protocols.mqtt.codec import encode_packet
from protocols.mqtt.properties import decode_properties, encode_properties
from tests.unit.protocols.mqtt.strategies import ids, properties, topics


@given(st.data(), st.sampled_from((4, 5)), st.integers(0, 2), st.integers(0, 200), st.integers(1, 150))
def test_publish_run_equals_single_packets(
    data: st.DataObject, version: int, qos: int, size: int, count: int
) -> None:
    topic = data.draw(topics)
    block = encode_properties(data.draw(properties(c.PUBLISH, version)), c.PUBLISH)
    retain = data.draw(st.booleans())
    first = data.draw(ids)
    packet_ids = [(first + i) % 65_535 + 1 for i in range(count)] if qos else []
    payloads = [bytes((i % 256,)) * size for i in range(count)]
    output: list[bytes] = []
    head = hot.encode_publish_head(version, topic.encode(), qos, retain, False, block, size)
    tail = hot.encode_publish_tail(version, block)
    hot.encode_publish_run(output, head, packet_ids, tail, payloads)
    singles = [
        p.Publish(
            topic,
            payload,
            qos=qos,
            retain=retain,
            packet_id=packet_ids[i] if qos else 0,
            properties=decode_properties(block, c.PUBLISH),
        )
        for i, payload in enumerate(payloads)
    ]
    wire = b"".join(output)
    assert wire == b"".join(encode_packet(packet, version) for packet in singles)
    stride = len(wire) // count
    if qos:
        assert hot.packet_ids_at(wire, len(head), count, stride) == packet_ids
        other = [packet_id % 65_535 + 1 for packet_id in packet_ids]
        stamped = hot.restamp_packet_ids(wire, stride, len(head), other)
        assert hot.packet_ids_at(stamped, len(head), count, stride) == other
        assert hot.payloads_at(stamped, 0, count, stride, stride - size) == payloads
    first_id = packet_ids[0] if qos else 0
    single = hot.encode_publish(version, topic.encode(), qos, retain, False, first_id, block, payloads[0])
    assert wire.startswith(single)


def test_empty_run_writes_nothing() -> None:
    output: list[bytes] = []
    hot.encode_publish_run(output, b"head", [], b"", [])
    assert output == []
    assert hot.encode_ack_run(c.PUBACK, []) == b""


def test_long_properties_are_included_in_the_remaining_length() -> None:
    block = b"\x26\x00\x01k" + (300).to_bytes(2, "big") + b"v" * 300
    wire = hot.encode_publish(5, b"t", 1, False, True, 7, block, b"xyz")
    packet = p.Publish(
        "t", b"xyz", qos=1, dup=True, packet_id=7, properties=decode_properties(block, c.PUBLISH)
    )
    assert wire == encode_packet(packet, 5)


def test_topic_beyond_the_limit_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        hot.encode_publish_head(4, b"x" * 65_536, 0, False, False, b"", 0)


def test_restamping_with_fewer_identifiers_than_packets_is_refused() -> None:
    with pytest.raises(ValueError, match="attempt to assign"):
        hot.restamp_packet_ids(b"\x40\x02\0\0" * 3, 4, 2, [1, 2])


@given(st.lists(ids, min_size=1, max_size=300))
def test_acknowledgement_run_equals_single_packets(packet_ids: list[int]) -> None:
    for kind in (p.PubAck, p.PubRec, p.PubRel, p.PubComp):
        wire = hot.encode_ack_run(kind.packet_type, packet_ids)
        assert wire == b"".join(encode_packet(kind(packet_id), 4) for packet_id in packet_ids)
        assert hot.ack_run_length(wire + b"\xc0\x00\xc0\x00", 0, len(wire) + 4) == len(packet_ids)
        assert hot.packet_ids_at(wire, 2, len(packet_ids), 4) == packet_ids


@given(st.integers(1, 400), st.integers(0, 400), st.integers(0, 5), st.sampled_from((b"", b"\0", b"\1\2")))
def test_run_length_stops_at_the_first_difference(count: int, where: int, column: int, tail: bytes) -> None:
    prefix = b"\x32\x09ab"
    packet = prefix + b"\0\0" + tail + b"pay"
    wire = bytearray(packet * count)
    head = [0, 1, 2, 3, *range(6, 6 + len(tail))]
    expected = count
    if 0 < where < count:
        wire[where * len(packet) + head[column % len(head)]] ^= 0xFF
        expected = where
    for window in (0, 70, 10_000):
        found = hot.run_length(bytes(wire), 0, len(wire), prefix, tail, 6, len(packet), window)
        assert found == expected
