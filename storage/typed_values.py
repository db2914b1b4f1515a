"""Typed values in records: what clients say of exchanges and bindings, in one form for one meaning.

    table  count u16LE ‖ count × (name Utf8 ‖ value), in rising order of the names' bytes
    value  tag u8 ‖ what the tag says

    00 null             03 integer i64LE    06 bytes VarBytes       09 array: count u16LE ‖ values
    01 false            04 float f64LE      07 time i64LE, ms       0a table
    02 true             05 text VarBytes    08 decimal Utf8

Two tables with the same entries have the same bytes, in whatever order they were given.
"""

import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final

from storage.encoding import Reader, encode_array, encode_utf8, encode_var_bytes, pack_i64, pack_u16
from storage.errors import CorruptRecord, FormatTooNew

NULL: Final = 0x00
FALSE: Final = 0x01
TRUE: Final = 0x02
INTEGER: Final = 0x03
FLOAT: Final = 0x04
TEXT: Final = 0x05
BYTES: Final = 0x06
TIME: Final = 0x07
DECIMAL: Final = 0x08
ARRAY: Final = 0x09
TABLE: Final = 0x0A

_F64: Final = struct.Struct("<d")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


def encode_table(table: Mapping[str, object]) -> bytes:
    """Encode a table; raises ValueError for what has no type here, or does not fit."""
    entries = sorted((encode_utf8(name), value) for name, value in table.items())
    return pack_u16(len(entries)) + b"".join([name + encode_value(value) for name, value in entries])


def encode_value(value: object) -> bytes:
    """Encode a value with its tag; raises ValueError for what has no type here, or does not fit."""
    if value is None:
        return bytes((NULL,))
    if isinstance(value, bool):
        return bytes((TRUE if value else FALSE,))
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"{value} does not fit 64 bits")
        return bytes((INTEGER,)) + pack_i64(value)
    if isinstance(value, float):
        return bytes((FLOAT,)) + _F64.pack(value)
    if isinstance(value, str):
        return bytes((TEXT,)) + encode_var_bytes(value.encode())
    if isinstance(value, (bytes, bytearray)):
        return bytes((BYTES,)) + encode_var_bytes(bytes(value))
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return bytes((TIME,)) + pack_i64((moment - _EPOCH) // _MS)
    if isinstance(value, Decimal):
        return bytes((DECIMAL,)) + encode_utf8(str(value))
    if isinstance(value, Mapping):
        return bytes((TABLE,)) + encode_table(value)
    if isinstance(value, Sequence):
        return bytes((ARRAY,)) + encode_array(map(encode_value, value))
    raise ValueError(f"no value of type {type(value).__name__}")


def read_table(reader: Reader) -> dict[str, object]:
    """Read the table that comes next."""
    return {reader.utf8("name"): _read_value(reader) for _ in range(reader.u16("table count"))}


def _read_value(reader: Reader) -> object:
    tag = reader.u8("value tag")
    if tag in _CONSTANTS:
        return _CONSTANTS[tag]
    if tag == INTEGER:
        return reader.i64("integer")
    if tag == FLOAT:
        number: float = _F64.unpack(reader.take(_F64.size, "float"))[0]
        return number
    if tag in (TEXT, BYTES):
        raw = reader.take(reader.u32("length"), "text")
        return raw if tag == BYTES else _text(reader, raw)
    if tag == TIME:
        return _EPOCH + _MS * reader.i64("time")
    if tag == DECIMAL:
        return _decimal(reader, reader.utf8("decimal"))
    if tag == ARRAY:
        return [_read_value(reader) for _ in range(reader.u16("array count"))]
    if tag == TABLE:
        return read_table(reader)
    raise FormatTooNew(f"{reader.record_type}: value tag {tag:#04x}")


def _text(reader: Reader, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise CorruptRecord(reader.record_type, "text", str(error)) from error


def _decimal(reader: Reader, text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise CorruptRecord(reader.record_type, "decimal", f"{text!r} is none") from error


_CONSTANTS: Final[dict[int, bool | None]] = {NULL: None, FALSE: False, TRUE: True}
