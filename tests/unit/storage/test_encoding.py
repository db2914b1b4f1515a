import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import encoding
from storage.errors import CorruptRecord
from tests.unit.storage.record_checks import u64, unhex

# few byte values, those with a meaning among them, so that escapes meet often
tricky_bytes = st.lists(st.sampled_from([0x00, 0x01, 0x02, 0x03, 0x61, 0xFE, 0xFF]), max_size=12).map(bytes)


def decode_terminated(data, start=0):
    return encoding.decode_terminated(data, start, "test", "field")


def decode_var_u64(data, start=0):
    return encoding.decode_var_u64(data, start, "test", "field")


@pytest.mark.parametrize(
    ("raw", "encoded"),
    [
        (unhex("61 00 62 01 63 ff 64"), unhex("61 01 01 62 01 02 63 ff 64 00")),
        (b"", b"\x00"),
        ("orders.eu/é".encode(), unhex("6f 72 64 65 72 73 2e 65 75 2f c3 a9 00")),
        (b"\x00\x01\x02", unhex("01 01 01 02 02 00")),
    ],
)
def test_terminated_bytes_match_the_documented_vectors(raw, encoded):
    assert encoding.encode_terminated(raw) == encoded
    assert decode_terminated(encoded) == (raw, len(encoded))


@given(tricky_bytes | st.binary(max_size=40), st.binary(max_size=5))
def test_terminated_bytes_round_trip(raw, rest):
    encoded = encoding.encode_terminated(raw)
    assert decode_terminated(b"xy" + encoded + rest, 2) == (raw, 2 + len(encoded))


@given(tricky_bytes, tricky_bytes)
def test_terminated_bytes_keep_order_and_are_prefix_free(left, right):
    a, b = encoding.encode_terminated(left), encoding.encode_terminated(right)
    assert (a < b) == (left < right)
    assert left == right or not a.startswith(b)


@pytest.mark.parametrize("damaged", ["", "61 62", "01 01", "01 00", "01 03 00", "61 01 01 01 00", "01 62 00"])
def test_damaged_terminated_bytes_are_refused(damaged):
    with pytest.raises(CorruptRecord):
        decode_terminated(unhex(damaged))


@given(tricky_bytes)
def test_terminated_bytes_decode_only_in_canonical_form(data):
    try:
        raw, end = decode_terminated(data)
    except CorruptRecord:
        return
    assert encoding.encode_terminated(raw) == data[:end]


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (15, "0f"),
        (16, "10 10"),
        (100, "10 64"),
        (4_095, "1f ff"),
        (4_096, "20 10 00"),
        (1_048_575, "2f ff ff"),
        (1_048_576, "30 10 00 00"),
        (2**60 - 1, "7f ff ff ff ff ff ff ff"),
        (2**60, "80 10 00 00 00 00 00 00 00"),
        (2**64 - 1, "80 ff ff ff ff ff ff ff ff"),
    ],
)
def test_var_u64_matches_the_documented_vectors(value, encoded):
    assert encoding.encode_var_u64(value) == unhex(encoded)
    assert decode_var_u64(unhex(encoded)) == (value, len(unhex(encoded)))


def test_var_u64_keeps_order_around_every_power_of_two():
    values = sorted({v for k in range(65) for v in (2**k - 1, 2**k, 2**k + 1) if v < 2**64})
    encoded = [encoding.encode_var_u64(value) for value in values]
    assert encoded == sorted(encoded)
    assert [decode_var_u64(data) for data in encoded] == [
        (value, len(data)) for value, data in zip(values, encoded, strict=True)
    ]


@given(u64, u64, st.binary(max_size=4))
def test_var_u64_round_trips_and_keeps_order(left, right, rest):
    a, b = encoding.encode_var_u64(left), encoding.encode_var_u64(right)
    assert (a < b) == (left < right)
    assert decode_var_u64(rest + a + rest, len(rest)) == (left, len(rest) + len(a))
    for length in range(len(a)):
        with pytest.raises(CorruptRecord):
            decode_var_u64(a[:length])


@pytest.mark.parametrize(
    "damaged", ["", "90 00 00 00 00 00 00 00 00 00", "10", "10 0f", "20 00 ff", "81" + "00" * 8]
)
def test_damaged_var_u64_is_refused(damaged):
    with pytest.raises(CorruptRecord):
        decode_var_u64(unhex(damaged))


@pytest.mark.parametrize("value", [-1, 2**64])
def test_var_u64_outside_64_bits_is_refused(value):
    with pytest.raises(ValueError, match="u64"):
        encoding.encode_var_u64(value)


@given(tricky_bytes)
def test_prefix_end_is_above_all_keys_of_the_prefix(prefix):
    end = encoding.prefix_end(prefix)
    if end is None:
        assert not prefix.strip(b"\xff")
        return
    assert prefix + b"\xff" * 20 < end
    assert not end.startswith(prefix)
    assert prefix < end


def test_prefix_end_carries_over_ff():
    assert encoding.prefix_end(b"a\xff\xff") == b"b"
    assert encoding.prefix_end(b"\xff") is None


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.binary(max_size=30))
def test_value_fields_round_trip(text, raw):
    data = (
        encoding.encode_utf8(text)
        + encoding.encode_var_bytes(raw)
        + b"\x07"
        + struct.pack("<HIQq", 1, 2, 3, -2)
    )
    reader = encoding.Reader("test", data)
    assert reader.utf8("a") == text
    assert reader.var_bytes("b") == raw
    assert reader.u8("c") == 7
    assert (reader.u16("d"), reader.u32("e"), reader.u64("f"), reader.i64("g")) == (1, 2, 3, -2)
    assert reader.at_end()
    reader.finish()


def test_error_of_a_reader_names_record_and_field():
    with pytest.raises(CorruptRecord, match="corrupt thing record: size") as caught:
        encoding.Reader("thing", b"\x01").u16("size")
    assert (caught.value.record_type, caught.value.field) == ("thing", "size")
    with pytest.raises(CorruptRecord, match="not UTF-8"):
        encoding.Reader("thing", b"\x01\x00\xff").utf8("name")
    with pytest.raises(CorruptRecord, match="1 bytes too many"):
        encoding.Reader("thing", b"\x01").finish()


def test_texts_of_keys_are_read_strictly():
    with pytest.raises(CorruptRecord, match="not UTF-8"):
        encoding.Reader("thing", b"\xff\x00").terminated_text("name")
    with pytest.raises(CorruptRecord, match="not UTF-8"):
        encoding.Reader("thing", b"\xff").rest_text("name")
    reader = encoding.Reader("thing", b"a\x00bc")
    assert reader.terminated_text("name") == "a"
    with pytest.raises(CorruptRecord, match="2 bytes too many"):
        reader.finish()


def test_text_or_array_beyond_its_length_field_is_refused():
    assert len(encoding.encode_utf8("x" * 65_535)) == 65_537
    with pytest.raises(ValueError, match="65536 bytes"):
        encoding.encode_utf8("x" * 65_536)
    assert len(encoding.encode_array([b""] * 65_535)) == 2
    with pytest.raises(ValueError, match="65536 elements"):
        encoding.encode_array([b""] * 65_536)
