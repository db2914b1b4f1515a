from hypothesis import given

from storage.records import scheduled
from tests.unit.storage.record_checks import QUEUE, T0, check_key_strict, queue_ids, u64, unhex


def test_key_matches_the_documented_vector():
    key = unhex("01 0e 6f 72 64 65 72 73 00 00 00 01 9b 76 da a8 00 00 00 00 00 00 00 10 01")
    assert scheduled.key(QUEUE, T0, 4_097) == key
    assert scheduled.parse_key(key) == (QUEUE, T0, 4_097)


def test_keys_sort_by_time_and_then_by_message():
    made = [(T0, 2), (T0, 3), (T0 + 1, 1), (T0 + (1 << 40), 0)]
    keys = [scheduled.key(QUEUE, *one) for one in made]
    assert keys == sorted(keys)


@given(queue_ids, u64, u64)
def test_key_round_trips(queue_id, due_ms, message_id):
    key = scheduled.key(queue_id, due_ms, message_id)
    assert scheduled.parse_key(key) == (queue_id, due_ms, message_id)
    assert key.startswith(scheduled.prefix(queue_id))
    assert key.startswith(scheduled.prefix())
    check_key_strict(scheduled.parse_key, key)
