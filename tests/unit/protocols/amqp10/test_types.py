import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import limits
from protocols.amqp10 import types as t
from protocols.amqp10.errors import AmqpError
from protocols.errors import LocalProtocolError
from tests.unit.protocols.amqp10.strategies import VALUES

# written by hand from the tables of part 1.6
VECTORS = [
    (b"\x40", None),
    (b"\x41", True),
    (b"\x42", False),
    (b"\x50\xff", t.UByte(255)),
    (b"\x60\x01\x00", t.UShort(256)),
    (b"\x43", t.UInt(0)),
    (b"\x52\x01", t.UInt(1)),
    (b"\x70\x00\x01\x00\x00", t.UInt(65536)),
    (b"\x44", t.ULong(0)),
    (b"\x53\xff", t.ULong(255)),
    (b"\x80" + b"\xff" * 8, t.ULong(2**64 - 1)),
    (b"\x51\x80", t.Byte(-128)),
    (b"\x61\xff\xfe", t.Short(-2)),
    (b"\x54\x80", t.Int(-128)),
    (b"\x71\x00\x00\x00\x80", t.Int(128)),
    (b"\x55\xff", -1),
    (b"\x81\x00\x00\x00\x00\x00\x00\x00\x80", 128),
    (b"\x72\x3f\x80\x00\x00", t.Float(1.0)),
    (b"\x82\x3f\xf0\x00\x00\x00\x00\x00\x00", 1.0),
    (b"\x74abcd", t.Decimal32(b"abcd")),
    (b"\x84abcdefgh", t.Decimal64(b"abcdefgh")),
    (b"\x94abcdefghabcdefgh", t.Decimal128(b"abcdefghabcdefgh")),
    (b"\x73\x00\x01\xf6\x00", t.Char("\U0001f600")),
    (b"\x83\x00\x00\x01\x00\x00\x00\x00\x00", t.Timestamp(1 << 40)),
    (b"\x98" + bytes(range(16)), UUID(bytes=bytes(range(16)))),
    (b"\xa0\x02\x00\x01", b"\x00\x01"),
    (b"\xb0\x00\x00\x01\x00" + b"x" * 256, b"x" * 256),
    (b"\xa1\x02\xc3\xa4", "ä"),
    (b"\xb1\x00\x00\x01\x00" + b"x" * 256, "x" * 256),
    (b"\xa3\x01x", t.Symbol("x")),
    (b"\x45", []),
    (b"\xc0\x03\x02\x41\x42", [True, False]),
    (b"\xc1\x01\x00", {}),
    (b"\xc1\x05\x02\xa3\x01a\x41", {t.Symbol("a"): True}),
    (b"\xe0\x06\x02\xa3\x01a\x01b", t.Array("symbol", [t.Symbol("a"), t.Symbol("b")])),
    (b"\xe0\x09\x01\x00\x53\x10\x70\x00\x00\x00\x01",
     t.Array("uint", [t.UInt(1)], t.ULong(16))),
    (b"\x00\x53\x24\x45", t.Described(t.ULong(0x24), [])),
]  # fmt: skip


@pytest.mark.parametrize(("data", "value"), VECTORS)
def test_a_vector_decodes_and_encodes(data, value):
    decoded = t.decode_whole(data)
    assert decoded == value
    assert type(decoded) is type(value)
    assert t.encode_value(value) == data
    assert t.skip_value(data, 0, len(data)) == len(data)


# longer forms of what has a shorter one
@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x56\x00", False),
        (b"\x56\x01", True),
        (b"\x70\x00\x00\x00\x01", t.UInt(1)),
        (b"\x80\x00\x00\x00\x00\x00\x00\x00\x01", t.ULong(1)),
        (b"\xb1\x00\x00\x00\x01x", "x"),
        (b"\xb3\x00\x00\x00\x01x", t.Symbol("x")),
        (b"\xc0\x01\x00", []),
        (b"\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x41", [True]),
        (b"\xd1\x00\x00\x00\x06\x00\x00\x00\x02\x41\x42", {True: False}),
        (b"\xf0\x00\x00\x00\x06\x00\x00\x00\x01\x52\x07", t.Array("uint", [t.UInt(7)])),
    ],
)
def test_a_longer_form_decodes_to_the_same(data, value):
    assert t.decode_whole(data) == value
    assert t.skip_value(data, 0, len(data)) == len(data)


