"""The type system (AMQP 1.0, part 1): values from bytes and bytes from values.

Where Python's own type tells the AMQP type, that is the value: None, bool, int (long), float (double), bytes
(binary), str (string), UUID, list, dict (map). All others have a class here: the integers of other widths are
ints, `Float` is a float, `Symbol` and `Char` are strs, decimals are bytes. So each value encodes to the type
it was decoded from, in the shortest form of that.

A map with two keys that Python takes for equal, such as a string and the same symbol, or with a list or map
as key, is refused as malformed, though only the first half of that is the specification's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple
from uuid import UUID

from config import limits
from protocols.amqp10.errors import AmqpError, malformed
from protocols.errors import LocalProtocolError

_U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_SIZE_COUNT_8: Final = Struct(">BB")
_SIZE_COUNT_32: Final = Struct(">II")


class UByte(int):
    """An integer of type ubyte."""

    __slots__ = ()


class UShort(int):
    """An integer of type ushort."""

    __slots__ = ()


class UInt(int):
    """An integer of type uint."""

    __slots__ = ()


class ULong(int):
    """An integer of type ulong."""

    __slots__ = ()


class Byte(int):
    """An integer of type byte."""

    __slots__ = ()


class Short(int):
    """An integer of type short."""

    __slots__ = ()


class Int(int):
    """An integer of type int."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970."""

    __slots__ = ()


class Float(float):
    """A number of type float, 32 bits wide."""

    __slots__ = ()


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Symbol(str):
    """A name in ASCII."""

    __slots__ = ()


class Decimal32(bytes):
    """A decimal32 as its four octets."""

    __slots__ = ()


class Decimal64(bytes):
    """A decimal64 as its eight octets."""

    __slots__ = ()


class Decimal128(bytes):
    """A decimal128 as its sixteen octets."""

    __slots__ = ()


class Described(NamedTuple):
    """A value with a descriptor, a Symbol or a ULong as a rule."""

    descriptor: Any
    value: Any


class Array(list[Any]):
    """Values of one type. `kind` names the type; with a `descriptor`, each value is described by it."""

    __slots__ = ("descriptor", "kind")

    def __init__(self, kind: str, values: Iterable[Any] = (), descriptor: Any = None) -> None:
        super().__init__(values)
        self.kind = kind
        self.descriptor = descriptor

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Array)
            and self.kind == other.kind
            and self.descriptor == other.descriptor
            and list.__eq__(self, other)
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        described = "" if self.descriptor is None else f", {self.descriptor!r}"
        return f"Array({self.kind!r}, {list.__repr__(self)}{described})"


def symbols(*names: str) -> Array:
    """Make an array of symbols."""
    return Array("symbol", map(Symbol, names))


# fixed width (1.6): code -> (type, what reads the value, what makes it of the number read)
_FIXED: Final[dict[int, tuple[str, Struct, Callable[[Any], Any]]]] = {
    code: (kind, Struct(">" + form), make)
    for code, kind, form, make in (
        (0x56, "boolean", "B", bool),
        (0x50, "ubyte", "B", UByte),
        (0x60, "ushort", "H", UShort),
        (0x52, "uint", "B", UInt),
        (0x70, "uint", "I", UInt),
        (0x53, "ulong", "B", ULong),
        (0x80, "ulong", "Q", ULong),
        (0x51, "byte", "b", Byte),
        (0x61, "short", "h", Short),
        (0x54, "int", "b", Int),
        (0x71, "int", "i", Int),
        (0x55, "long", "b", int),
        (0x81, "long", "q", int),
        (0x72, "float", "f", Float),
        (0x82, "double", "d", float),
        (0x74, "decimal32", "4s", Decimal32),
        (0x84, "decimal64", "8s", Decimal64),
        (0x94, "decimal128", "16s", Decimal128),
        (0x73, "char", "I", lambda number: _char(number)),
        (0x83, "timestamp", "q", Timestamp),
        (0x98, "uuid", "16s", lambda octets: UUID(bytes=octets)),
    )
}
# no octet but the code
_EMPTY: Final[dict[int, tuple[str, Any]]] = {
    0x40: ("null", None),
    0x41: ("boolean", True),
    0x42: ("boolean", False),
    0x43: ("uint", UInt(0)),
    0x44: ("ulong", ULong(0)),
}
_LIST0: Final = 0x45
# a size goes before: in one octet where the second hexadecimal digit's bit 4 is not set, else in four
_VARIABLE: Final[dict[int, str]] = {
    0xA0: "binary",
    0xA1: "string",
    0xA3: "symbol",
    0xB0: "binary",
    0xB1: "string",
    0xB3: "symbol",
}
_COMPOUND: Final[dict[int, str]] = {
    0xC0: "list",
    0xC1: "map",
    0xD0: "list",
    0xD1: "map",
    0xE0: "array",
    0xF0: "array",
}
_KIND_OF_CODE: Final[dict[int, str]] = {
    **{code: kind for code, (kind, _, _) in _FIXED.items()},
    **{code: kind for code, (kind, _) in _EMPTY.items()},
    **_VARIABLE,
    **_COMPOUND,
    _LIST0: "list",
}
# octets behind a code, or behind the size that is told there, as the high digit says (1.2)
_WIDTHS: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_WIDTH_OF_CODE: Final[tuple[int, ...]] = tuple(
    _WIDTHS.get(code >> 4, -1) if code in _KIND_OF_CODE else -1 for code in range(256)
)
_SIZE_BYTES_OF_CODE: Final[tuple[int, ...]] = tuple(
    (4 if code & 0x10 else 1) if code in _VARIABLE or code in _COMPOUND else 0 for code in range(256)
)


