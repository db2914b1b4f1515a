"""Staged rows (17), committed epochs (18), epochs being moved into the log (19)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptRecord
from storage.records import CommittedEpoch, DecidedEpoch, StagedKey, committed_epoch, epoch, staged_rows
from storage.records.staged_values import StagedHead, StagedRun, decode_staged_head
from tests.unit.storage.record_checks import (
    QUEUE,
    T0,
    check_key_strict,
    check_strict,
    i64,
    queue_ids,
    u64,
    unhex,
)

KEY = StagedKey(QUEUE, "job", 7, 2, "a1", 300)


def test_staged_rows_match_the_documented_vector():
    key = unhex(
        "01 17  6f 72 64 65 72 73 00  6a 6f 62 00  00 00 00 00 00 00 00 07  00 00 00 00 00 00 00 02"
        " 61 31 00  00 00 00 00 00 00 01 2c"
    )
    assert staged_rows.key(*KEY) == key
    assert staged_rows.parse_key(key) == KEY
    check_key_strict(staged_rows.parse_key, key)
    value = unhex(
        "b8 0b 00 00 00 00 00 00  02 00 00 00  07 00 00 00 00 00 00 00  00 a8 da 76 9b 01 00 00"
        " 02 00 00 00  01 10 00 00 00 00 00 00  ff ff ff ff ff ff ff ff  02 00 00 00  7b 7d"
        " 05 00 00 00  02 00 00 00  68 65 6c 6c 6f 68 69"
    )
    runs = [StagedRun(b"{}", -1, 4_097, [b"hello", b"hi"])]
    assert staged_rows.encode(3_000, T0, runs) == value
    assert staged_rows.decode(value) == runs
    assert decode_staged_head(value) == StagedHead(3_000, 2, 7, T0)
    check_strict(staged_rows.decode, value)


runs = st.lists(
    st.builds(
        StagedRun,
        st.binary(max_size=10),
        i64,
        u64,
        st.lists(st.binary(max_size=5), min_size=1, max_size=4),
    ),
    max_size=3,
)


@given(u64, i64, runs)
def test_staged_rows_round_trip(bytes_before, staged_at_ms, rows):
    value = staged_rows.encode(bytes_before, staged_at_ms, rows)
    assert staged_rows.decode(value) == rows
    bodies = [body for run in rows for body in run.bodies]
    assert decode_staged_head(value) == (bytes_before, len(bodies), sum(map(len, bodies)), staged_at_ms)


@given(st.lists(st.tuples(queue_ids, queue_ids, u64, u64, queue_ids, u64), min_size=2, max_size=6))
def test_staged_keys_sort_in_the_order_of_the_queue(keys):
    assert [staged_rows.parse_key(staged_rows.key(*key)) for key in keys] == keys
    by_key = sorted(keys, key=lambda key: staged_rows.key(*key))
    assert by_key == sorted(
        keys, key=lambda k: (k[0].encode(), k[1].encode(), k[2], k[3], k[4].encode(), k[5])
    )
    for key in keys:
        raw = staged_rows.key(*key)
        assert raw.startswith(staged_rows.prefix(key[0]))
        assert raw.startswith(staged_rows.prefix(*key[:3]))
        assert raw.startswith(staged_rows.prefix(*key[:5]))


def test_wrong_row_count_is_corrupt():
    value = bytearray(staged_rows.encode(0, T0, [StagedRun(b"", -1, 0, [b"x"])]))
    value[8] = 2
    with pytest.raises(CorruptRecord, match="row_count"):
        staged_rows.decode(bytes(value))


def test_committed_epoch_matches_the_documented_vector():
    key = unhex("01 18  6f 72 64 65 72 73 00  6a 6f 62")
    assert committed_epoch.key(QUEUE, "job") == key
    assert committed_epoch.parse_key(key) == (QUEUE, "job")
    value = unhex("07 00 00 00 00 00 00 00  00 a8 da 76 9b 01 00 00  2c 01 00 00 00 00 00 00  02 00 65 65")
    assert committed_epoch.encode(7, T0, 300, "ee") == value
    assert committed_epoch.decode(value) == CommittedEpoch(7, T0, 300, "ee")
    check_strict(committed_epoch.decode, value)


def test_epoch_matches_the_documented_vector():
    key = unhex("01 19  6f 72 64 65 72 73 00  00 00 00 00 00 00 00 05")
    assert epoch.key(QUEUE, 5) == key
    assert epoch.parse_key(key) == (QUEUE, 5)
    check_key_strict(epoch.parse_key, key)
    value = unhex("03 00 6a 6f 62  07 00 00 00 00 00 00 00  01 00  02 00 00 00 00 00 00 00  02 00 61 31")
    assert epoch.encode("job", 7, [(2, "a1")]) == value
    assert epoch.decode(value) == DecidedEpoch("job", 7, ((2, "a1"),))
    check_strict(epoch.decode, value)
