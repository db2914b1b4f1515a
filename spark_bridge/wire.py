"""As much of AMQP 0.9.1 as the bridge needs: frames, field tables, content properties."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from spark_bridge.errors import SluiceError

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
FRAME_END: Final = b"\xce"
FRAME_OVERHEAD_BYTES: Final = 8

_FRAME_HEAD: Final = struct.Struct(">BHI")
_METHOD_ID: Final = struct.Struct(">HH")
_CONTENT_HEAD: Final = struct.Struct(">HHQ")
_CLASS_BASIC: Final = 60

# (flag, name) of the properties in wire order
PROPERTIES: Final = (
    (0x8000, "content_type"),
    (0x4000, "content_encoding"),
    (0x2000, "headers"),
    (0x1000, "delivery_mode"),
    (0x0800, "priority"),
    (0x0400, "correlation_id"),
    (0x0200, "reply_to"),
    (0x0100, "expiration"),
    (0x0080, "message_id"),
    (0x0040, "timestamp"),
    (0x0020, "type"),
    (0x0010, "user_id"),
    (0x0008, "app_id"),
)


class WireError(SluiceError):
    """Bytes that are not AMQP 0.9.1, or values that do not fit it."""


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Encode one frame."""
    return _FRAME_HEAD.pack(kind, channel, len(payload)) + payload + FRAME_END


def method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    """Encode one method frame."""
    return frame(METHOD, channel, _METHOD_ID.pack(class_id, method_id) + arguments)


def content_header(channel: int, body_bytes: int, properties: bytes) -> bytes:
    """Encode the content header frame of a message; `properties` as `encode_properties` gives them."""
    return frame(HEADER, channel, _CONTENT_HEAD.pack(_CLASS_BASIC, 0, body_bytes) + properties)


def short(text: str) -> bytes:
    """Encode a short string; WireError above 255 bytes."""
    raw = text.encode()
    if len(raw) > 255:
        raise WireError(f"{text[:40]!r}... has {len(raw)} bytes; AMQP takes 255")
    return bytes((len(raw),)) + raw


def long(text: str | bytes) -> bytes:
    """Encode a long string."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack(">I", len(raw)) + raw


def table(values: Mapping[str, Any]) -> bytes:
    """Encode a field table of texts, bytes, whole numbers, truth values and tables of these."""
    parts = [short(name) + _field(value) for name, value in values.items()]
    return long(b"".join(parts))


def _field(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"t" + bytes((value,))
    if isinstance(value, int):
        return b"l" + struct.pack(">q", value)
    if isinstance(value, str):
        return b"S" + long(value)
    if isinstance(value, bytes):
        return b"x" + long(value)
    if isinstance(value, Mapping):
        return b"F" + table(value)
    if value is None:
        return b"V"
    raise WireError(f"no field type for {value!r}")


def encode_properties(values: Mapping[str, Any]) -> bytes:
    """Encode flags and list of the properties that are there and not None."""
    flags = 0
    parts = [b""]
    for flag, name in PROPERTIES:
        value = values.get(name)
        if value is None:
            continue
        flags |= flag
        if name == "headers":
            parts.append(table(value))
        elif name in ("delivery_mode", "priority"):
            parts.append(bytes((value,)))
        elif name == "timestamp":
            parts.append(struct.pack(">Q", value))
        else:
            parts.append(short(value))
    parts[0] = struct.pack(">H", flags)
    return b"".join(parts)


_CUT_OFF: Final = "a frame of the broker is cut off"
_FORMS: Final = {form: struct.Struct(">" + form) for form in "bBhHiIqQfd"}


class Reader:
    """Reads one payload field by field; raises WireError when it ends too early."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def take(self, count: int) -> bytes:
        start = self.position
        self.position = start + count
        if self.position > len(self.data):
            raise WireError(_CUT_OFF)
        return self.data[start : self.position]

    def unpack(self, form: str) -> Any:
        layout = _FORMS[form]
        start = self.position
        self.position = start + layout.size
        try:
            return layout.unpack_from(self.data, start)[0]
        except struct.error:
            raise WireError(_CUT_OFF) from None

    def short(self) -> str:
        data = self.data
        start = self.position + 1
        if start > len(data):
            raise WireError(_CUT_OFF)
        self.position = end = start + data[start - 1]
        if end > len(data):
            raise WireError(_CUT_OFF)
        return data[start:end].decode(errors="replace")

    def long(self) -> bytes:
        return self.take(self.unpack("I"))

    def table(self) -> dict[str, Any]:
        end = self.unpack("I") + self.position
        values = {}
        while self.position < end:
            name = self.short()
            values[name] = self.field()
        return values

    def field(self) -> Any:
        kind = self.take(1)
        if kind in _NUMBERS:
            return self.unpack(_NUMBERS[kind])
        if kind == b"S":
            return self.long().decode(errors="replace")
        if kind == b"x":
            return self.long()
        if kind == b"t":
            return bool(self.unpack("B"))
        if kind == b"F":
            return self.table()
        if kind == b"T":
            return datetime.fromtimestamp(self.unpack("Q"), UTC)
        if kind == b"D":
            scale = self.unpack("B")
            return self.unpack("i") / 10**scale
        if kind == b"A":
            end = self.unpack("I") + self.position
            values = []
            while self.position < end:
                values.append(self.field())
            return values
        if kind == b"V":
            return None
        raise WireError(f"unknown field type {kind!r}")


_NUMBERS: Final = dict(
    zip((b"b", b"B", b"s", b"u", b"I", b"i", b"l", b"L", b"f", b"d"), "bBhHiIqqfd", strict=True)
)


def decode_properties(data: bytes, position: int) -> dict[str, Any]:
    """Decode the properties that are there, by name."""
    reader = Reader(data, position)
    flags = reader.unpack("H")
    values: dict[str, Any] = {}
    for flag, name in PROPERTIES:
        if not flags & flag:
            continue
        if name == "headers":
            values[name] = reader.table()
        elif name in ("delivery_mode", "priority"):
            values[name] = reader.unpack("B")
        elif name == "timestamp":
            values[name] = reader.unpack("Q")
        else:
            values[name] = reader.short()
    return values
