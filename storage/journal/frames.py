"""The bytes of a journal, as in `docs/record-layout.md`, section 7: segments of frames, and the end record.

Nobody can publish a body that would pass for a frame, or is full of marks which would have a start look for
frames in what a segment held before: checksums and marks begin with a number no client knows. Version 1 had
the same mark everywhere.
"""

import struct
import zlib
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from config import limits
from storage.batch import WriteOps
from storage.errors import CorruptRecord, FormatTooNew, NotOpened
from storage.seal import Seal

JOURNAL_VERSION: Final = 2
SEALED_VERSION: Final = 3
_ONE_MARK_VERSION: Final = 1

_SEGMENT_MAGIC: Final = b"sluicejl"
_END_MAGIC: Final = b"sluiceje"
_ONE_MARK: Final = 0x6D724A53

_HEAD: Final = struct.Struct("<8sIIQQQI20x")
_HEAD_START: Final = struct.Struct("<8sII")
_FRAME: Final = struct.Struct("<IIIIIIQQ")
_FRAME_START: Final = struct.Struct("<II")
_FRAME_REST: Final = struct.Struct("<IIIIQQ")
_END: Final = struct.Struct("<8sIIQQ")
_PADDING: Final = tuple(bytes(count) for count in range(8))

HEAD_BYTES: Final = _HEAD.size
FRAME_HEAD_BYTES: Final = _FRAME.size
_SEALED_PLACE: Final = b"F"  # no key of a record begins so
END_SLOT_BYTES: Final = 4_096
"""The end record has two places so far apart, written in turn: one is always whole."""
BODY_BYTES_MAX: Final = (1 << 32) - 1


class SegmentHead(NamedTuple):
    """The head of a segment; `first` is the sequence number of its first frame."""

    database_id: int
    generation: int
    first: int
    previous: int
    version: int = JOURNAL_VERSION


class Signs(NamedTuple):
    """The signs by which the frames of one segment are known."""

    mark: int
    generation: int
    seed: int

    @property
    def mark_bytes(self) -> bytes:
        """The first bytes of each frame."""
        return struct.pack("<I", self.mark)


class FrameBody(NamedTuple):
    """A commit encoded, as far as that does not depend on its place; `checksum` is that of the body.

    The body is its `parts`, `size` bytes in all: one, or some more where values are large.
    """

    parts: list[bytes]
    size: int
    checksum: int
    puts: int
    deletes: int


class Frame(NamedTuple):
    """A whole frame: where its body begins, and where the next frame would."""

    sequence: int
    checksum: int
    previous: int
    puts: int
    deletes: int
    body_start: int
    body_end: int
    end: int


class EndRecord(NamedTuple):
    """The last commit that was confirmed, or an earlier one."""

    sequence: int
    checksum: int


def seed_of(database_id: int) -> int:
    """Return the number that the checksums of a database's frames begin with."""
    return zlib.crc32(database_id.to_bytes(8, "little"))


def encode_head(head: SegmentHead) -> bytes:
    database_id, generation, first, previous, version = head
    raw = _HEAD.pack(_SEGMENT_MAGIC, version, 0, database_id, generation, first, previous)
    checksum = zlib.crc32(raw[_HEAD_START.size :])
    return _HEAD_START.pack(_SEGMENT_MAGIC, version, checksum) + raw[_HEAD_START.size :]


def decode_head(raw: bytes) -> SegmentHead | None:
    """Decode the head, None if this is not a whole one. Raises FormatTooNew for a later version."""
    if len(raw) < HEAD_BYTES or not raw.startswith(_SEGMENT_MAGIC):
        return None
    _, version, checksum, database_id, generation, first, previous = _HEAD.unpack_from(raw)
    if version > SEALED_VERSION:
        raise FormatTooNew(f"opening: the journal has format {version}; this program reads {SEALED_VERSION}")
    if checksum != zlib.crc32(raw[_HEAD_START.size : HEAD_BYTES]):
        return None
    return SegmentHead(database_id, generation, first, previous, version)