def _char(number: int) -> Char:
    try:
        return Char(chr(number))
    except (ValueError, OverflowError):
        raise malformed(f"no character has the number 0x{number:x}") from None


def _cut_off() -> AmqpError:
    return malformed("a value is cut off")


def skip_value(data: bytes, pos: int, end: int) -> int:
    """Return the position after the value at `pos`, without looking into it.

    Raises AmqpError (decode-error) for what is cut off or has no type.
    """
    depth = 0
    described = 0  # a descriptor is a value, too: how many are to come before the value itself
    while True:
        if pos >= end:
            raise _cut_off()
        code = data[pos]
        pos += 1
        if not code:
            described += 1
            depth += 1
            if depth > limits.AMQP10_DEPTH_MAX:
                raise malformed("nested too deep")
            continue
        width = _WIDTH_OF_CODE[code]
        if width < 0:
            size_bytes = _SIZE_BYTES_OF_CODE[code]
            if not size_bytes:
                raise malformed(f"no type has the code 0x{code:02x}")
            if pos + size_bytes > end:
                raise _cut_off()
            width = data[pos] if size_bytes == 1 else _U32.unpack_from(data, pos)[0]
            pos += size_bytes
        pos += width
        if pos > end:
            raise _cut_off()
        if not described:
            return pos
        described -= 1


def decode_value(data: bytes, pos: int, end: int, depth: int = 0) -> tuple[Any, int]:
    """Decode the value at `pos`; gives also the position after it. Raises AmqpError (decode-error)."""
    if pos >= end:
        raise _cut_off()
    code = data[pos]
    if code:
        return _decode_of(code, data, pos + 1, end, depth)
    if depth >= limits.AMQP10_DEPTH_MAX:
        raise malformed("nested too deep")
    descriptor, pos = decode_value(data, pos + 1, end, depth + 1)
    value, pos = decode_value(data, pos, end, depth + 1)
    return Described(descriptor, value), pos


def decode_whole(data: bytes) -> Any:
    """Decode the one value that `data` is; raises AmqpError (decode-error)."""
    value, pos = decode_value(data, 0, len(data))
    if pos != len(data):
        raise malformed("octets behind the end of a value")
    return value


