"""Claimed bitmap (15)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptRecord
from storage.records import taken_ahead
from tests.unit.storage.record_checks import QUEUE, check_key_strict, queue_ids, u64, unhex


def test_bitmap_matches_the_documented_vector():
    assert taken_ahead.key(QUEUE, 1) == unhex("01 15 6f 72 64 65 72 73 00 00 00 00 00 00 00 00 01")
    bitmap = bytearray(taken_ahead.CHUNK_BYTES)
    bitmap[0] = 0b1000_0010
    bitmap[1] = 0b0000_0001
    assert taken_ahead.encode(bitmap) == unhex("82 01")
    assert taken_ahead.encode(taken_ahead.EVERYTHING) == b""


@given(st.binary(max_size=taken_ahead.CHUNK_BYTES).filter(lambda part: part.strip(b"\0")))
def test_bitmap_round_trips(part):
    bitmap = part.ljust(taken_ahead.CHUNK_BYTES, b"\0")
    assert taken_ahead.decode(taken_ahead.encode(bitmap)) == bitmap


def test_bitmap_in_another_form_is_refused():
    assert taken_ahead.decode(b"") == taken_ahead.EVERYTHING
    for value in (b"\0", b"\1\0", taken_ahead.EVERYTHING, b"\1" * (taken_ahead.CHUNK_BYTES + 1)):
        with pytest.raises(CorruptRecord):
            taken_ahead.decode(value)
    for bitmap in (bytes(taken_ahead.CHUNK_BYTES), b"\1"):
        with pytest.raises(ValueError, match="CHUNK_BYTES"):
            taken_ahead.encode(bitmap)


@given(queue_ids, u64)
def test_key_round_trips(queue_id, chunk):
    key = taken_ahead.key(queue_id, chunk)
    assert taken_ahead.parse_key(key) == (queue_id, chunk)
    assert key.startswith(taken_ahead.prefix(queue_id))
    check_key_strict(taken_ahead.parse_key, key)
