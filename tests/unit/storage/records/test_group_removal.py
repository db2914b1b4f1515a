"""Group removal (1c), skipped offsets (1d), released offsets (1e)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptRecord, FormatTooNew
from storage.records import (
    DELETE,
    RESET,
    PendingGroupRemoval,
    group_removal,
    released_offsets,
    skipped_offsets,
)
from tests.unit.storage.record_checks import QUEUE, T0, check_key_strict, check_strict, queue_ids, u64, unhex

RANGES = st.lists(st.integers(0, 1 << 40), max_size=8, unique=True).map(
    lambda numbers: (
        list(zip(sorted(numbers)[::2], sorted(numbers)[1::2], strict=False)) if len(numbers) > 1 else []
    )
)


def test_records_match_the_documented_vectors() -> None:
    assert group_removal.key("orders\x1fbi", 4097) == unhex(
        "01 1c 6f 72 64 65 72 73 1f 62 69 00 00 00 00 00 00 00 10 01"
    )
    pending = PendingGroupRemoval("q3", DELETE, 100, 0, 7, [(7, 9)], [])
    assert group_removal.encode(*pending) == unhex(
        "02 00 71 33 01  64 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  07 00 00 00 00 00 00 00"
        "01 00 00 00  07 00 00 00 00 00 00 00  09 00 00 00 00 00 00 00  00 00 00 00"
    )
    assert skipped_offsets.key("orders\x1fbi") == unhex("01 1d 6f 72 64 65 72 73 1f 62 69 00")
    assert skipped_offsets.encode(T0, [(7, 9)]) == unhex(
        "00 a8 da 76 9b 01 00 00  01 00 00 00  07 00 00 00 00 00 00 00  09 00 00 00 00 00 00 00"
    )
    assert released_offsets.key(QUEUE) == unhex("01 1e 6f 72 64 65 72 73")
    assert released_offsets.encode([(7, 9)]) == unhex(
        "01 00 00 00  07 00 00 00 00 00 00 00  09 00 00 00 00 00 00 00"
    )


@given(queue_ids, u64)
def test_keys_round_trip(queue_id: str, number: int) -> None:
    key = group_removal.key(queue_id, number)
    assert group_removal.parse_key(key) == (queue_id, number)
    assert key.startswith(group_removal.prefix(queue_id))
    check_key_strict(group_removal.parse_key, key)
    assert released_offsets.parse_key(released_offsets.key(queue_id)) == queue_id
    assert skipped_offsets.parse_key(skipped_offsets.key(queue_id)) == queue_id
    check_key_strict(skipped_offsets.parse_key, skipped_offsets.key(queue_id))


@given(st.integers(0, RESET), u64, u64, u64, RANGES, RANGES)
def test_values_round_trip(
    mode: int,
    claim_end: int,
    failed_below: int,
    head: int,
    log: list[tuple[int, int]],
    rows: list[tuple[int, int]],
) -> None:
    pending = PendingGroupRemoval("q3", mode, claim_end, failed_below, head, log, rows)
    value = group_removal.encode(*pending)
    assert group_removal.decode(value) == pending
    check_strict(group_removal.decode, value)
    value = released_offsets.encode(log)
    assert released_offsets.decode(value) == log
    check_strict(released_offsets.decode, value)
    value = skipped_offsets.encode(head, log)
    assert skipped_offsets.decode(value) == (head, log)
    check_strict(skipped_offsets.decode, value)


@pytest.mark.parametrize("ranges", [[(3, 3)], [(4, 3)], [(1, 5), (4, 8)], [(5, 8), (1, 2)], [(1, 2), (2, 3)]])
def test_ranges_out_of_order_are_corrupt(ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(CorruptRecord, match="order"):
        released_offsets.decode(released_offsets.encode(ranges))


def test_unknown_mode_is_of_a_newer_release() -> None:
    value = group_removal.encode("q3", 3, 0, 0, 0, [], [])
    with pytest.raises(FormatTooNew, match="group removal: mode 3"):
        group_removal.decode(value)
