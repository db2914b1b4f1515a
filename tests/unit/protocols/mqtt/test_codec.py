"""Every packet both ways, against hand-written bytes and by round trips."""

from contextlib import suppress
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import LocalProtocolError, ProtocolError
from protocols.mqtt import packets as p
from protocols.mqtt.codec import decode_packet, encode_packet
from protocols.mqtt.publishes import frame_at
from tests.unit.protocols.mqtt.strategies import packets
from tests.vectors.mqtt import LONG_FORMS, PACKETS, Case


def decode(wire: bytes, version: int) -> p.Packet:
    body, stop = frame_at(wire, 0, len(wire), 2**28)
    assert stop == len(wire)
    return decode_packet(wire[0], wire[body:], version)


@pytest.mark.parametrize("case", PACKETS, ids=lambda case: case.name)
def test_packet_encodes_to_its_vector(case: Case) -> None:
    assert encode_packet(case.packet, case.version) == case.wire


@pytest.mark.parametrize("case", PACKETS + LONG_FORMS, ids=lambda case: case.name)
def test_vector_decodes_to_its_packet(case: Case) -> None:
    assert decode(case.wire, case.version) == case.packet


@pytest.mark.parametrize("case", PACKETS, ids=lambda case: case.name)
def test_truncated_body_is_refused_or_decodes_to_another_packet(case: Case) -> None:
    body, _ = frame_at(case.wire, 0, len(case.wire), 2**28)
    for end in range(body, len(case.wire)):
        with suppress(ProtocolError):
            assert decode_packet(case.wire[0], case.wire[body:end], case.version) != case.packet


@given(st.data(), st.sampled_from((4, 5)))
def test_packet_round_trips(data: st.DataObject, version: int) -> None:
    packet = data.draw(packets(version))
    assert decode(encode_packet(packet, version), version) == packet


@given(st.integers(0, 255), st.binary(max_size=60), st.sampled_from((4, 5)))
def test_random_bodies_decode_or_raise_protocol_error(first_byte: int, body: bytes, version: int) -> None:
    with suppress(ProtocolError):
        assert decode_packet(first_byte, body, version).packet_type == first_byte >> 4


def test_publish_with_packet_id_at_qos_0_or_without_above_is_refused() -> None:
    for packet in (p.Publish("a", b"", qos=1), p.Publish("a", b"", packet_id=1)):
        with pytest.raises(LocalProtocolError):
            encode_packet(packet, 4)


def test_encoding_auth_for_3_1_1_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        encode_packet(p.Auth(0), 4)


def test_suback_of_3_1_1_has_one_failure_code() -> None:
    assert encode_packet(p.SubAck(1, [0x87, 1]), 4) == bytes.fromhex("9004 0001 8001")


def test_repr_of_a_packet_shows_its_fields() -> None:
    assert repr(p.PubAck(3)) == "PubAck(packet_id=3, reason_code=0, properties=Properties())"
    assert "will=Will(" in repr(p.Connect(5, "c", will=p.Will("t", b"", 0, False)))
    assert repr(p.SubscriptionRequest("a")).startswith("SubscriptionRequest(filter='a'")
    assert p.PubAck(1) != cast(object, p.PubRec(1))
