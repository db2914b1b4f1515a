"""Messages of a list as they come, taken many at a time: all that is said of them is in their headers.

The broker writes the numbers it tells of a message in one piece, which is read at once; what stands before
that is most often that of another message, and was read then.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from spark_bridge import wire
from spark_bridge.client import Connection
from spark_bridge.link import DELIVER, Content
from spark_bridge.settings import ConnectionSettings

PREFIX: Final = "x-browse-"
KNOWN_MAX: Final = 256

_OFFSET: Final = wire.short(f"{PREFIX}offset") + b"l"
_ATTEMPTS: Final = wire.short(f"{PREFIX}attempts") + b"l"
_TIMESTAMP: Final = wire.short(f"{PREFIX}timestamp") + b"l"
_ID: Final = wire.short(f"{PREFIX}id") + b"S"
_TOLD: Final = struct.Struct(f">{len(_OFFSET)}sq{len(_ATTEMPTS)}sq{len(_TIMESTAMP)}sq{len(_ID)}sI")
_METHOD_HEAD: Final = struct.Struct(">BHIHH")
_HEADER_HEAD: Final = struct.Struct(">BHIHHQ")
_BODY_HEAD: Final = struct.Struct(">BHI")
_PROPERTIES_AT: Final = 12
_HEADERS_FLAG: Final = 0x2000
_MESSAGE_ID_FLAG: Final = 0x0080


class Row(NamedTuple):
    """A message of a list. Times in ms since 1970, `state_ms` 0: there is none."""

    offset: int
    exchange: str
    routing_key: str
    received_ms: int
    message_id: str | None
    content_type: str | None
    headers: list[tuple[str, str]]
    body: bytes
    state: str
    state_ms: int
    attempts: int
    consumer: str | None


class _Known(NamedTuple):
    """The bytes before the numbers: those of every message whose content header begins like this."""

    flags: int
    table_end: int
    exchange: str
    routing_key: str
    content_type: str | None
    headers: list[tuple[str, str]]
    state: str


class ListLink(Connection):
    """A connection that puts what is listed into `rows`; other deliveries are left where they are."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.rows: list[Row] = []
        self._known: dict[bytes, _Known] = {}
        super().__init__(settings)

    def take_rows(self) -> list[Row]:
        """Take what has come, in order."""
        rows, self.rows = self.rows, []
        return rows

    def delivered(self, content: Content) -> None:
        """Take a message that was not like others, field by field."""
        super().delivered(content)
        message = self.deliveries[-1]
        if f"{PREFIX}state" in message.properties.get("headers", {}):
            self.deliveries.pop()
            self.rows.append(_row_of(message.properties, message.body))

    def taken(self, data: bytes, position: int) -> int:
        size = len(data)
        while size - position > _METHOD_HEAD.size:
            kind, _, length, *method = _METHOD_HEAD.unpack_from(data, position)
            header_at = position + length + wire.FRAME_OVERHEAD_BYTES
            if kind != wire.METHOD or tuple(method) != DELIVER or size < header_at + _HEADER_HEAD.size:
                break
            kind, _, length, _, _, body_bytes = _HEADER_HEAD.unpack_from(data, header_at)
            body_at = header_at + length + wire.FRAME_OVERHEAD_BYTES
            end = body_at + body_bytes + wire.FRAME_OVERHEAD_BYTES
            if kind != wire.HEADER or size < end:
                break
            kind, _, part_bytes = _BODY_HEAD.unpack_from(data, body_at)
            if kind != wire.BODY or part_bytes != body_bytes:
                break
            row = self._row(data[header_at + 7 : body_at - 1], data[body_at + 7 : end - 1])
            if row is None:
                break
            self.rows.append(row)
            position = end
        return position

    def _row(self, header: bytes, body: bytes) -> Row | None:
        """Make the row of a message; None for one that does not look as expected."""
        at = header.find(_OFFSET)
        if at < 0 or len(header) < at + _TOLD.size:
            return None
        a, offset, b, attempts, c, received_ms, d, id_bytes = _TOLD.unpack_from(header, at)
        if (a, b, c, d) != (_OFFSET, _ATTEMPTS, _TIMESTAMP, _ID):
            return None
        known = self._known.get(header[_PROPERTIES_AT:at])
        if known is None:
            known = self._learn(header, at)
        state_ms, consumer = 0, None
        rest = at + _TOLD.size + id_bytes
        if rest < known.table_end:
            told = _entries(header, rest, known.table_end)
            state_ms, consumer = told.get(f"{PREFIX}time", 0), told.get(f"{PREFIX}consumer")
        return Row(
            offset,
            known.exchange,
            known.routing_key,
            received_ms,
            _message_id(header, known.table_end, known.flags),
            known.content_type,
            known.headers,
            body,
            known.state,
            state_ms,
            attempts,
            consumer,
        )

    def _learn(self, header: bytes, at: int) -> _Known:
        properties = wire.decode_properties(header, _PROPERTIES_AT)
        row = _row_of(properties, b"")
        flags = int.from_bytes(header[_PROPERTIES_AT : _PROPERTIES_AT + 2], "big")
        reader = wire.Reader(header, _PROPERTIES_AT + 2)
        for flag, _ in wire.PROPERTIES:
            if flag == _HEADERS_FLAG:
                break
            if flags & flag:
                reader.short()
        table_end = reader.unpack("I") + reader.position
        known = _Known(
            flags, table_end, row.exchange, row.routing_key, row.content_type, row.headers, row.state
        )
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[header[_PROPERTIES_AT:at]] = known
        return known


def _row_of(properties: dict[str, Any], body: bytes) -> Row:
    told = properties["headers"]
    return Row(
        told[f"{PREFIX}offset"],
        told.get(f"{PREFIX}exchange", ""),
        told[f"{PREFIX}routing-key"],
        told[f"{PREFIX}timestamp"],
        properties.get("message_id"),
        properties.get("content_type"),
        [(name, str(value)) for name, value in told.items() if not name.startswith(PREFIX)],
        body,
        told[f"{PREFIX}state"],
        told.get(f"{PREFIX}time", 0),
        told[f"{PREFIX}attempts"],
        told.get(f"{PREFIX}consumer"),
    )


def _entries(header: bytes, position: int, end: int) -> dict[str, Any]:
    """Read entries of a field table from `position` on."""
    reader = wire.Reader(header, position)
    values = {}
    while reader.position < end:
        name = reader.short()
        values[name] = reader.field()
    return values


def _message_id(header: bytes, position: int, flags: int) -> str | None:
    """Return the message ID, which comes behind the headers and some of the other properties."""
    if not flags & _MESSAGE_ID_FLAG:
        return None
    position += (flags >> 12 & 1) + (flags >> 11 & 1)  # delivery mode and priority
    for shift in (10, 9, 8):  # correlation ID, reply to, expiration
        if flags >> shift & 1:
            position += 1 + header[position]
    return header[position + 1 : position + 1 + header[position]].decode(errors="replace")
