from hypothesis import given
from hypothesis import strategies as st

from storage.records import NONE_TAKEN, identified, producer
from tests.unit.storage.record_checks import (
    QUEUE,
    T0,
    check_key_strict,
    check_strict,
    queue_ids,
    u64,
    unhex,
)

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
digests = st.binary(min_size=8, max_size=8)


def test_records_match_the_documented_vectors():
    key = unhex("01 10 6f 72 64 65 72 73 00 6f 2d 31")
    assert identified.key(QUEUE, "o-1") == key
    value = unhex("00 a8 da 76 9b 01 00 00 00 01 02 03 04 05 06 07")
    assert identified.encode(T0, bytes(range(8))) == value
    assert producer.key(QUEUE, "p") == unhex("01 11 6f 72 64 65 72 73 00 70")
    assert producer.encode(7, T0, bytes(range(8))) == unhex("07 00 00 00 00 00 00 00") + value
    refused = producer.encode(NONE_TAKEN, T0, bytes(range(8)), 9)
    assert refused == unhex("ff ff ff ff ff ff ff ff") + value + unhex("09 00 00 00 00 00 00 00")


@given(queue_ids, names, u64, digests)
def test_ids_round_trip(queue_id, name, seen_ms, digest):
    key = identified.key(queue_id, name)
    assert identified.parse_key(key) == (queue_id, name)
    assert key.startswith(identified.prefix(queue_id))
    check_key_strict(identified.parse_key, key, free_tail=len(name.encode()))
    value = identified.encode(seen_ms, digest)
    assert identified.decode(value) == (seen_ms, digest)
    check_strict(identified.decode, value)


@given(queue_ids, names, st.integers(-1, (1 << 63) - 1), u64, digests, u64)
def test_producers_round_trip(queue_id, name, sequence, seen_ms, digest, refused):
    key = producer.key(queue_id, name)
    assert producer.parse_key(key) == (queue_id, name)
    assert key.startswith(producer.prefix(queue_id))
    value = producer.encode(sequence, seen_ms, digest)
    assert producer.decode(value) == (sequence, seen_ms, digest, None)
    check_strict(producer.decode, value)
    assert producer.decode(value + refused.to_bytes(8, "little")) == (sequence, seen_ms, digest, refused)
    check_strict(producer.decode, producer.encode(sequence, seen_ms, digest, refused), {len(value)})
