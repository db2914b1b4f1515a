from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptRecord, FormatTooNew
from storage.records import ACCOUNT_BYTES, queue_account
from storage.records.special_codecs import APPENDED, EXPIRED, EXPIRED_OFFSETS, TAKEN
from tests.unit.storage.record_checks import (
    QUEUE,
    check_key_strict,
    check_strict,
    i64,
    queue_ids,
    u64,
    unhex,
)

decode_ranges = partial(EXPIRED_OFFSETS.decode, queue_account.name)
decode_bytes = partial(ACCOUNT_BYTES.decode, queue_account.name)


def test_records_match_the_documented_vectors():
    assert queue_account.key(QUEUE, APPENDED) == unhex("01 14 6f 72 64 65 72 73 00 01")
    assert ACCOUNT_BYTES.encode(9, 1_000) == unhex("09 00 00 00 00 00 00 00 e8 03 00 00 00 00 00 00")
    assert queue_account.key(QUEUE, EXPIRED, 1) == unhex(
        "01 14 6f 72 64 65 72 73 00 03 00 00 00 00 00 00 00 01"
    )
    assert EXPIRED_OFFSETS.encode([(2, 4)]) == unhex("01 00 02 00 04 00")


@given(queue_ids, st.sampled_from([APPENDED, TAKEN]))
def test_key_of_a_count_round_trips(queue_id, kind):
    key = queue_account.key(queue_id, kind)
    assert queue_account.parse_key(key) == (queue_id, kind, 0)
    check_key_strict(queue_account.parse_key, key)


@given(queue_ids, u64)
def test_key_of_a_part_round_trips(queue_id, part):
    key = queue_account.key(queue_id, EXPIRED, part)
    assert queue_account.parse_key(key) == (queue_id, EXPIRED, part)
    check_key_strict(queue_account.parse_key, key)


def test_unknown_kind_is_of_a_newer_release():
    with pytest.raises(FormatTooNew, match="kind 9"):
        queue_account.parse_key(queue_account.prefix(QUEUE) + b"\x09")


@given(u64, i64)
def test_count_round_trips(next_offset, count):
    value = ACCOUNT_BYTES.encode(next_offset, count)
    assert decode_bytes(value) == (next_offset, count)
    check_strict(decode_bytes, value)


@given(st.sets(st.integers(0, 4_096), max_size=40))
def test_ranges_round_trip(edges):
    ordered = sorted(edges)
    ranges = list(zip(ordered[::2], ordered[1::2], strict=False))
    value = EXPIRED_OFFSETS.encode(ranges)
    assert decode_ranges(value) == ranges
    check_strict(decode_ranges, value)


@pytest.mark.parametrize("ranges", [[(3, 3)], [(4, 3)], [(0, 4_097)], [(5, 6), (1, 2)], [(1, 4), (4, 5)]])
def test_ranges_out_of_order_are_corrupt(ranges):
    with pytest.raises(CorruptRecord, match="range"):
        decode_ranges(EXPIRED_OFFSETS.encode(ranges))
