"""Values of staged rows (17): published for an epoch that is not committed, or not yet in the queue's log.

    staged (17)  bytes_before u64, row_count u32, body_bytes u64, staged_at i64, runs
    run          row_count u32, first_id u64, due_ms i64, envelope VarBytes, size u32 of each, bodies

What one attempt staged within one commit, or a part of that: at most 1,024 rows and 128 KiB. The payloads
have their own records already, with IDs from `first_id` on; here they lie in one piece, so that taking rows
over reads few records. `bytes_before` counts the attempt's bytes in earlier records. Rows published alike are
one run; its envelope has offset and receipt time 0. `due_ms` is when the rows may enter the queue; -1, or a
time that is past: with the commit. (Versions up to 0.2 have the TTL of the rows there, which is past as a
time.)
"""

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from storage.encoding import Reader
from storage.errors import CorruptRecord
from storage.records.fields import Codec

AT_ONCE: Final = -1

_NAME: Final = "staged rows"
_HEAD: Final = struct.Struct("<QIQq")
_RUN: Final = struct.Struct("<IQqI")
_SIZE: Final = struct.Struct("<I")


class StagedHead(NamedTuple):
    """The beginning of a value: bytes of the attempt before it, rows and bytes in it, and when."""

    bytes_before: int
    row_count: int
    body_bytes: int
    staged_at_ms: int


class StagedRun(NamedTuple):
    """Rows published alike."""

    envelope: bytes
    due_ms: int
    first_id: int
    bodies: list[bytes]


def _encode(bytes_before: int, staged_at_ms: int, runs: Sequence[StagedRun]) -> bytes:
    row_count = body_bytes = 0
    parts = [b""]
    for envelope, due_ms, first_id, bodies in runs:
        sizes = list(map(len, bodies))
        row_count += len(bodies)
        body_bytes += sum(sizes)
        parts.append(_RUN.pack(len(bodies), first_id, due_ms, len(envelope)))
        parts.append(envelope)
        parts.append(struct.pack(f"<{len(sizes)}I", *sizes))
        parts += bodies
    parts[0] = _HEAD.pack(bytes_before, row_count, body_bytes, staged_at_ms)
    return b"".join(parts)


def decode_staged_head(value: bytes) -> StagedHead:
    """Decode only the beginning of a value."""
    if len(value) < _HEAD.size:
        raise CorruptRecord(_NAME, "head", "truncated")
    return StagedHead(*_HEAD.unpack_from(value))


def _read(reader: Reader) -> list[StagedRun]:
    value = reader.data
    head = decode_staged_head(value)
    unpack_run, unpack_size = _RUN.unpack_from, _SIZE.unpack_from
    position = _HEAD.size
    size = len(value)
    runs = []
    row_count = 0
    while position < size:
        start = position + _RUN.size
        if start > size:
            raise CorruptRecord(_NAME, "run", "truncated")
        count, first_id, due_ms, envelope_bytes = unpack_run(value, position)
        sizes_at = start + envelope_bytes
        bodies_at = sizes_at + 4 * count
        if bodies_at > size:
            raise CorruptRecord(_NAME, "sizes", "truncated")
        if count == 1:  # rows with properties of their own are many
            position = bodies_at + unpack_size(value, sizes_at)[0]
            bodies = [value[bodies_at:position]]
        else:
            ends = list(accumulate(struct.unpack_from(f"<{count}I", value, sizes_at), initial=bodies_at))
            position = ends[-1]
            bodies = [value[first:last] for first, last in zip(ends, ends[1:], strict=False)]
        if position > size:
            raise CorruptRecord(_NAME, "bodies", "truncated")
        runs.append(StagedRun(value[start:sizes_at], due_ms, first_id, bodies))
        row_count += count
    if row_count != head.row_count:
        raise CorruptRecord(_NAME, "row_count", f"{head.row_count}, but it holds {row_count}")
    reader.skip(size - reader.position)
    return runs


STAGED: Final = Codec(_encode, _read)
"""`encode` takes the bytes of the attempt before, when the rows were staged, and their runs."""
