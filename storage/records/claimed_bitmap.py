"""Claimed bitmap, type 15: offsets beyond a group's position (0b) that it has claimed or passed over already.

    key    01 15 ‖ TB(queue ID of the group) ‖ chunk u64BE
    value  bitmap: bit `i % 8` of byte `i // 8` stands for offset `chunk * 4096 + i`, without zero bytes at
           its end; empty: every offset of the chunk

Only groups with selectors have such records: they claim out of order. Bits below the position mean nothing.
Written with the buckets of the claims; a chunk the position has passed is deleted with the position.
"""

from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, pack_u64_key
from storage.errors import CorruptRecord

NAME: Final = "claimed bitmap"
PREFIX: Final = layout.record_prefix(layout.CLAIMED_BITMAP)
CHUNK_BITS: Final = 12
CHUNK_OFFSETS: Final = 1 << CHUNK_BITS
CHUNK_BYTES: Final = CHUNK_OFFSETS // 8
EVERYTHING: Final = b"\xff" * CHUNK_BYTES


class ClaimedBitmapKey(NamedTuple):
    """Which offsets of which group."""

    queue_id: str
    chunk: int


def key(queue_id: str, chunk: int) -> bytes:
    return prefix(queue_id) + pack_u64_key(chunk)


def parse_key(raw: bytes) -> ClaimedBitmapKey:
    reader = KeyReader(NAME, raw, PREFIX)
    found = ClaimedBitmapKey(reader.terminated_text("queue_id"), reader.u64("chunk"))
    reader.finish()
    return found


def prefix(queue_id: str | None = None) -> bytes:
    """What the keys of one group's chunks (or of all groups') begin with."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.CLAIMED_BITMAP, queue_id)


def encode(bitmap: bytes | bytearray) -> bytes:
    """The value of a bitmap of CHUNK_BYTES with at least one bit set."""
    if bitmap == EVERYTHING:
        return b""
    value = bytes(bitmap).rstrip(b"\x00")
    if not value or len(bitmap) != CHUNK_BYTES:
        raise ValueError("a bitmap has CHUNK_BYTES bytes, and bits in them")
    return value


def decode(value: bytes) -> bytes:
    """The bitmap, of CHUNK_BYTES."""
    if not value:
        return EVERYTHING
    if len(value) > CHUNK_BYTES:
        raise CorruptRecord(NAME, "bitmap", f"{len(value)} bytes")
    if not value[-1] or value == EVERYTHING:
        raise CorruptRecord(NAME, "bitmap", "not in its shortest form")
    return value.ljust(CHUNK_BYTES, b"\x00")
