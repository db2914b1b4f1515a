import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptRecord
from storage.records import done, failed
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
MODULES = pytest.mark.parametrize("module", [done, failed], ids=["done", "failed"])


def test_done_bucket_matches_the_documented_vector():
    assert done.key(QUEUE, BUCKET) == unhex("01 03 6f 72 64 65 72 73 00 10 00 00 00 00 00 00 14")
    message = SettledMessage(4_100, 0x1000000000000017, T0 + 1_234, 1, b"{}")
    value = unhex(
        "01 00 04 10 00 00 00 00 00 00 17 00 00 00 00 00 00 10 d2 ac da 76 9b 01 00 0001 00 02 00 00 00 7b 7d"
    )
    assert done.encode([pack_settled(*message)]) == value
    assert done.decode(value) == [message]


def test_failed_bucket_matches_the_documented_vector():
    assert failed.key(QUEUE, BUCKET) == unhex("01 04 6f 72 64 65 72 73 00 10 00 00 00 00 00 00 14")
    message = SettledMessage(4_097, 0x1000000000000014, T0 + 90_000, 3, b"{}")
    value = unhex(
        "01 00 01 10 00 00 00 00 00 00 14 00 00 00 00 00 00 10 90 07 dc 76 9b 01 00 0003 00 02 00 00 00 7b 7d"
    )
    assert failed.encode([pack_settled(*message)]) == value
    assert failed.decode(value) == [message]


@MODULES
def test_empty_bucket_round_trips(module):
    assert module.encode([]) == b"\x00\x00"
    assert module.decode(b"\x00\x00") == []


@MODULES
@given(st.lists(settled_messages, max_size=5))
def test_bucket_round_trips(module, messages):
    value = module.encode([pack_settled(*message) for message in messages])
    assert module.decode(value) == messages
    check_strict(module.decode, value)


@MODULES
@given(queue_ids, u64)
def test_key_round_trips(module, queue_id, bucket_id):
    key = module.key(queue_id, bucket_id)
    assert module.parse_key(key) == (queue_id, bucket_id)
    assert key.startswith(module.prefix(queue_id))
    assert key.startswith(module.prefix())
    check_key_strict(module.parse_key, key)


@MODULES
def test_corrupt_bucket_names_its_record_type(module):
    with pytest.raises(CorruptRecord) as caught:
        module.decode(b"\x01\x00")
    assert caught.value.record_type == module.name
