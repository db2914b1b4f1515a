"""Field tables and arrays (AMQP 0.9.1, 4.2.5.5, with the field types RabbitMQ's errata settles).

pamqp's own decoder takes a cut-off value without a word and copies the rest of the table for every entry, and
its encoder loses float precision and refuses `bytes`; so the walk is ours, strict and linear.
Values are the Python types pamqp uses: bool, int, float, Decimal, str (`bytes` where an `S` is not UTF-8),
bytearray (`x`), datetime, dict, list and None.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from config import limits
from protocols.amqp091.constants import SYNTAX_ERROR
from protocols.errors import LocalProtocolError, ProtocolError

_U32: Final = Struct(">I")
_U64: Final = Struct(">Q")
_I64: Final = Struct(">q")
_F64: Final = Struct(">d")
_DECIMAL: Final = Struct(">Bi")

_ARRAY: Final = ord("A")
_TABLE: Final = ord("F")
_LONG_STRING: Final = ord("S")
_BYTE_ARRAY: Final = ord("x")
_BOOL: Final = ord("t")
_DECIMAL_TYPE: Final = ord("D")
_TIMESTAMP: Final = ord("T")

# width of the value in bytes; 0x00 is a void some clients send
_FIXED_BYTES: Final[dict[int, int]] = {
    **dict.fromkeys(b"tbB", 1),
    **dict.fromkeys(b"su", 2),
    **dict.fromkeys(b"Iif", 4),
    **dict.fromkeys(b"lLdT", 8),
    **dict.fromkeys(b"V\0", 0),
    _DECIMAL_TYPE: 5,
}
_NUMBERS: Final[dict[int, Struct]] = {
    ord(code): Struct(">" + form)
    for code, form in (
        ("b", "b"),
        ("B", "B"),
        ("s", "h"),
        ("u", "H"),
        ("I", "i"),
        ("i", "I"),
        ("l", "q"),
        ("L", "q"),
        ("f", "f"),
        ("d", "d"),
    )
}
_LATEST: Final = datetime.max.replace(tzinfo=UTC)


def _malformed(what: str) -> ProtocolError:
    return ProtocolError(SYNTAX_ERROR, f"malformed field table: {what}")


def _span(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Start and end of what follows a 32-bit length at `pos`."""
    start = pos + 4
    if start > end:
        raise _malformed("length cut off")
    stop = start + _U32.unpack_from(data, pos)[0]
    if stop > end:
        raise _malformed("value longer than what holds it")
    return start, int(stop)


def _skip_value(data: bytes, pos: int, end: int, depth: int) -> int:
    """Return the position after the field value (type octet first) at `pos`."""
    if pos >= end:
        raise _malformed("value missing")
    kind = data[pos]
    width = _FIXED_BYTES.get(kind)
    if width is not None:
        pos += 1 + width
        if pos > end:
            raise _malformed("value cut off")
        return pos
    if kind == _TABLE:
        return skip_table(data, pos + 1, end, depth + 1)
    if kind not in b"SxA":
        raise _malformed(f"unknown field type 0x{kind:02x}")
    pos, stop = _span(data, pos + 1, end)
    if kind == _ARRAY:
        if depth >= limits.AMQP_TABLE_DEPTH_MAX:
            raise _malformed("nested too deep")
        while pos < stop:
            pos = _skip_value(data, pos, stop, depth + 1)
    return stop


def skip_table(data: bytes, pos: int, end: int, depth: int = 0) -> int:
    """Check the structure of the table at `pos`; gives the position after it.

    Raises ProtocolError (502) when anything is cut off, unknown or nested too deep.
    """
    if depth >= limits.AMQP_TABLE_DEPTH_MAX:
        raise _malformed("nested too deep")
    pos, stop = _span(data, pos, end)
    while pos < stop:
        pos = _skip_value(data, pos + 1 + data[pos], stop, depth)
    return stop


def entry_spans(data: bytes, pos: int, end: int) -> list[tuple[bytes, int, int]]:
    """Name, start and end (of the whole entry) for each entry of the table at `pos`."""
    pos, stop = _span(data, pos, end)
    spans = []
    while pos < stop:
        value_at = pos + 1 + data[pos]
        after = _skip_value(data, value_at, stop, 0)
        spans.append((data[pos + 1 : value_at], pos, after))
        pos = after
    return spans


