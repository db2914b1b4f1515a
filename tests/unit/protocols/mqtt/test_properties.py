"""The property block, section 2.2.2."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import limits
from protocols.errors import LocalProtocolError, ProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt.properties import (
    PROPERTIES,
    Properties,
    decode_properties,
    decode_sized_properties,
    encode_properties,
)
from tests.unit.protocols.mqtt.strategies import properties

KINDS = [kind for kind in range(16) if kind not in (c.PINGREQ, c.PINGRESP)]


@given(st.data(), st.sampled_from(KINDS))
def test_properties_of_each_packet_round_trip(data: st.DataObject, kind: int) -> None:
    original = data.draw(properties(kind))
    block = encode_properties(original, kind)
    assert decode_properties(block, kind) == original
    assert original.copy() == original
    for end in range(len(block)):
        try:
            shorter = decode_properties(block[:end], kind)
        except ProtocolError:
            continue
        assert shorter != original


def test_order_and_duplicates_of_user_properties_are_kept() -> None:
    pairs = [("b", "1"), ("a", "2"), ("b", "1"), ("", "")]
    block = encode_properties(Properties(user_properties=pairs), c.PUBLISH)
    assert decode_properties(block, c.PUBLISH).user_properties == pairs


@pytest.mark.parametrize("identifier", sorted(PROPERTIES))
def test_property_in_the_wrong_packet_is_malformed_2_2_2_2(identifier: int) -> None:
    for kind in KINDS:
        if kind in PROPERTIES[identifier][2]:
            continue
        with pytest.raises(ProtocolError) as raised:
            decode_properties(bytes((identifier, 1)), kind)
        assert raised.value.code == c.MALFORMED_PACKET


def test_encoding_a_property_in_the_wrong_packet_raises() -> None:
    with pytest.raises(LocalProtocolError):
        encode_properties(Properties(topic_alias=1), c.PUBACK)


def test_properties_beyond_the_limit_are_refused() -> None:
    pair = bytes.fromhex("2600000000")
    assert decode_properties(pair * limits.MQTT_USER_PROPERTIES_MAX, c.PUBLISH)
    for block in (pair, b"\x0b\x01"):
        with pytest.raises(ProtocolError) as raised:
            decode_properties(block * (limits.MQTT_USER_PROPERTIES_MAX + 1), c.PUBLISH)
        assert raised.value.code == c.QUOTA_EXCEEDED


def test_property_length_beyond_the_packet_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode_sized_properties(b"\x05\x01", 0, c.PUBLISH, c.MQTT_5)


def test_properties_show_and_compare_by_value() -> None:
    assert repr(Properties(receive_maximum=3)) == "Properties(receive_maximum=3)"
    assert Properties() != cast(object, 3)
    why = Properties(reason_string="x", user_properties=[("a", "b")], topic_alias=1)
    assert why.without_information() == Properties(topic_alias=1)