def signs_of(head: SegmentHead) -> Signs:
    """Return the signs of the frames in the segment with this head."""
    seed = seed_of(head.database_id)
    if head.version == _ONE_MARK_VERSION:
        return Signs(_ONE_MARK, head.generation, seed)
    return Signs(zlib.crc32(head.generation.to_bytes(8, "little"), seed), head.generation, seed)


def encode_body(ops: WriteOps, seed: int) -> FrameBody:
    """Encode the commit's operations as the body of a frame. Raises ValueError if there are too many
    bytes.
    """
    fields = [field for pair in ops.puts for field in pair]
    fields += ops.deletes
    lengths = struct.pack(f"<{len(fields)}I", *map(len, fields))
    if not ops.is_large:
        raw = lengths + b"".join(fields)
        parts = [raw]
        size = len(raw)
        checksum = zlib.crc32(raw, seed)
    else:
        parts = _uncopied([lengths, *fields])
        size = sum(map(len, parts))
        checksum = seed
        for part in parts:
            checksum = zlib.crc32(part, checksum)
    if size > BODY_BYTES_MAX:
        raise ValueError(f"a commit of {size} bytes does not fit a frame")
    return FrameBody(parts, size, checksum, len(ops.puts), len(ops.deletes))


def body_to_seal(ops: WriteOps, overhead_bytes: int) -> FrameBody:
    """Encode as `encode_body` what `encode_sealed_frame` takes: the size is that of the block to come."""
    fields = [field for pair in ops.puts for field in pair]
    fields += ops.deletes
    parts = _uncopied([struct.pack(f"<{len(fields)}I", *map(len, fields)), *fields])
    size = sum(map(len, parts)) + overhead_bytes
    if size > BODY_BYTES_MAX:
        raise ValueError(f"a commit of {size} bytes does not fit a frame")
    return FrameBody(parts, size, 0, len(ops.puts), len(ops.deletes))


def _uncopied(fields: list[bytes]) -> list[bytes]:
    """Join the fields between large ones, and leave the large ones as they are: fewer parts."""
    parts: list[bytes] = []
    small: list[bytes] = []
    for field in fields:
        if len(field) > limits.JOURNAL_JOINED_BYTES_MAX:
            parts += (b"".join(small), field)
            small = []
        else:
            small.append(field)
    parts.append(b"".join(small))
    return parts


def decode_body(raw: bytes, puts: int, deletes: int) -> dict[bytes, bytes | None]:
    """Decode the operations by key; None deletes."""
    count = 2 * puts + deletes
    lengths = struct.unpack_from(f"<{count}I", raw)
    at = 4 * count
    fields = []
    for length in lengths:
        end = at + length
        fields.append(raw[at:end])
        at = end
    rows: dict[bytes, bytes | None] = dict(
        zip(fields[0 : 2 * puts : 2], fields[1 : 2 * puts : 2], strict=True)
    )
    if deletes:
        rows.update(dict.fromkeys(fields[2 * puts :]))
    return rows


def decode_early(
    raw: bytes, puts: int, deletes: int, prefix: bytes
) -> tuple[dict[bytes, bytes | None], tuple[bytes, bytes] | None]:
    """Decode as `decode_body`, without the keys that begin with `prefix`; gives also the lowest and highest
    of those.
    """
    count = 2 * puts + deletes
    ends = list(accumulate(struct.unpack_from(f"<{count}I", raw), initial=4 * count))
    left_out: list[bytes] = []
    rows: dict[bytes, bytes | None] = {}
    for start, middle, end in zip(
        ends[0 : 2 * puts : 2], ends[1 : 2 * puts : 2], ends[2 : 2 * puts + 1 : 2], strict=True
    ):
        if raw.startswith(prefix, start):
            left_out.append(raw[start:middle])
        else:
            rows[raw[start:middle]] = raw[middle:end]
    for start, end in pairwise(ends[2 * puts :]):
        if raw.startswith(prefix, start):
            left_out.append(raw[start:end])
        else:
            rows[raw[start:end]] = None
    return rows, (min(left_out), max(left_out)) if left_out else None


