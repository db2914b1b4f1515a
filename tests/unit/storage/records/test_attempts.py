from hypothesis import given
from hypothesis import strategies as st

from storage.records import attempts
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

consumers = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def test_attempts_match_the_documented_vector():
    assert attempts.key(QUEUE, 4_097) == unhex("01 05 6f 72 64 65 72 73 00 00 00 00 00 00 00 10 01")
    value = unhex(
        "02 00 00 a8 da 76 9b 01 00 00 03 00 63 2d 3118 21 db 76 9b 01 00 00 09 00 77 6f 72 6b 65 72 2d c3 a9"
    )
    made = [(T0, "c-1"), (T0 + 31_000, "worker-é")]
    assert attempts.encode(made) == value
    assert attempts.decode(value) == (made, 0)
    assert attempts.encode(made, 258) == value + unhex("02 01")
    assert attempts.decode(value + unhex("02 01")) == (made, 258)


@given(st.lists(st.tuples(i64, consumers), max_size=5))
def test_attempts_round_trip_in_order(made):
    value = attempts.encode(made)
    assert attempts.decode(value) == (made, 0)
    check_strict(attempts.decode, value)


@given(queue_ids, u64)
def test_key_round_trips(queue_id, message_id):
    key = attempts.key(queue_id, message_id)
    assert attempts.parse_key(key) == (queue_id, message_id)
    assert key.startswith(attempts.prefix(queue_id))
    assert key.startswith(attempts.prefix())
    check_key_strict(attempts.parse_key, key)