def _decode_of(code: int, data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
    """Decode a value whose constructor was read."""
    fixed = _FIXED.get(code)
    if fixed is not None:
        _, form, make = fixed
        after = pos + form.size
        if after > end:
            raise _cut_off()
        number = form.unpack_from(data, pos)[0]
        if code == 0x56 and number > 1:
            raise malformed("a boolean is neither 0 nor 1")
        return make(number), after
    empty = _EMPTY.get(code)
    if empty is not None:
        return empty[1], pos
    if code == _LIST0:
        return [], pos
    size_bytes = _SIZE_BYTES_OF_CODE[code]
    if not size_bytes:
        raise malformed(f"no type has the code 0x{code:02x}")
    start = pos + size_bytes
    if start > end:
        raise _cut_off()
    stop: int = start + (data[pos] if size_bytes == 1 else _U32.unpack_from(data, pos)[0])
    if stop > end:
        raise _cut_off()
    kind = _VARIABLE.get(code)
    if kind is not None:
        raw = data[start:stop]
        if kind == "binary":
            return raw, stop
        try:
            return (raw.decode() if kind == "string" else Symbol(raw.decode("ascii"))), stop
        except UnicodeDecodeError:
            raise malformed(f"a {kind} is not {'UTF-8' if kind == 'string' else 'ASCII'}") from None
    if depth >= limits.AMQP10_DEPTH_MAX:
        raise malformed("nested too deep")
    return _decode_items(code, data, start, stop, size_bytes, depth), stop


def _decode_items(code: int, data: bytes, start: int, stop: int, size_bytes: int, depth: int) -> Any:
    """Decode an array, list or map whose count begins at `start`, a number of `size_bytes`."""
    items_at = start + size_bytes
    if items_at > stop:
        raise _cut_off()
    count = data[start] if size_bytes == 1 else _U32.unpack_from(data, start)[0]
    if code & 0xE0 == 0xE0:
        return _decode_array(data, items_at, stop, count, depth)
    if count > stop - items_at:
        raise malformed("more items than octets")
    items = []
    at = items_at
    for _ in range(count):
        value, at = decode_value(data, at, stop, depth + 1)
        items.append(value)
    if at != stop:
        raise malformed("items do not fill what holds them")
    return _as_map(items) if _COMPOUND[code] == "map" else items


def _as_map(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise malformed("a map has a key without a value")
    try:
        result = dict(zip(items[::2], items[1::2], strict=True))
    except TypeError:
        raise malformed("a list or map is a key of a map") from None
    if 2 * len(result) != len(items):
        raise malformed("a map has a key twice")
    return result


def _decode_array(data: bytes, pos: int, end: int, count: int, depth: int) -> Array:
    descriptor = None
    if pos < end and not data[pos]:
        descriptor, pos = decode_value(data, pos + 1, end, depth + 1)
    if pos >= end:
        raise _cut_off()
    code = data[pos]
    pos += 1
    kind = _KIND_OF_CODE.get(code)
    if kind is None:
        raise malformed(f"no type has the code 0x{code:02x}")
    # items without octets: nothing but the count says how many there are
    if count > (end - pos if _WIDTH_OF_CODE[code] else limits.AMQP10_EMPTY_ITEMS_MAX):
        raise malformed("more items than octets")
    array = Array(kind, (), descriptor)
    for _ in range(count):
        value, pos = _decode_of(code, data, pos, end, depth + 1)
        array.append(value)
    if pos != end:
        raise malformed("items do not fill what holds them")
    return array


# encoding


def _fixed_encoder(code: int) -> Callable[[Any], bytes]:
    pack = Struct(">B" + _FIXED[code][1].format[1:]).pack
    return lambda value: pack(code, value)


def _small_encoder(small: int, wide: int, low: int, high: int, zero: bytes = b"") -> Callable[[Any], bytes]:
    """Make an encoder of integers, shorter between `low` and `high`; `zero` is 0 without octets."""
    pack_small = Struct(">B" + _FIXED[small][1].format[1:]).pack
    pack_wide = Struct(">B" + _FIXED[wide][1].format[1:]).pack

    def encode(value: int) -> bytes:
        if low <= value <= high:
            return pack_small(small, value) if value or not zero else zero
        return pack_wide(wide, value)

    return encode


def _encode_sized(code: int, raw: bytes) -> bytes:
    size = len(raw)
    if size < 256:
        return bytes((code, size)) + raw
    return b"%c%b%b" % (code + 0x10, _U32.pack(size), raw)


def encode_binary(value: bytes | bytearray | memoryview) -> bytes:
    """Encode a binary."""
    return _encode_sized(0xA0, bytes(value))


def encode_string(value: str) -> bytes:
    """Encode a string; what has no UTF-8 becomes question marks."""
    return _encode_sized(0xA1, value.encode(errors="replace"))


def encode_symbol(value: str) -> bytes:
    """Encode a symbol; what is not ASCII becomes question marks."""
    return _encode_sized(0xA3, value.encode("ascii", errors="replace"))


def _encode_items(code: int, count: int, items: bytes) -> bytes:
    size = len(items) + 1
    if size < 256 and count < 256:
        return b"%c%b%b" % (code, _SIZE_COUNT_8.pack(size, count), items)
    return b"%c%b%b" % (code + 0x10, _SIZE_COUNT_32.pack(size + 3, count), items)


def encode_encoded_list(values: list[bytes]) -> bytes:
    """Encode a list of values that are encoded."""
    if not values:
        return b"\x45"
    return _encode_items(0xC0, len(values), b"".join(values))


def encode_list(value: Iterable[Any]) -> bytes:
    """Encode a list."""
    return encode_encoded_list([encode_value(item) for item in value])


def encode_map(value: dict[Any, Any]) -> bytes:
    """Encode a map."""
    parts: list[bytes] = []
    for key, item in value.items():
        parts += (encode_value(key), encode_value(item))
    return _encode_items(0xC1, len(parts), b"".join(parts))


def encode_described(value: Described) -> bytes:
    """Encode a value with its descriptor."""
    return b"\0" + encode_value(value.descriptor) + encode_value(value.value)


# the constructor of each type in an array; all items have that one
_ARRAY_CODES: Final[dict[str, int]] = {
    "null": 0x40,
    **{kind: code for code, (kind, _, _) in sorted(_FIXED.items())},
    "binary": 0xB0,
    "string": 0xB1,
    "symbol": 0xB3,
    "list": 0xD0,
    "map": 0xD1,
    "array": 0xF0,
    "uint": 0x70,
    "int": 0x71,
    "ulong": 0x80,
    "long": 0x81,
}


def encode_array(value: Array) -> bytes:
    """Encode an array; its items must be of its `kind`."""
    code = _ARRAY_CODES.get(value.kind)
    if code is None:
        raise LocalProtocolError(f"no type is called {value.kind}")
    head = b"" if value.descriptor is None else b"\0" + encode_value(value.descriptor)
    if code >= 0xA0 and code < 0xC0:
        # short names in the short form, as is usual
        raw = [_raw_of(value.kind, item) for item in value]
        if all(len(item) < 256 for item in raw):
            code -= 0x10
            items = [bytes((len(item),)) + item for item in raw]
        else:
            items = [_U32.pack(len(item)) + item for item in raw]
    else:
        items = [_encode_item(code, value.kind, item) for item in value]
    encoded = b"".join((head, bytes((code,)), *items))
    return _encode_items(0xE0, len(items), encoded)


def _raw_of(kind: str, item: Any) -> bytes:
    if kind == "binary":
        return bytes(item)
    return str(item).encode("utf-8" if kind == "string" else "ascii", errors="replace")


def _encode_item(code: int, kind: str, item: Any) -> bytes:
    """Encode an item of an array, without its constructor."""
    fixed = _FIXED.get(code)
    try:
        if fixed is not None:
            if kind == "char":
                item = ord(item)
            elif kind == "uuid":
                item = item.bytes
            return fixed[1].pack(item)
    except (StructError, TypeError, AttributeError):
        raise LocalProtocolError(f"{item!r} is no {kind}") from None
    if kind == "null":
        return b""
    if kind == "map":
        parts = [encode_value(part) for pair in item.items() for part in pair]
        body = b"".join(parts)
    elif kind == "list":
        parts = [encode_value(part) for part in item]
        body = b"".join(parts)
    else:
        encoded = encode_array(item)
        if encoded[0] == 0xF0:
            return encoded[1:]
        parts = [b""] * len(item)
        body = encoded[3:]
    return _SIZE_COUNT_32.pack(len(body) + 4, len(parts)) + body


_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda value: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    UByte: _fixed_encoder(0x50),
    UShort: _fixed_encoder(0x60),
    UInt: _small_encoder(0x52, 0x70, 0, 255, b"\x43"),
    ULong: _small_encoder(0x53, 0x80, 0, 255, b"\x44"),
    Byte: _fixed_encoder(0x51),
    Short: _fixed_encoder(0x61),
    Int: _small_encoder(0x54, 0x71, -128, 127),
    int: _small_encoder(0x55, 0x81, -128, 127),
    Float: _fixed_encoder(0x72),
    float: _fixed_encoder(0x82),
    Decimal32: _fixed_encoder(0x74),
    Decimal64: _fixed_encoder(0x84),
    Decimal128: _fixed_encoder(0x94),
    Char: lambda value: b"\x73" + _U32.pack(ord(value)),
    Timestamp: _fixed_encoder(0x83),
    UUID: lambda value: b"\x98" + bytes(value.bytes),
    bytes: encode_binary,
    bytearray: encode_binary,
    memoryview: encode_binary,
    str: encode_string,
    Symbol: encode_symbol,
    list: encode_list,
    tuple: encode_list,
    dict: encode_map,
    Array: encode_array,
    Described: encode_described,
}

encode_ubyte: Final = _ENCODERS[UByte]
encode_ushort: Final = _ENCODERS[UShort]
encode_uint: Final = _ENCODERS[UInt]
encode_ulong: Final = _ENCODERS[ULong]


def encode_value(value: Any) -> bytes:
    """Encode a value with its constructor.

    Raises LocalProtocolError for a type that AMQP does not have, and for a number its type has no room for.
    """
    encode = _ENCODERS.get(type(value))
    if encode is None:
        raise LocalProtocolError(f"no type of AMQP 1.0 for {type(value).__name__}")
    try:
        return encode(value)
    except (StructError, OverflowError, TypeError):
        raise LocalProtocolError(f"{type(value).__name__} has no room for {value!r}") from None
