"""Removal (0d)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptRecord
from storage.records import Released, removal
from tests.unit.storage.record_checks import QUEUE, check_strict, queue_ids, unhex


def test_removal_matches_the_documented_vector():
    assert removal.key("q3") == unhex("01 0d 71 33")
    value = removal.encode(QUEUE, [QUEUE, "orders\x1fbi"])
    assert value == unhex(
        "06 00 6f 72 64 65 72 73  02 00  06 00 6f 72 64 65 72 73  09 00 6f 72 64 65 72 73 1f 62 69"
    )
    known = removal.encode(QUEUE, [QUEUE, "orders\x1fbi"], Released(5, [(7, 8)]))
    assert known == value + unhex(
        "05 00 00 00 00 00 00 00  01 00 00 00  07 00 00 00 00 00 00 00 08 00 00 00 00 00 00 00"
    )
    taken = removal.encode(QUEUE, [QUEUE, "orders\x1fbi"], Released(5, [(7, 8)], [(2, 3)]))
    assert taken == known + unhex("01 00 00 00  02 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00")


@given(queue_ids, st.lists(queue_ids, max_size=5))
def test_value_round_trips(name, ids):
    value = removal.encode(name, ids)
    assert removal.decode(value) == (name, tuple(ids), None)
    check_strict(removal.decode, value)
    known = removal.encode(name, ids, Released(9, [(10, 12), (20, 21)], None))
    taken = removal.encode(name, ids, Released(9, [(10, 12)], []))
    assert removal.decode(taken) == (name, tuple(ids), (9, [(10, 12)], []))
    assert removal.decode(known) == (name, tuple(ids), (9, [(10, 12), (20, 21)], None))
    taken = removal.encode(name, ids, Released(9, [(10, 12)], []))
    assert removal.decode(taken) == (name, tuple(ids), (9, [(10, 12)], []))
    for end in range(len(value) + 1, len(known)):
        with pytest.raises(CorruptRecord):
            removal.decode(known[:end])


@given(st.from_regex(r"[A-Za-z0-9._-]{1,10}", fullmatch=True))
def test_key_round_trips(log_id):
    assert removal.parse_key(removal.key(log_id)) == log_id
    assert removal.key(log_id).startswith(removal.prefix())