MALFORMED = {
    "nothing": b"",
    "unknown code": b"\x3f",
    "boolean of 2": b"\x56\x02",
    "int cut off": b"\x71\x00",
    "size cut off": b"\xb0\x00",
    "string cut off": b"\xa1\x05abc",
    "not UTF-8": b"\xa1\x01\xff",
    "symbol not ASCII": b"\xa3\x02\xc3\xa4",
    "no character": b"\x73\x00\x11\x00\x00",
    "count beyond the size": b"\xd0\x00\x00\x00\x04\xff\xff\xff\xff",
    "list too short for its count": b"\xc0\x00",
    "items behind the count": b"\xc0\x03\x01\x41\x42",
    "odd map": b"\xc1\x02\x01\x41",
    "key twice": b"\xc1\x05\x04\x41\x41\x41\x42",
    "list as key": b"\xc1\x03\x02\x45\x41",
    "array without a constructor": b"\xe0\x01\x00",
    "array of an unknown type": b"\xe0\x02\x00\x3f",
    "array of four billion nulls": b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40",
    "descriptor alone": b"\x00\x53\x24",
    "more behind": b"\x41\x41",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_octets_are_a_decode_error(data):
    with pytest.raises(AmqpError) as caught:
        t.decode_whole(data)
    assert caught.value.condition == "amqp:decode-error"


def _lists(depth: int) -> bytes:
    data = b"\x45"
    for _ in range(depth):
        data = b"\xd0" + struct.pack(">II", len(data) + 4, 1) + data
    return data


@pytest.mark.parametrize(
    "data",
    [
        _lists(limits.AMQP10_DEPTH_MAX + 1),
        b"\x00" * 10_000 + b"\x41",
        b"\x00\x41" * 10_000 + b"\x41",
        b"\xe0\xff\x01\x00" + b"\x00" * 10_000,
    ],
)
def test_what_is_nested_too_deep_is_a_decode_error(data):
    with pytest.raises(AmqpError):
        t.decode_whole(data)


def test_what_is_nested_as_deep_as_may_be_decodes():
    value = t.decode_whole(_lists(limits.AMQP10_DEPTH_MAX))
    assert t.decode_whole(t.encode_value(value)) == value


def _same(one, other) -> bool:
    """Equal, and of the same types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return _same(list(one), list(other)) and _same(list(one.values()), list(other.values()))
    if isinstance(one, (list, tuple)):
        same = len(one) == len(other) and all(map(_same, one, other))
        return same and (type(one) is not t.Array or one == other)
    return one == other


@given(VALUES)
def test_every_value_comes_back_with_its_types(value):
    try:
        data = t.encode_value(value)
    except RecursionError:
        return
    decoded = t.decode_whole(data)
    assert _same(decoded, value)
    assert t.encode_value(decoded) == data
    assert t.skip_value(data, 0, len(data)) == len(data)


@given(VALUES, st.data())
def test_a_truncated_value_is_a_decode_error(value, data):
    encoded = t.encode_value(value)
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    with pytest.raises(AmqpError):
        t.decode_whole(cut)
    with pytest.raises(AmqpError):
        t.skip_value(cut, 0, len(cut))


@given(st.binary(max_size=200))
def test_random_octets_give_a_value_or_a_decode_error(data):
    try:
        value, pos = t.decode_value(data, 0, len(data))
    except AmqpError:
        return
    assert t.skip_value(data, 0, len(data)) == pos
    encoded = t.encode_value(value)
    assert t.encode_value(t.decode_whole(encoded)) == encoded


@pytest.mark.parametrize(
    "value",
    [
        object(),
        t.UByte(256),
        t.UInt(-1),
        1 << 64,
        t.Array("uint", ["x"]),
        t.Array("thing", []),
        t.Array("char", ["ab"]),
    ],
)
def test_what_amqp_has_no_form_for_is_our_error(value):
    with pytest.raises(LocalProtocolError):
        t.encode_value(value)


def test_arrays_of_other_types_differ():
    assert t.Array("uint") != t.Array("ulong")
    assert t.Array("uint") != []
    assert t.symbols("a") == t.Array("symbol", [t.Symbol("a")])
