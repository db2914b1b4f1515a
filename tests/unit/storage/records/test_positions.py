"""Log cursor (08), claim state (09), payload references (0a), group position (0b), queue meta (0c)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptRecord
from storage.records import claim_state, group_position, log_cursor, payload_refs, queue_meta
from tests.unit.storage.record_checks import QUEUE, check_key_strict, check_strict, queue_ids, u32, u64, unhex

log_ids = st.from_regex(r"[A-Za-z0-9._-]{1,10}", fullmatch=True)


def test_log_cursor_matches_the_documented_vector():
    assert log_cursor.key(QUEUE, "0") == unhex("01 08 6f 72 64 65 72 73 00 30")
    assert log_cursor.encode(301) == unhex("2d 01 00 00 00 00 00 00")


def test_claim_state_matches_the_documented_vector():
    assert claim_state.key(QUEUE) == unhex("01 09 6f 72 64 65 72 73 00")
    assert claim_state.encode(1, 24) == unhex("01 18 00 00 00 00 00 00 00")


def test_payload_references_match_the_documented_vector():
    assert payload_refs.key(4_097) == unhex("01 0a 00 00 00 00 00 00 10 01")
    assert payload_refs.encode(3) == unhex("03 00 00 00")


def test_group_position_matches_the_documented_vector():
    assert group_position.key("orders\x1fbi") == unhex("01 0b 6f 72 64 65 72 73 1f 62 69 00")
    assert group_position.encode(301) == unhex("2d 01 00 00 00 00 00 00")


def test_queue_meta_matches_the_documented_vector():
    assert queue_meta.key(QUEUE) == unhex("01 0c 6f 72 64 65 72 73")
    assert queue_meta.encode(301, 16) == unhex("2d 01 00 00 00 00 00 00 10 00 00 00 00 00 00 00")


@given(u64)
def test_log_cursor_and_group_position_round_trip(number):
    for module in (log_cursor, group_position):
        value = module.encode(number)
        assert module.decode(value) == number
        check_strict(module.decode, value)


@given(u32)
def test_payload_references_round_trip(count):
    value = payload_refs.encode(count)
    assert payload_refs.decode(value) == count
    check_strict(payload_refs.decode, value)


@given(st.integers(0, 4), st.integers(0, 2**60))
def test_claim_state_round_trips(exponent, number):
    value = claim_state.encode(exponent, number)
    assert claim_state.decode(value) == (exponent, number)
    check_strict(claim_state.decode, value)


def test_claim_state_out_of_range_is_refused():
    with pytest.raises(ValueError):
        claim_state.encode(5, 0)
    for value in (b"\x05" + bytes(8), b"\x01" + b"\xff" * 8):
        with pytest.raises(CorruptRecord):
            claim_state.decode(value)


@given(u64, u64)
def test_queue_meta_round_trips(offset, sequence):
    value = queue_meta.encode(offset, sequence)
    assert queue_meta.decode(value) == (offset, sequence)
    check_strict(queue_meta.decode, value)


@given(queue_ids, log_ids)
def test_log_cursor_key_round_trips(queue_id, log_id):
    key = log_cursor.key(queue_id, log_id)
    assert log_cursor.parse_key(key) == (queue_id, log_id)
    assert key.startswith(log_cursor.prefix(queue_id))
    assert key.startswith(log_cursor.prefix())
    check_key_strict(log_cursor.parse_key, key, free_tail=len(log_id))


@given(queue_ids)
def test_keys_of_one_queue_round_trip(queue_id):
    for module in (claim_state, group_position):
        key = module.key(queue_id)
        assert module.parse_key(key) == queue_id
        assert key.startswith(module.prefix())
        check_key_strict(module.parse_key, key)
    key = queue_meta.key(queue_id)
    assert queue_meta.parse_key(key) == queue_id
    assert key.startswith(queue_meta.prefix())
    with pytest.raises(CorruptRecord):
        queue_meta.parse_key(queue_meta.prefix())


@given(u64)
def test_payload_reference_key_round_trips(message_id):
    key = payload_refs.key(message_id)
    assert payload_refs.parse_key(key) == message_id
    assert key.startswith(payload_refs.prefix())
    check_key_strict(payload_refs.parse_key, key)
