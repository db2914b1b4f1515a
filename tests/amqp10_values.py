"""AMQP 1.0 values and messages for tests, from the specification (part 1), with nothing of the broker.

A value is a pair of its type's name and a Python value: `("uint", 5)`, `("list", [...])`,
`("map", [(key, value), ...])`, `("array", [...])`, `("described", (descriptor, value))`, `("null", None)`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

Value = tuple[str, Any]

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = range(0x70, 0x75)
DATA, SEQUENCE, VALUE, FOOTER = range(0x75, 0x79)

_FIXED: Final = {
    "ubyte": (0x50, ">B"), "ushort": (0x60, ">H"), "uint": (0x70, ">I"), "ulong": (0x80, ">Q"),
    "byte": (0x51, ">b"), "short": (0x61, ">h"), "int": (0x71, ">i"), "long": (0x81, ">q"),
    "float": (0x72, ">f"), "double": (0x82, ">d"), "char": (0x73, ">I"), "timestamp": (0x83, ">q"),
}  # fmt: skip
_BYTES: Final = {"decimal32": (0x74, 4), "decimal64": (0x84, 8), "decimal128": (0x94, 16)}
_VARIABLE: Final = {"binary": 0xA0, "string": 0xA1, "symbol": 0xA3}
_NAMES: Final = {code: (name, form) for name, (code, form) in _FIXED.items()}
_SMALL: Final = {0x52: ("uint", ">B"), 0x53: ("ulong", ">B"), 0x54: ("int", ">b"), 0x55: ("long", ">b")}
_EMPTY: Final = {
    0x40: ("null", None), 0x41: ("boolean", True), 0x42: ("boolean", False), 0x43: ("uint", 0),
    0x44: ("ulong", 0), 0x45: ("list", []),
}  # fmt: skip


def encode(value: Value) -> bytes:
    """Return the shortest encoding of a value."""
    kind, plain = value
    if kind == "null":
        return b"\x40"
    if kind == "boolean":
        return b"\x41" if plain else b"\x42"
    if kind in ("uint", "ulong") and plain < 256:
        if plain == 0:
            return b"\x43" if kind == "uint" else b"\x44"
        return bytes((0x52 if kind == "uint" else 0x53, plain))
    if kind in ("int", "long") and -128 <= plain < 128:
        return struct.pack(">Bb", 0x54 if kind == "int" else 0x55, plain)
    if kind in _FIXED:
        code, form = _FIXED[kind]
        return bytes((code,)) + struct.pack(form, plain)
    if kind in _BYTES:
        return bytes((_BYTES[kind][0],)) + plain
    if kind == "uuid":
        return b"\x98" + plain.bytes
    if kind in _VARIABLE:
        data = plain if isinstance(plain, bytes) else plain.encode()
        code = _VARIABLE[kind]
        if len(data) < 256:
            return bytes((code, len(data))) + data
        return struct.pack(">BI", code + 0x10, len(data)) + data
    if kind == "described":
        descriptor, described = plain
        return b"\x00" + encode(descriptor) + encode(described)
    if kind == "array":
        return _array(plain)
    items = list(plain) if kind == "list" else [item for pair in plain for item in pair]
    if kind == "list" and not items:
        return b"\x45"
    body = b"".join(map(encode, items))
    if len(body) < 255 and len(items) < 256:
        return bytes((0xC0 if kind == "list" else 0xC1, len(body) + 1, len(items))) + body
    return struct.pack(">BII", 0xD0 if kind == "list" else 0xD1, len(body) + 4, len(items)) + body


def _array(items: list[Value]) -> bytes:
    """Return an array of strings, symbols or maps, all with 4-byte sizes."""
    kind = items[0][0]
    code = {"string": 0xB1, "symbol": 0xB3, "map": 0xD1}[kind]
    parts = []
    for _, plain in items:
        if kind == "map":
            body = b"".join(encode(item) for pair in plain for item in pair)
            parts.append(struct.pack(">II", len(body) + 4, 2 * len(plain)) + body)
        else:
            parts.append(struct.pack(">I", len(plain.encode())) + plain.encode())
    body = b"".join(parts)
    return struct.pack(">BIIB", 0xF0, len(body) + 5, len(items), code) + body


def decode(data: bytes, at: int = 0) -> tuple[Value, int]:
    """Return the value at this place, and the place behind it."""
    return _decode(data, at + 1, data[at])


def _decode(data: bytes, at: int, code: int) -> tuple[Value, int]:
    if code == 0:
        descriptor, at = decode(data, at)
        described, at = decode(data, at)
        return ("described", (descriptor, described)), at
    if code in _EMPTY:
        return _EMPTY[code], at
    if code == 0x56:
        return ("boolean", data[at] != 0), at + 1
    if code in _SMALL or code in _NAMES:
        kind, form = (_SMALL if code in _SMALL else _NAMES)[code]
        return (kind, struct.unpack_from(form, data, at)[0]), at + struct.calcsize(form)
    for kind, (known, size) in _BYTES.items():
        if code == known:
            return (kind, data[at : at + size]), at + size
    if code == 0x98:
        return ("uuid", UUID(bytes=data[at : at + 16])), at + 16
    wide = code & 0x10
    size, count_at = (int.from_bytes(data[at : at + 4], "big"), at + 4) if wide else (data[at], at + 1)
    end = count_at + size
    if code & 0xEF in _VARIABLE.values():
        kind = next(name for name, known in _VARIABLE.items() if known == code & 0xEF)
        plain = data[count_at:end]
        return (kind, plain if kind == "binary" else plain.decode(errors="replace")), end
    count, at = (
        (int.from_bytes(data[count_at : count_at + 4], "big"), count_at + 4)
        if wide
        else (data[count_at], count_at + 1)
    )
    items: list[Value] = []
    if code & 0xEF == 0xE0:
        item_code = data[at]
        at += 1
        for _ in range(count):
            item, at = _decode(data, at, item_code)
            items.append(item)
        assert at == end
        return ("array", items), end
    for _ in range(count):
        item, at = decode(data, at)
        items.append(item)
    assert at == end
    if code & 0xEF == 0xC0:
        return ("list", items), end
    assert code & 0xEF == 0xC1
    return ("map", list(zip(items[::2], items[1::2], strict=True))), end


def text(value: Value) -> Any:
    """Return a value as JSON can hold it: its type before it, trailing nulls of lists gone."""
    kind, plain = value
    if kind == "null":
        return None
    if kind in ("list", "array"):
        items = [text(item) for item in plain]
        while kind == "list" and items and items[-1] is None:
            items.pop()
        return [kind, *items]
    if kind == "map":
        return {text(key): text(item) for key, item in plain}
    if kind == "described":
        return ["described", text(plain[0]), text(plain[1])]
    if isinstance(plain, bytes):
        plain = plain.hex()
    return f"{kind} {plain}"


def section(code: int, value: Value) -> bytes:
    """Return one section of a message."""
    return encode(("described", (("ulong", code), value)))


def sections(message: bytes) -> list[tuple[int, Value]]:
    """Return the sections of a message by their codes."""
    found = []
    at = 0
    while at < len(message):
        (_, (descriptor, value)), at = decode(message, at)
        found.append((descriptor[1], value))
    return found


_NAMES_OF: Final = {
    HEADER: ("durable", "priority", "ttl", "first-acquirer", "delivery-count"),
    PROPERTIES: (
        "message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type",
        "content-encoding", "absolute-expiry-time", "creation-time", "group-id", "group-sequence",
        "reply-to-group-id",
    ),
}  # fmt: skip
_SECTIONS: Final = {
    HEADER: "header", DELIVERY_ANNOTATIONS: "delivery-annotations", MESSAGE_ANNOTATIONS: "annotations",
    PROPERTIES: "properties", APPLICATION_PROPERTIES: "application-properties", DATA: "data",
    SEQUENCE: "sequence", VALUE: "value", FOOTER: "footer",
}  # fmt: skip


def describe(message: bytes) -> dict[str, Any]:
    """Return a message as JSON can hold it, section by section; empty sections are left out."""
    seen: dict[str, Any] = {}
    for code, value in sections(message):
        if code in _NAMES_OF:
            shown: Any = {
                name: text(item)
                for name, item in zip(_NAMES_OF[code], value[1], strict=False)
                if item[0] != "null"
            }
        else:
            shown = text(value)
        if code in (DATA, SEQUENCE):
            seen.setdefault(_SECTIONS[code], []).append(shown)
        elif shown != {}:
            seen[_SECTIONS[code]] = shown
    return seen


def fields(names: Iterable[tuple[str, Value]], code: int) -> Value:
    """Return the list of a header or of properties."""
    given = dict(names)
    items = [given.pop(name, ("null", None)) for name in _NAMES_OF[code]]
    assert not given
    while items and items[-1][0] == "null":
        items.pop()
    return ("list", items)
