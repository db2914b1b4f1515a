import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptRecord
from storage.records import settlements
from storage.records.bucket_values import SettledMessage, pack_settled
from tests.unit.storage.record_checks import (
    QUEUE,
    T0,
    check_key_strict,
    check_strict,
    i64,
    metadata_bytes,
    queue_ids,
    u16,
    u64,
    unhex,
)

BUCKET = 0x1000000000000014
settled_messages = st.builds(SettledMessage, u64, u64, i64, u16, metadata_bytes)


def test_settlements_match_the_documented_vector():
    assert settlements.key(QUEUE, BUCKET, BUCKET + 3) == unhex(
        "01 21 6f 72 64 65 72 73 00 10 00 00 00 00 00 00 14 10 00 00 00 00 00 00 17"
    )
    message = SettledMessage(4_100, 0x1000000000000017, T0 + 1_234, 1, b"{}")
    value = unhex(
        "01 00 04 10 00 00 00 00 00 00 17 00 00 00 00 00 00 10 d2 ac da 76 9b 01 00 00"
        "01 00 02 00 00 00 7b 7d 01 00 18 00 00 00 00 00 00 10"
    )
    assert settlements.encode([pack_settled(*message)], [BUCKET + 4]) == value
    assert settlements.decode(value) == ([message], [BUCKET + 4])


@given(st.lists(settled_messages, max_size=4), st.lists(u64, max_size=4))
def test_settlements_round_trip(done, released):
    value = settlements.encode([pack_settled(*message) for message in done], released)
    assert settlements.decode(value) == (done, released)
    check_strict(settlements.decode, value)


@given(queue_ids, u64, u64)
def test_key_round_trips(queue_id, bucket_id, claim_id):
    key = settlements.key(queue_id, bucket_id, claim_id)
    assert settlements.parse_key(key) == (queue_id, bucket_id, claim_id)
    assert key.startswith(settlements.prefix(queue_id))
    assert key.startswith(settlements.prefix())
    check_key_strict(settlements.parse_key, key)


def test_corrupt_settlements_name_their_record_type():
    with pytest.raises(CorruptRecord) as caught:
        settlements.decode(b"\x00\x00\x01\x00")
    assert caught.value.record_type == settlements.name
