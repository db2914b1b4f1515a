"""Data types of section 1.5."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import LocalProtocolError, ProtocolError
from protocols.mqtt.wire import (
    decode_binary,
    decode_text,
    decode_u16,
    decode_varint,
    encode_binary,
    encode_text,
    encode_varint,
    text_of,
)
from tests.unit.protocols.mqtt.strategies import binaries, texts


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2_097_151, "ffff7f"),
        (2_097_152, "80808001"),
        (268_435_455, "ffffff7f"),
    ],
)
def test_varint_matches_table_1_1(value: int, wire: str) -> None:
    assert encode_varint(value) == bytes.fromhex(wire)
    assert decode_varint(bytes.fromhex("aa" + wire), 1) == (value, 1 + len(wire) // 2)


@pytest.mark.parametrize("wire", ["", "80", "ffffff", "ffffffff01", "8000", "ff8000"])
def test_malformed_varint_is_refused_MQTT_1_5_5_1(wire: str) -> None:
    with pytest.raises(ProtocolError):
        decode_varint(bytes.fromhex(wire), 0)


@given(st.integers(0, 268_435_455))
def test_varint_round_trip(value: int) -> None:
    wire = encode_varint(value)
    assert decode_varint(wire, 0) == (value, len(wire))


@pytest.mark.parametrize("value", [-1, 268_435_456])
def test_encoding_a_varint_out_of_range_raises(value: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode_varint(value)


@given(texts, binaries)
def test_strings_round_trip_and_truncated_ones_are_refused(text: str, binary: bytes) -> None:
    wire = encode_text(text) + encode_binary(binary)
    found, position = decode_text(wire, 0)
    assert found == text
    assert decode_binary(wire, position) == (binary, len(wire))
    for end in range(position):
        with pytest.raises(ProtocolError):
            decode_text(wire[:end], 0)


@pytest.mark.parametrize("raw", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"a\0b", b"\xf4\x90\x80\x80"])
def test_invalid_text_is_refused_MQTT_1_5_4_1_and_2(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        text_of(raw)


def test_byte_order_mark_is_kept_MQTT_1_5_4_3() -> None:
    assert text_of(b"\xef\xbb\xbf") == "\ufeff"


@pytest.mark.parametrize("text", ["a\0", "\ud800", "x" * 65_536])
def test_encoding_invalid_text_raises(text: str) -> None:
    with pytest.raises(LocalProtocolError):
        encode_text(text)


def test_truncated_u16_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode_u16(b"\0", 0)