def frame_bytes(body_bytes: int) -> int:
    """Return the room a frame takes up, with the padding behind it."""
    return FRAME_HEAD_BYTES + body_bytes + -body_bytes % 8


def encode_frame(body: FrameBody, sequence: int, signs: Signs, previous: int) -> tuple[list[bytes], int]:
    """Encode the parts of the frame in the order they are written; gives also its checksum."""
    rest = _FRAME_REST.pack(previous, body.size, body.puts, body.deletes, sequence, signs.generation)
    checksum = zlib.crc32(rest, body.checksum)
    head = _FRAME_START.pack(signs.mark, checksum) + rest
    return [head, *body.parts, _PADDING[-body.size % 8]], checksum


def encode_sealed_frame(
    seal: Seal, body: FrameBody, sequence: int, signs: Signs, previous: int
) -> tuple[list[bytes], int]:
    """Encode as `encode_frame`, the body sealed for this place alone."""
    rest = _FRAME_REST.pack(previous, body.size, body.puts, body.deletes, sequence, signs.generation)
    block = seal.seal_parts(body.parts, body.size - seal.overhead_bytes, _SEALED_PLACE + rest)
    checksum = zlib.crc32(rest, zlib.crc32(block, signs.seed))
    head = _FRAME_START.pack(signs.mark, checksum) + rest
    return [head, block, _PADDING[-body.size % 8]], checksum


def opened_body(data: bytes, frame: Frame, seal: Seal | None) -> bytes:
    """Return the body of a frame in the segment `data`. Raises CorruptRecord if it does not open."""
    body = data[frame.body_start : frame.body_end]
    head = decode_head(data)
    is_sealed = head is not None and head.version == SEALED_VERSION
    if seal is None and not is_sealed:
        return body
    try:
        if seal is None:
            raise NotOpened("it is encrypted, and there is no key")
        if is_sealed:
            rest = data[frame.body_start - _FRAME_REST.size : frame.body_start]
            return seal.open_sealed(body, _SEALED_PLACE + rest)
        if not seal.has_plain:
            raise NotOpened("it is not encrypted, as all else is")
    except NotOpened as error:
        raise CorruptRecord("journal", f"commit {frame.sequence}", error.reason) from None
    return body


def read_frame(data: memoryview, at: int, signs: Signs) -> Frame | None:
    """Read the frame of the segment that begins at `at`, None if there is no whole one."""
    start = at + FRAME_HEAD_BYTES
    if start > len(data):
        return None
    mark, checksum, previous, body_bytes, puts, deletes, sequence, found = _FRAME.unpack_from(data, at)
    body_end = start + body_bytes
    if mark != signs.mark or found != signs.generation or body_end > len(data):
        return None
    body_checksum = zlib.crc32(data[start:body_end], signs.seed)
    if checksum != zlib.crc32(data[at + _FRAME_START.size : start], body_checksum):
        return None
    return Frame(sequence, checksum, previous, puts, deletes, start, body_end, at + frame_bytes(body_bytes))


def begun_frame(data: memoryview, at: int, signs: Signs) -> bool:
    """Return whether a frame of the segment was begun at `at`, whole or not."""
    if at + FRAME_HEAD_BYTES > len(data):
        return False
    head = _FRAME.unpack_from(data, at)
    return bool(head[0] == signs.mark and head[7] == signs.generation)


def encode_end(database_id: int, end: EndRecord) -> bytes:
    rest = struct.pack("<IQQ", end.checksum, database_id, end.sequence)
    return struct.pack("<8sI", _END_MAGIC, zlib.crc32(rest)) + rest


def decode_end(raw: bytes, database_id: int) -> EndRecord | None:
    """Decode the end record of this database, None if this is not a whole one."""
    if len(raw) < _END.size:
        return None
    magic, checksum, frame_checksum, found, sequence = _END.unpack_from(raw)
    if magic != _END_MAGIC or found != database_id or checksum != zlib.crc32(raw[12 : _END.size]):
        return None
    return EndRecord(sequence, frame_checksum)
