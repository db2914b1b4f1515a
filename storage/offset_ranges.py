"""Ranges of offsets as records hold them: u32 count ‖ count × (start u64 ‖ end u64), half-open, in order."""

import struct
from collections.abc import Sequence
from typing import Final

from storage.encoding import Reader
from storage.errors import CorruptRecord

Ranges = Sequence[tuple[int, int]]

_COUNT: Final = struct.Struct("<I")
_PAIR: Final = struct.Struct("<QQ")


def encode_ranges(ranges: Ranges) -> bytes:
    return _COUNT.pack(len(ranges)) + b"".join([_PAIR.pack(start, end) for start, end in ranges])


def read_ranges(reader: Reader, field: str) -> Ranges:
    """Read ranges. Raises CorruptRecord also for ranges that are empty, touch or are out of order."""
    ranges: list[tuple[int, int]] = []
    last = -1
    for _ in range(reader.u32(field)):
        start, end = reader.u64(field), reader.u64(field)
        if not last < start < end:
            raise CorruptRecord(reader.record_type, field, f"[{start}, {end}) is out of order")
        ranges.append((start, end))
        last = end
    return ranges
