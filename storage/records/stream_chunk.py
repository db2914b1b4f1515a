"""Stream chunk, type 13: a stretch of a stream that retention lets go of as a whole.

    key    01 13 ‖ TB(queue) ‖ first_offset u64BE
    value  first_sequence u64LE ‖ message_count u64LE ‖ payload_bytes u64LE ‖ first_ms u64LE ‖ last_ms u64LE

`first_sequence` is that of the log entry which begins with `first_offset`: entries never lie in two chunks.
`first_ms` and `last_ms` are when the first and the last message were published; they never fall from chunk to
chunk. The newest chunk's record is written again with every commit that adds to it; a chunk goes with its
last log entry.
"""

import struct
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, pack_u64_key

NAME: Final = "stream chunk"
PREFIX: Final = layout.record_prefix(layout.STREAM_CHUNK)
_VALUE: Final = struct.Struct("<5Q")


class ChunkKey(NamedTuple):
    """Which chunk of which stream."""

    queue_id: str
    first_offset: int


class ChunkValue(NamedTuple):
    """What is in a chunk, where and when it begins."""

    first_sequence: int
    message_count: int
    payload_bytes: int
    first_ms: int
    last_ms: int


def key(queue_id: str, first_offset: int) -> bytes:
    return prefix(queue_id) + pack_u64_key(first_offset)


def parse_key(raw: bytes) -> ChunkKey:
    reader = KeyReader(NAME, raw, PREFIX)
    found = ChunkKey(reader.terminated_text("queue_id"), reader.u64("first_offset"))
    reader.finish()
    return found


def prefix(queue_id: str | None = None) -> bytes:
    """What the keys of one stream's chunks (or of all) begin with, oldest first."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.STREAM_CHUNK, queue_id)


def encode(chunk: ChunkValue) -> bytes:
    return _VALUE.pack(*chunk)


def decode(value: bytes) -> ChunkValue:
    reader = ValueReader(NAME, value)
    chunk = ChunkValue(*(reader.u64(field) for field in ChunkValue._fields))
    reader.finish()
    return chunk
