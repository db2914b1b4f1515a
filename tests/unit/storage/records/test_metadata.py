import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptRecord
from storage.records import metadata
from tests.unit.storage.envelopes import encode_metadata_run
from tests.unit.storage.record_checks import check_strict, metadata_bytes, u64, unhex

V9 = unhex(
    "02 00 01 10 00 00 00 00 00 00 02 00 00 00 7b 7d02 10 00 00 00 00 00 00 07 00 00 00 7b 22 70 22 3a 31 7d"
)


def test_entry_matches_the_documented_vector():
    messages = [(4_097, b"{}"), (4_098, b'{"p":1}')]
    assert metadata.encode(messages) == V9
    assert metadata.decode(V9) == messages
    assert metadata.join_metadata(2, encode_metadata_run(4_097, [b"{}", b'{"p":1}'])) == V9


@given(st.lists(st.tuples(u64, metadata_bytes), max_size=8))
def test_entry_round_trips(messages):
    value = metadata.encode(messages)
    assert metadata.decode(value) == messages
    check_strict(metadata.decode, value)


@given(st.integers(0, 40), st.lists(u64, max_size=8))
def test_entry_of_equal_lengths_round_trips(length, ids):
    messages = [(message_id, bytes(length)) for message_id in ids]
    value = metadata.encode(messages)
    assert metadata.decode(value) == messages
    check_strict(metadata.decode, value)


def test_entry_of_different_lengths_with_the_sum_of_equal_ones_round_trips():
    messages = [(1, b"four"), (2, b"three +"), (3, b"o")]
    assert metadata.decode(metadata.encode(messages)) == messages


@given(st.integers(0, 2**60), st.lists(metadata_bytes, max_size=8), st.lists(metadata_bytes, max_size=8))
def test_joined_runs_decode_as_one_entry(first, left, right):
    parts = encode_metadata_run(first, left) + encode_metadata_run(first + 99, right)
    value = metadata.join_metadata(len(left) + len(right), parts)
    assert metadata.decode(value) == list(enumerate(left, first)) + list(enumerate(right, first + 99))


def test_entry_beyond_the_size_of_an_array_is_refused():
    assert len(metadata.encode([(0, b"")] * 65_535)) == 2 + 12 * 65_535
    with pytest.raises(ValueError, match="65536"):
        metadata.encode([(0, b"")] * 65_536)


@given(st.binary(max_size=80))
def test_arbitrary_bytes_decode_or_are_refused(data):
    try:
        messages = metadata.decode(data)
    except CorruptRecord:
        return
    assert metadata.encode(messages) == data
