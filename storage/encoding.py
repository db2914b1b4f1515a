"""Encodings all records share: TerminatedBytes, variable-width integers, length-prefixed values.

Integers in keys are big-endian so that keys sort by them; integers in values are little-endian. Only
SeqBlock and SegmentMeta values are big-endian. Encoders raise ValueError for what does not fit
(struct.error for an integer out of its range), decoders raise `CorruptRecord`.
"""

import struct
from collections.abc import Iterable
from typing import Final

from storage.errors import CorruptRecord

ARRAY_COUNT_MAX: Final = 65_535  # an array's count is a u16
UTF8_BYTES_MAX: Final = 65_535  # so is a string's length
VAR_BYTES_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1

_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_I64: Final = struct.Struct("<q")
_U64_KEY: Final = struct.Struct(">Q")

pack_u16: Final = _U16.pack
pack_u32: Final = _U32.pack
pack_u64: Final = _U64.pack
pack_i64: Final = _I64.pack
pack_u64_key: Final = _U64_KEY.pack


def encode_terminated(raw: bytes) -> bytes:
    """Encode TerminatedBytes: `00` becomes `01 01`, `01` becomes `01 02`, and a `00` ends it.

    Keeps the order of the raw strings, and no encoded string is a prefix of another. `ff` is not escaped:
    the layout's text says so, but that would break the order (and the code it describes does not do it
    either).
    """
    if b"\x01" in raw or b"\x00" in raw:
        raw = raw.replace(b"\x01", b"\x01\x02").replace(b"\x00", b"\x01\x01")
    return raw + b"\x00"


def decode_terminated(data: bytes, start: int, record_type: str, field: str) -> tuple[bytes, int]:
    """Decode the raw string that begins at `start`; gives also the position after its terminator."""
    end = data.find(b"\x00", start)
    if end < 0:
        raise CorruptRecord(record_type, field, "no terminator")
    escaped = data[start:end]
    if b"\x01" in escaped:
        # a run of 01s begins at an escape, so pairing them from the left is right
        escaped = escaped.replace(b"\x01\x01", b"\x00")
        if escaped.count(b"\x01") != escaped.count(b"\x01\x02"):
            raise CorruptRecord(record_type, field, "01 is followed by neither 01 nor 02")
        escaped = escaped.replace(b"\x01\x02", b"\x01")
    return escaped, end + 1


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the first key after all keys that begin with `prefix`; None if there is no such key."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes((stripped[-1] + 1,))


def encode_var_u64(value: int) -> bytes:
    """Encode an order-preserving integer: high nibble = number of further bytes, then the value; the shortest
    form.
    """
    if not 0 <= value <= U64_MAX:
        raise ValueError(f"{value} is no u64")
    if value >= 1 << 60:
        return b"\x80" + value.to_bytes(8, "big")
    length = max(0, value.bit_length() + 3) // 8
    return (value | length << (4 + 8 * length)).to_bytes(1 + length, "big")


def decode_var_u64(data: bytes, start: int, record_type: str, field: str) -> tuple[int, int]:
    """Decode the integer that begins at `start`; gives also the position after it. Only the shortest form
    is accepted.
    """
    if start >= len(data):
        raise CorruptRecord(record_type, field, "truncated")
    length = data[start] >> 4
    end = start + 1 + length
    if length > 8:
        raise CorruptRecord(record_type, field, f"length code {length}")
    if end > len(data):
        raise CorruptRecord(record_type, field, "truncated")
    value = int.from_bytes(data[start:end], "big") & ((1 << (4 + 8 * length)) - 1)
    if value > U64_MAX or encode_var_u64(value) != data[start:end]:
        raise CorruptRecord(record_type, field, "not the shortest form")
    return value, end


def encode_utf8(text: str) -> bytes:
    """Encode Utf8: u16 byte length, then the bytes."""
    raw = text.encode()
    if len(raw) > UTF8_BYTES_MAX:
        raise ValueError(f"a string of {len(raw)} bytes does not fit a u16 length")
    return pack_u16(len(raw)) + raw


def encode_var_bytes(raw: bytes) -> bytes:
    """Encode VarBytes: u32 length, then the bytes."""
    if len(raw) > VAR_BYTES_MAX:
        raise ValueError(f"{len(raw)} bytes do not fit a u32 length")
    return pack_u32(len(raw)) + raw


def encode_array(elements: Iterable[bytes]) -> bytes:
    """Encode an array: u16 count, then the encoded elements without padding."""
    parts = list(elements)
    if len(parts) > ARRAY_COUNT_MAX:
        raise ValueError(f"an array of {len(parts)} elements does not fit a u16 count")
    return pack_u16(len(parts)) + b"".join(parts)


class Reader:
    """Reads a value, or the part of a key behind its prefix, field by field.

    Numbers are those of values, little-endian. Every problem becomes a `CorruptRecord` naming the field.
    """

    __slots__ = ("data", "position", "record_type")

    def __init__(self, record_type: str, data: bytes) -> None:
        self.record_type = record_type
        self.data = data
        self.position = 0

    def take(self, count: int, field: str) -> bytes:
        """Take the next `count` bytes."""
        start = self.position
        end = start + count
        if end > len(self.data):
            raise CorruptRecord(self.record_type, field, "truncated")
        self.position = end
        return self.data[start:end]

    def skip(self, count: int) -> int:
        """Pass the next `count` bytes, which the caller reads, if they are there; give where they begin."""
        start = self.position
        self.position = start + count
        return start

    def u8(self, field: str) -> int:
        return self.take(1, field)[0]

    def u16(self, field: str) -> int:
        return int.from_bytes(self.take(2, field), "little")

    def u32(self, field: str) -> int:
        return int.from_bytes(self.take(4, field), "little")

    def u64(self, field: str) -> int:
        return int.from_bytes(self.take(8, field), "little")

    def i64(self, field: str) -> int:
        return int.from_bytes(self.take(8, field), "little", signed=True)

    def utf8(self, field: str) -> str:
        return self._text(self.take(self.u16(field), field), field)

    def var_bytes(self, field: str) -> bytes:
        return self.take(self.u32(field), field)

    def terminated_text(self, field: str) -> str:
        """Read a TerminatedBytes string, as UTF-8."""
        raw, self.position = decode_terminated(self.data, self.position, self.record_type, field)
        return self._text(raw, field)

    def rest(self) -> bytes:
        """Take all that is left."""
        return self.take(len(self.data) - self.position, "rest")

    def rest_text(self, field: str) -> str:
        """Take all that is left, as UTF-8."""
        return self._text(self.rest(), field)

    def at_end(self) -> bool:
        """Return whether every byte has been read."""
        return self.position == len(self.data)

    def finish(self) -> None:
        """Check that every byte has been read."""
        if not self.at_end():
            raise CorruptRecord(self.record_type, "end", f"{len(self.data) - self.position} bytes too many")

    def _text(self, raw: bytes, field: str) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise CorruptRecord(self.record_type, field, "not UTF-8") from error
