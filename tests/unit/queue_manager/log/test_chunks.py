"""Chunks: what a stream consists of, and what may be read or let go of together."""

from config import limits
from queue_manager.log.chunks import Chunks
from storage.records import ChunkValue


def made(*sizes: int) -> Chunks:
    """Closed chunks of so many messages, 10 bytes each, a second apart, one log claim each."""
    chunks = Chunks()
    offset = 0
    for number, count in enumerate(sizes):
        chunks.add(offset, count, 10 * count, 1_000 * number).sequence = 100 + number
        chunks.is_open = False
        offset += count
    return chunks


def test_a_chunk_grows_until_it_is_closed():
    chunks = Chunks()
    first = chunks.add(0, 3, 30, 5)
    assert chunks.add(3, 2, 20, 9) is first
    assert (first.count, first.payload_bytes, first.first_ms, first.last_ms) == (5, 50, 5, 9)
    chunks.is_open = False
    second = chunks.add(5, 1, 1, 7)
    assert (second.first_offset, second.first_ms, second.last_ms) == (5, 9, 9), "times never fall"
    assert (len(chunks), chunks.count, chunks.payload_bytes) == (2, 6, 51)


def test_finding():
    chunks = made(5, 5, 5)
    assert [chunks.find(offset).first_offset for offset in (0, 4, 5, 14, 99)] == [0, 0, 5, 10, 10]
    assert [chunks.published_since(at).first_offset for at in (0, 1, 1_000, 2_000)] == [0, 5, 5, 10]
    assert chunks.published_since(2_001) is None
    assert Chunks().find(0) is None


def test_dropping():
    chunks = made(5, 5, 5)
    assert [chunk.first_offset for chunk in chunks.drop_before(9)] == [0]
    assert (chunks.oldest().first_offset, chunks.count, chunks.payload_bytes) == (5, 10, 100)
    assert len(chunks.drop_before(15)) == 2
    assert (len(chunks), chunks.count, chunks.payload_bytes, chunks.newest()) == (0, 0, 0, None)


def test_what_is_read_together(monkeypatch):
    chunks = made(5, 5, 5)
    first, end = chunks.stretch(7)
    assert (first.first_offset, end) == (5, 15)
    monkeypatch.setattr(limits, "STREAM_BLOCK_BYTES", 99)
    assert chunks.stretch(2)[1] == 5
    monkeypatch.setattr(limits, "STREAM_BLOCK_BYTES", 49)
    assert chunks.stretch(2) is None, "too large at a time"
    monkeypatch.setattr(limits, "STREAM_BLOCK_BYTES", 1_000)
    monkeypatch.setattr(limits, "STREAM_CHUNK_MESSAGES", 9)
    assert chunks.stretch(2)[1] == 5
    chunks.find(2).sequence = -1
    assert chunks.stretch(2) is None, "not in the store yet"


def test_sizes(monkeypatch):
    chunks = made(5)
    assert chunks.sizes(0, 0) == (limits.STREAM_CHUNK_BYTES, limits.STREAM_CHUNK_MESSAGES)
    assert chunks.sizes(1_600, 320) == (100, 20)
    assert chunks.sizes(5, 5) == (1, 1)
    monkeypatch.setattr(limits, "STREAM_CHUNKS_KEPT", 2)
    chunks.payload_bytes = 100 * limits.STREAM_CHUNK_BYTES
    assert chunks.sizes(0, 0)[0] == 50 * limits.STREAM_CHUNK_BYTES, "larger ones, not ever more"


def test_restoring_passes_what_is_below_the_head():
    chunks = Chunks()
    chunks.restore([(0, ChunkValue(1, 5, 50, 1, 2)), (5, ChunkValue(2, 3, 30, 2, 3))], 5)
    assert (len(chunks), chunks.count, chunks.payload_bytes) == (1, 3, 30)
    added = chunks.add(8, 1, 1, 0)
    assert (added.first_offset, added.first_ms) == (8, 3)
