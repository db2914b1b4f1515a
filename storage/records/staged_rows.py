"""Staged rows, type 17: published for an epoch that is not committed, or not yet in the queue's log.

    key    01 17 ‖ TB(queue) ‖ TB(producer) ‖ epoch u64BE ‖ part u64BE ‖ TB(attempt) ‖ first_row u64BE
    value  bytes_before u64LE ‖ row_count u32LE ‖ body_bytes u64LE ‖ staged_at i64LE ‖ Runs
    Run    row_count u32LE ‖ first_id u64LE ‖ due_ms i64LE ‖ envelope VarBytes ‖ sizes u32LE each ‖ bodies

One record holds what one attempt staged within one commit, or a part of that. The payloads have their own
records already, under `first_id` and the IDs after it; here they lie in one piece, so that taking rows over
into the log reads few records and writes little but the log. `first_row` counts the rows of the attempt and
`bytes_before` their bytes, so that its last record tells its size. Rows published alike are one run with one
envelope (offset and receipt time 0). Keys sort as the rows of an epoch go into the queue. `due_ms` is when
the rows may enter the queue; `AT_ONCE`, or a time that is past: with the commit. (Versions up to 0.2 have
the TTL of the rows there, which is past as a time.)
"""

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, encode_terminated, pack_u64_key
from storage.errors import CorruptRecord

NAME: Final = "staged rows"
PREFIX: Final = layout.record_prefix(layout.STAGED_ROWS)

AT_ONCE: Final = -1

_HEAD: Final = struct.Struct("<QIQq")
_RUN: Final = struct.Struct("<IQqI")
_SIZE: Final = struct.Struct("<I")


class StagedKey(NamedTuple):
    """Whose rows, and which of them is the first."""

    queue_id: str
    producer: str
    epoch: int
    part: int
    attempt: str
    first_row: int


class StagedHead(NamedTuple):
    """What the beginning of a value tells: bytes of the attempt before it, rows and bytes in it, and when."""

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


def key(queue_id: str, producer: str, epoch: int, part: int, attempt: str, first_row: int) -> bytes:
    return attempt_prefix(queue_id, producer, epoch, part, attempt) + pack_u64_key(first_row)


def parse_key(raw: bytes) -> StagedKey:
    reader = KeyReader(NAME, raw, PREFIX)
    found = StagedKey(
        reader.terminated_text("queue_id"),
        reader.terminated_text("producer"),
        reader.u64("epoch"),
        reader.u64("part"),
        reader.terminated_text("attempt"),
        reader.u64("first_row"),
    )
    reader.finish()
    return found


def prefix(queue_id: str | None = None) -> bytes:
    """What the keys of one queue's rows (or of all queues') begin with."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.STAGED_ROWS, queue_id)


def epoch_prefix(queue_id: str, producer: str, epoch: int) -> bytes:
    """What the keys of one epoch begin with."""
    return prefix(queue_id) + encode_terminated(producer.encode()) + pack_u64_key(epoch)


def attempt_prefix(queue_id: str, producer: str, epoch: int, part: int, attempt: str) -> bytes:
    """What the keys of one attempt at one part of an epoch begin with."""
    return epoch_prefix(queue_id, producer, epoch) + pack_u64_key(part) + encode_terminated(attempt.encode())


def encode(bytes_before: int, staged_at_ms: int, runs: Sequence[StagedRun]) -> bytes:
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


def decode_head(value: bytes) -> StagedHead:
    """Only the beginning of a value."""
    if len(value) < _HEAD.size:
        raise CorruptRecord(NAME, "head", "truncated")
    return StagedHead(*_HEAD.unpack_from(value))


def decode(value: bytes) -> list[StagedRun]:
    head = decode_head(value)
    unpack_run, unpack_size = _RUN.unpack_from, _SIZE.unpack_from
    position = _HEAD.size
    size = len(value)
    runs = []
    row_count = 0
    while position < size:
        start = position + _RUN.size
        if start > size:
            raise CorruptRecord(NAME, "run", "truncated")
        count, first_id, due_ms, envelope_bytes = unpack_run(value, position)
        sizes_at = start + envelope_bytes
        bodies_at = sizes_at + 4 * count
        if bodies_at > size:
            raise CorruptRecord(NAME, "sizes", "truncated")
        if count == 1:  # rows with properties of their own are many
            position = bodies_at + unpack_size(value, sizes_at)[0]
            bodies = [value[bodies_at:position]]
        else:
            ends = list(accumulate(struct.unpack_from(f"<{count}I", value, sizes_at), initial=bodies_at))
            position = ends[-1]
            bodies = [value[first:last] for first, last in zip(ends, ends[1:], strict=False)]
        if position > size:
            raise CorruptRecord(NAME, "bodies", "truncated")
        runs.append(StagedRun(value[start:sizes_at], due_ms, first_id, bodies))
        row_count += count
    if row_count != head.row_count:
        raise CorruptRecord(NAME, "row_count", f"{head.row_count}, but it holds {row_count}")
    return runs