def _decode_timestamp(seconds: int) -> datetime:
    """Decode seconds, or milliseconds where seconds would be beyond the year 2106 (as pamqp reads them)."""
    try:
        return datetime.fromtimestamp(seconds / 1000 if seconds > 0xFFFFFFFF else seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return _LATEST


def _decode_value(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
    if pos >= end:
        raise _malformed("value missing")
    kind = data[pos]
    pos += 1
    width = _FIXED_BYTES.get(kind)
    if width is not None:
        if pos + width > end:
            raise _malformed("value cut off")
        return _decode_fixed(data, pos, kind), pos + width
    if kind == _TABLE:
        pairs, pos = decode_pairs(data, pos, end, depth + 1)
        return dict(pairs), pos
    pos, stop = _span(data, pos, end)
    if kind == _LONG_STRING:
        raw = data[pos:stop]
        try:
            return raw.decode(), stop
        except UnicodeDecodeError:
            return raw, stop
    if kind == _BYTE_ARRAY:
        return bytearray(data[pos:stop]), stop
    if kind != _ARRAY:
        raise _malformed(f"unknown field type 0x{kind:02x}")
    if depth >= limits.AMQP_TABLE_DEPTH_MAX:
        raise _malformed("nested too deep")
    items = []
    while pos < stop:
        item, pos = _decode_value(data, pos, stop, depth + 1)
        items.append(item)
    return items, stop


def _decode_fixed(data: bytes, pos: int, kind: int) -> Any:
    number = _NUMBERS.get(kind)
    if number is not None:
        return number.unpack_from(data, pos)[0]
    if kind == _BOOL:
        return data[pos] != 0
    if kind == _TIMESTAMP:
        return _decode_timestamp(_U64.unpack_from(data, pos)[0])
    if kind == _DECIMAL_TYPE:
        scale, mantissa = _DECIMAL.unpack_from(data, pos)
        return Decimal(mantissa).scaleb(-scale)
    return None


def decode_pairs(data: bytes, pos: int, end: int, depth: int = 0) -> tuple[list[tuple[str, Any]], int]:
    """Decode the table at `pos` as pairs, in order and with duplicates; gives also the position after it.

    Raises ProtocolError (502) as `skip_table` does. Names that are not UTF-8 get replacement characters.
    """
    if depth >= limits.AMQP_TABLE_DEPTH_MAX:
        raise _malformed("nested too deep")
    pos, stop = _span(data, pos, end)
    pairs = []
    while pos < stop:
        value_at = pos + 1 + data[pos]
        name = data[pos + 1 : value_at].decode(errors="replace")
        value, pos = _decode_value(data, value_at, stop, depth)
        pairs.append((name, value))
    return pairs, stop


def decode_timestamp(data: bytes, pos: int) -> datetime:
    """Decode the 64-bit timestamp at `pos`; what no datetime can hold becomes the latest one."""
    return _decode_timestamp(_U64.unpack_from(data, pos)[0])


def short_string(text: str) -> bytes:
    """Encode length octet and UTF-8; raises LocalProtocolError above 255 bytes."""
    raw = text.encode(errors="replace")
    if len(raw) > 255:
        raise LocalProtocolError(f"short string of {len(raw)} bytes")
    return bytes((len(raw),)) + raw


def _encode_int(value: int) -> bytes:
    # 64 bits always: other brokers send counters so, and typed clients cast to the type they know
    try:
        return b"l" + _I64.pack(value)
    except StructError:
        raise LocalProtocolError(f"integer beyond 64 bits in a field table: {value}") from None


def _encode_decimal(value: Decimal) -> bytes:
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent >= -255:
        scale = max(-exponent, 0)
        mantissa = int(value.scaleb(scale))
        if -(2**31) <= mantissa < 2**31:
            return b"D" + _DECIMAL.pack(scale, mantissa)
    return b"S" + _sized(str(value).encode())  # no field type holds it: its text does


def _sized(raw: bytes | bytearray) -> bytes:
    return _U32.pack(len(raw)) + raw


def encode_value(value: Any) -> bytes:
    """Encode type octet and value. `bytes` go as `S`, bytearray as `x`, every int as a signed 64-bit `l`.

    Raises LocalProtocolError for a type that field tables do not have.
    """
    kind = type(value)
    if kind is int:
        return _encode_int(value)
    if kind is str:
        return b"S" + _sized(value.encode(errors="replace"))
    return _encode_other(value)


def _encode_other(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, bytes):
        return b"S" + _sized(value)
    if value is None:
        return b"V"
    if isinstance(value, float):
        return b"d" + _F64.pack(value)
    if isinstance(value, dict):
        return b"F" + encode_table(value.items())
    if isinstance(value, (list, tuple)):
        return b"A" + _sized(b"".join([encode_value(item) for item in value]))
    if isinstance(value, datetime):
        return b"T" + encode_timestamp(value)
    if isinstance(value, Decimal):
        return _encode_decimal(value)
    if isinstance(value, bytearray):
        return b"x" + _sized(value)
    raise LocalProtocolError(f"no field type for {type(value).__name__}")


def encode_timestamp(value: datetime) -> bytes:
    """Encode whole seconds since 1970, 64 bits; a naive datetime is UTC, and before 1970 is 1970."""
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return _U64.pack(max(int(value.timestamp()), 0))


@lru_cache(maxsize=256)
def encode_name(name: str) -> bytes:
    """Encode the name of a table entry with its length octet, cut to 255 bytes."""
    raw = name.encode(errors="replace")
    if len(raw) > 255:
        raw = raw[:255].decode(errors="ignore").encode()
    return bytes((len(raw),)) + raw


def encode_entry(name: str, value: Any) -> bytes:
    """Encode one table entry. A name longer than the 255 bytes the wire has room for is cut."""
    return encode_name(name) + encode_value(value)


def encode_table(pairs: Iterable[tuple[str, Any]]) -> bytes:
    """Encode a whole table with its length, entries in the order given."""
    return _sized(b"".join([encode_entry(name, value) for name, value in pairs]))
