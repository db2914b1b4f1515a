import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptRecord
from storage.records import active
from storage.records.bucket_values import (
    AvailableMessage,
    InFlightMessage,
    pack_available,
    pack_in_flight,
)
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
AVAILABLE = AvailableMessage(4_097, 0x1000000000000014, 0, b"{}")
IN_FLIGHT = InFlightMessage(4_100, 0x1000000000000017, T0, T0 + 30_000, 1, b"{}")
V3_VALUE = unhex(
    "01 00"
    "01 10 00 00 00 00 00 00  14 00 00 00 00 00 00 10"
    "00 00  02 00 00 00 7b 7d"
    "01 00"
    "04 10 00 00 00 00 00 00  17 00 00 00 00 00 00 10"
    "00 a8 da 76 9b 01 00 00  30 1d db 76 9b 01 00 00"
    "01 00  02 00 00 00 7b 7d"
)

available_messages = st.builds(AvailableMessage, u64, u64, u16, metadata_bytes)
in_flight_messages = st.builds(InFlightMessage, u64, u64, i64, i64, u16, metadata_bytes)


def test_active_bucket_matches_the_documented_vector():
    assert active.key(QUEUE, BUCKET) == unhex("01 02 6f 72 64 65 72 73 00 10 00 00 00 00 00 00 14")
    assert len(V3_VALUE) == 68
    assert active.decode(V3_VALUE) == ([AVAILABLE], [IN_FLIGHT])
    packed = active.encode([pack_available(*AVAILABLE)], [pack_in_flight(*IN_FLIGHT)])
    assert packed == V3_VALUE


def test_empty_bucket_round_trips():
    assert active.encode([], []) == bytes(4)
    assert active.decode(bytes(4)) == ([], [])


@given(st.lists(available_messages, max_size=5), st.lists(in_flight_messages, max_size=5))
def test_bucket_round_trips(available, in_flight):
    value = active.encode(
        [pack_available(*message) for message in available],
        [pack_in_flight(*message) for message in in_flight],
    )
    assert active.decode(value) == (available, in_flight)
    check_strict(active.decode, value)


@given(queue_ids, u64)
def test_key_round_trips(queue_id, bucket_id):
    key = active.key(queue_id, bucket_id)
    assert active.parse_key(key) == (queue_id, bucket_id)
    assert key.startswith(active.prefix(queue_id))
    assert key.startswith(active.prefix())
    check_key_strict(active.parse_key, key)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_decode_or_are_refused(data):
    try:
        active.decode(data)
    except CorruptRecord:
        pass


def test_full_bucket_of_the_largest_size_round_trips():
    value = active.encode([pack_available(n, n, 0, b"") for n in range(10_000)], [])
    assert len(active.decode(value)[0]) == 10_000
    with pytest.raises(ValueError, match="65536 elements"):
        active.encode([b""] * 65_536, [])
