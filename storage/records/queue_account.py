"""Queue account, type 14: what a queue keeps count of beside its log.

    bytes appended        01 14 ‖ TB(queue) ‖ 01              →  next_offset u64LE ‖ bytes i64LE
    bytes taken           01 14 ‖ TB(queue ID of group) ‖ 02  →  next_offset u64LE ‖ bytes i64LE
    given up ahead        01 14 ‖ TB(queue) ‖ 03 ‖ part u64BE →  Array of (start u16LE ‖ end u16LE)

The bytes of payload appended to the queue, and those of them the group has taken or let go of, while the
queue's policy bounds them, both from one beginning; each holds for the offset in it only. Offsets given up
ahead: groups whose position is at or below one have let go of it (it expired before they came to it) and pass
over it. A part is 4,096 offsets, counted from part * 4,096 in rising, separate ranges.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, encode_array, pack_i64, pack_u16, pack_u64, pack_u64_key
from storage.errors import CorruptRecord, FormatTooNew

NAME: Final = "queue account"
PREFIX: Final = layout.record_prefix(layout.QUEUE_ACCOUNT)

APPENDED: Final = 1
TAKEN: Final = 2
EXPIRED: Final = 3

PART_OFFSETS: Final = 4_096


class AccountKey(NamedTuple):
    """Which account; `part` is 0 but for EXPIRED."""

    queue_id: str
    kind: int
    part: int


class Bytes(NamedTuple):
    """So many bytes up to `next_offset`."""

    next_offset: int
    body_bytes: int


def key(queue_id: str, kind: int, part: int = 0) -> bytes:
    raw = prefix(queue_id) + bytes((kind,))
    return raw + pack_u64_key(part) if kind == EXPIRED else raw


def parse_key(raw: bytes) -> AccountKey:
    reader = KeyReader(NAME, raw, PREFIX)
    queue_id = reader.terminated_text("queue_id")
    kind = reader.u8("kind")
    if kind not in (APPENDED, TAKEN, EXPIRED):
        raise FormatTooNew(f"{NAME}: kind {kind}")
    found = AccountKey(queue_id, kind, reader.u64("part") if kind == EXPIRED else 0)
    reader.finish()
    return found


def prefix(queue_id: str | None = None) -> bytes:
    """What the keys of one queue or group (or of all) begin with."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.QUEUE_ACCOUNT, queue_id)


def encode_bytes(next_offset: int, count: int) -> bytes:
    return pack_u64(next_offset) + pack_i64(count)


def decode_bytes(value: bytes) -> Bytes:
    reader = ValueReader(NAME, value)
    found = Bytes(reader.u64("next_offset"), reader.i64("bytes"))
    reader.finish()
    return found


def encode_ranges(ranges: Sequence[tuple[int, int]]) -> bytes:
    """`ranges` are half-open, within one part."""
    return encode_array([pack_u16(start) + pack_u16(end) for start, end in ranges])


def decode_ranges(value: bytes) -> list[tuple[int, int]]:
    reader = ValueReader(NAME, value)
    found = []
    last_end = -1
    for _ in range(reader.u16("count")):
        start, end = reader.u16("start"), reader.u16("end")
        if not last_end < start < end <= PART_OFFSETS:
            raise CorruptRecord(NAME, "range", f"{start} to {end}")
        found.append((start, end))
        last_end = end
    reader.finish()
    return found
