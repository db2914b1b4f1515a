"""Field tables: every type, strictness, round trips."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import decode as pamqp_decode

from config import limits
from protocols.amqp091 import tables
from protocols.errors import LocalProtocolError, ProtocolError
from tests.vectors import amqp


def sized(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "big") + raw


EXPECTED = {
    "t": True,
    "b": -1,
    "B": 255,
    "s": -2,
    "u": 65534,
    "I": -2,
    "i": 4294967294,
    "l": -2,
    "L": -2,
    "f": 1.5,
    "d": 1.5,
    "D": Decimal("1.23"),
    "S": "ab",
    "A": [True, 5],
    "T": datetime.fromtimestamp(0x65000000, UTC),
    "F": {"a": False},
    "V": None,
    "x": bytearray(b"\x00\xff"),
    "\0": None,
}


@pytest.mark.parametrize("kind", sorted(amqp.TABLE_ENTRIES))
def test_each_field_type_is_decoded_and_skipped(kind):
    raw = sized(amqp.TABLE_ENTRIES[kind])
    assert tables.decode_pairs(raw, 0, len(raw)) == ([("k", EXPECTED[kind])], len(raw))
    assert tables.skip_table(raw, 0, len(raw)) == len(raw)


@pytest.mark.parametrize("kind", sorted(amqp.TABLE_ENTRIES))
def test_field_value_equals_that_of_pamqp(kind):
    assert pamqp_decode.field_table(sized(amqp.TABLE_ENTRIES[kind]))[1] == {"k": EXPECTED[kind]}


def test_each_known_field_type_has_a_test_value():
    assert {key.decode("latin-1") for key in pamqp_decode.TABLE_MAPPING} == set(amqp.TABLE_ENTRIES)


@pytest.mark.parametrize("kind", sorted(amqp.TABLE_ENTRIES))
def test_truncated_table_is_refused(kind):
    entry = amqp.TABLE_ENTRIES[kind]
    for cut in range(1, len(entry)):
        raw = sized(entry[:cut])
        for read in (tables.skip_table, tables.decode_pairs):
            with pytest.raises(ProtocolError) as caught:
                read(raw, 0, len(raw))
            assert caught.value.code == 502


def test_value_beyond_its_table_is_refused():
    raw = sized(bytes.fromhex("01 6b 53 00000003 6162")) + b"c"
    with pytest.raises(ProtocolError):
        tables.skip_table(raw, 0, len(raw))
    with pytest.raises(ProtocolError):
        tables.decode_pairs(raw, 0, len(raw))


@pytest.mark.parametrize("kind", [b"A", b"F"])
def test_nesting_beyond_the_limit_is_refused(kind):
    raw = b""
    for _ in range(limits.AMQP_TABLE_DEPTH_MAX + 2):
        raw = (b"\x01k" if kind == b"F" else b"") + kind + sized(raw)
    raw = sized(raw if kind == b"F" else b"\x01k" + raw)
    for read in (tables.skip_table, tables.decode_pairs):
        with pytest.raises(ProtocolError, match="deep"):
            read(raw, 0, len(raw))


def test_order_and_duplicates_of_a_table_are_kept():
    pairs = [("b", 1), ("a", 2), ("b", 3)]
    raw = tables.encode_table(pairs)
    assert tables.decode_pairs(raw, 0, len(raw))[0] == pairs


def test_string_that_is_not_utf8_is_bytes_both_ways():
    raw = tables.encode_table([("k", b"\xff\xfe")])
    assert raw[6:7] == b"S"
    assert tables.decode_pairs(raw, 0, len(raw))[0] == [("k", b"\xff\xfe")]


@pytest.mark.parametrize("seconds", [0, 0xFFFFFFFF, 1_712_345_678_901, 2**63, 2**64 - 1])
def test_timestamp_of_any_value_decodes(seconds):
    value = tables.decode_timestamp(seconds.to_bytes(8, "big"), 0)
    assert value.tzinfo is UTC
    assert value.timestamp() >= 0


def test_timestamp_in_milliseconds_is_recognised():
    assert tables.decode_timestamp((1_712_345_678_000).to_bytes(8, "big"), 0).year == 2024


def test_naive_and_early_datetimes_are_encoded():
    assert tables.encode_timestamp(datetime(1970, 1, 1, 0, 0, 5)) == (5).to_bytes(8, "big")
    assert tables.encode_timestamp(datetime(1960, 1, 1, tzinfo=UTC)) == bytes(8)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, object(), {1, 2}])
def test_encoding_a_value_without_a_field_type_raises(value):
    with pytest.raises(LocalProtocolError):
        tables.encode_value(value)


def test_long_name_is_truncated_at_a_character():
    raw = tables.encode_entry("ä" * 200, None)
    assert raw[0] == 254
    assert raw[1:255].decode() == "ä" * 127


def test_decimal_beyond_its_field_is_sent_as_text():
    assert tables.encode_value(Decimal("12345678901.5")).endswith(b"12345678901.5")
    assert tables.encode_value(Decimal("NaN")).endswith(b"NaN")
    assert tables.encode_value(Decimal("1E+2")) == b"D\x00" + (100).to_bytes(4, "big")


def test_short_string_beyond_255_bytes_raises():
    assert tables.short_string("x" * 255)[0] == 255
    with pytest.raises(LocalProtocolError):
        tables.short_string("x" * 256)


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.binary(max_size=20).map(bytearray)
    | st.datetimes(datetime(1970, 1, 1), datetime(2105, 1, 1), timezones=st.just(UTC)).map(
        lambda moment: moment.replace(microsecond=0)
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.tuples(names, values), max_size=6))
def test_tables_round_trip(pairs):
    raw = tables.encode_table(pairs)
    assert tables.decode_pairs(raw, 0, len(raw)) == (pairs, len(raw))
    assert tables.skip_table(raw, 0, len(raw)) == len(raw)
    spans = tables.entry_spans(raw, 0, len(raw))
    assert [name.decode() for name, _, _ in spans] == [name for name, _ in pairs]


@given(st.binary(max_size=60))
def test_random_bytes_are_accepted_or_refused_alike_by_both_readers(raw):
    outcomes = []
    for read in (tables.skip_table, tables.decode_pairs):
        try:
            read(raw, 0, len(raw))
            outcomes.append("taken")
        except ProtocolError as error:
            outcomes.append(str(error.code))
    assert outcomes[0] == outcomes[1]
