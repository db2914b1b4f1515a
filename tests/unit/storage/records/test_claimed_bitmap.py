"""Claimed bitmap (15)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptRecord
from storage.records import claimed_bitmap
from storage.records.special_codecs import CHUNK_BYTES, EVERYTHING
from tests.unit.storage.record_checks import QUEUE, check_key_strict, queue_ids, u64, unhex


def test_bitmap_matches_the_documented_vector():
    assert claimed_bitmap.key(QUEUE, 1) == unhex("01 15 6f 72 64 65 72 73 00 00 00 00 00 00 00 00 01")
    bitmap = bytearray(CHUNK_BYTES)
    bitmap[0] = 0b1000_0010
    bitmap[1] = 0b0000_0001
    assert claimed_bitmap.encode(bitmap) == unhex("82 01")
    assert claimed_bitmap.encode(EVERYTHING) == b""


@given(st.binary(max_size=CHUNK_BYTES).filter(lambda part: part.strip(b"\0")))
def test_bitmap_round_trips(part):
    bitmap = part.ljust(CHUNK_BYTES, b"\0")
    assert claimed_bitmap.decode(claimed_bitmap.encode(bitmap)) == bitmap


def test_bitmap_in_another_form_is_refused():
    assert claimed_bitmap.decode(b"") == EVERYTHING
    for value in (b"\0", b"\1\0", EVERYTHING, b"\1" * (CHUNK_BYTES + 1)):
        with pytest.raises(CorruptRecord):
            claimed_bitmap.decode(value)
    for bitmap in (bytes(CHUNK_BYTES), b"\1"):
        with pytest.raises(ValueError, match="CHUNK_BYTES"):
            claimed_bitmap.encode(bitmap)


@given(queue_ids, u64)
def test_key_round_trips(queue_id, chunk):
    key = claimed_bitmap.key(queue_id, chunk)
    assert claimed_bitmap.parse_key(key) == (queue_id, chunk)
    assert key.startswith(claimed_bitmap.prefix(queue_id))
    check_key_strict(claimed_bitmap.parse_key, key)
