"""Stream chunk (13)."""

from hypothesis import given
from hypothesis import strategies as st

from storage.records import ChunkKey, ChunkValue, stream_chunk
from tests.unit.storage.record_checks import QUEUE, T0, check_key_strict, check_strict, queue_ids, u64, unhex


def test_chunk_matches_the_documented_vector():
    assert stream_chunk.key(QUEUE, 300) == unhex("01 13 6f 72 64 65 72 73 00 00 00 00 00 00 00 01 2c")
    assert stream_chunk.encode(16, 2, 200, T0, T0 + 1_000) == unhex(
        "10 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 c8 00 00 00 00 00 00 00"
        "00 a8 da 76 9b 01 00 00 e8 ab da 76 9b 01 00 00"
    )


@given(queue_ids, u64, st.tuples(u64, u64, u64, u64, u64))
def test_chunk_round_trips(queue, offset, fields):
    key = stream_chunk.key(queue, offset)
    assert stream_chunk.parse_key(key) == ChunkKey(queue, offset)
    assert key.startswith(stream_chunk.prefix(queue))
    check_key_strict(stream_chunk.parse_key, key)
    value = stream_chunk.encode(*fields)
    assert stream_chunk.decode(value) == ChunkValue(*fields)
    check_strict(stream_chunk.decode, value)
