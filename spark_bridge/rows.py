"""Arrow batches to AMQP frames, column by column: what is alike is encoded once."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import repeat
from typing import Any, Final

from spark_bridge import wire
from spark_bridge.address import key_in_address, queue_address
from spark_bridge.columns import HEADER_COLUMNS, Layout
from spark_bridge.errors import SluiceError
from spark_bridge.settings import IDEMPOTENT, WriteSettings

CHANNEL: Final = 1
PERSISTENT: Final = b"\x02"
DEDUPLICATION_ID: Final = "x-deduplication-id"

_HEADER: Final = struct.Struct(">BHIHHQ")
_BODY: Final = struct.Struct(">BHI")
_FLAGS: Final = {name: flag for flag, name in wire.PROPERTIES}
_ORDER: Final = [name for _, name in wire.PROPERTIES]


class RowEncoder:
    """Makes the frames of each row of a batch.

    `tag` are the headers every row of this task carries beside its own.
    """

    def __init__(
        self, settings: WriteSettings, layout: Layout, body_bytes_max: int, tag: Mapping[str, Any]
    ) -> None:
        self._settings = settings
        self._layout = layout
        self._body_bytes_max = body_bytes_max
        self._tag = dict(tag)
        self._publish = lru_cache(maxsize=4_096)(self._publish_frame)

    def payloads(self, batch: Any) -> list[bytes]:
        """Return the bodies of a batch's rows; raises SluiceError for a row without one."""
        column = batch.column(self._layout.payload)
        if column.null_count:
            raise SluiceError(f"column payload is null in {column.null_count} rows: a message has a body")
        values = column.to_pylist()
        if values and isinstance(values[0], str):
            return [value.encode() for value in values]
        return values  # type: ignore[no-any-return]

    def encode(self, batch: Any, bodies: Sequence[bytes]) -> list[bytes]:
        """Encode the frames of each row."""
        heads = self._heads(batch, len(bodies))
        properties = self._properties(batch, len(bodies))
        limit = self._body_bytes_max
        pack_header, pack_body, end = _HEADER.pack, _BODY.pack, wire.FRAME_END
        rows = []
        for head, values, body in zip(heads, properties, bodies, strict=False):
            size = len(body)
            header = pack_header(wire.HEADER, CHANNEL, 12 + len(values), 60, 0, size) + values + end
            if 0 < size <= limit:
                rows.append(b"".join((head, header, pack_body(wire.BODY, CHANNEL, size), body, end)))
            else:
                frames = [
                    wire.frame(wire.BODY, CHANNEL, body[start : start + limit])
                    for start in range(0, size, limit)
                ]
                rows.append(b"".join((head, header, *frames)))
        return rows

    def _heads(self, batch: Any, count: int) -> Iterable[bytes]:
        settings, layout = self._settings, self._layout
        exchange, key = settings.exchange, settings.routing_key or ""
        if layout.routing_key < 0 and layout.exchange < 0:
            return repeat(self._publish(exchange, key), count)
        keys = repeat(key, count) if layout.routing_key < 0 else batch.column(layout.routing_key).to_pylist()
        exchanges = (
            repeat(exchange, count) if layout.exchange < 0 else batch.column(layout.exchange).to_pylist()
        )
        return [
            self._publish(where or "", which or "") for where, which in zip(exchanges, keys, strict=False)
        ]

    def _publish_frame(self, exchange: str, routing_key: str | bytes) -> bytes:
        if isinstance(routing_key, bytes):
            try:
                routing_key = routing_key.decode()
            except UnicodeDecodeError:
                raise SluiceError(f"column key: {routing_key!r} is not UTF-8, as a routing key is") from None
        queue = self._settings.queue
        if queue:
            key = key_in_address(routing_key)  # of a message that was read from another queue
            if key.rpartition("/")[2].startswith("$"):
                raise SluiceError(f"a routing key ending in a $ level settles messages: {routing_key!r}")
            routing_key = f"{queue_address(queue)}/{key}" if key else queue
        flags = bytes((self._settings.mandatory,))
        try:
            return wire.method(
                CHANNEL, 60, 40, b"\0\0" + wire.short(exchange) + wire.short(routing_key) + flags
            )
        except wire.WireError as error:
            raise SluiceError(f"column routing_key or exchange: {error}") from None

    def _properties(self, batch: Any, count: int) -> Iterable[bytes]:
        columns = {name: batch.column(index).to_pylist() for name, index in self._layout.properties}
        if self._layout.has_kafka_headers:
            columns["headers"] = [pairs and list(map(_pair, pairs)) for pairs in columns["headers"]]
        for name, values in self._asked(batch, columns):
            own = columns.get("headers", [None] * count)
            columns["headers"] = [
                pairs if value is None else [*(pairs or ()), (name, value)]
                for pairs, value in zip(own, values, strict=True)
            ]
        if not columns:
            constant = {"delivery_mode": 2, "headers": self._tag or None}
            return repeat(wire.encode_properties(constant), count)
        flags = [_FLAGS["delivery_mode"] | (_FLAGS["headers"] if self._tag else 0)] * count
        pieces: list[Iterable[bytes]] = []
        for name in _ORDER:
            if name == "delivery_mode":
                pieces.append(repeat(PERSISTENT, count))
            elif name in columns:
                values = columns[name]
                flag = _FLAGS[name]
                present = [value is not None for value in values]
                flags = [old | flag if there else old for old, there in zip(flags, present, strict=True)]
                pieces.append(self._encoded(name, values))
            elif name == "headers" and self._tag:
                pieces.append(repeat(wire.table(self._tag), count))
        heads = [struct.pack(">H", word) for word in flags]
        return [b"".join(row) for row in zip(heads, *pieces, strict=False)]

    def _asked(self, batch: Any, columns: Mapping[str, list[Any]]) -> Iterator[tuple[str, list[Any]]]:
        """Return what rows ask the broker for in headers: the name of each, and its value in each row."""
        if self._settings.delivery == IDEMPOTENT:
            ids = columns["message_id"]
            if any(not text for text in ids):
                raise SluiceError("column message_id is null or empty: delivery idempotent needs one per row")
            yield DEDUPLICATION_ID, ids
        for name, index in self._layout.headers:
            values = batch.column(index).to_pylist()
            yield HEADER_COLUMNS[name], [None if value is None else _ms(name, value) for value in values]

    def _encoded(self, name: str, values: list[Any]) -> list[bytes]:
        try:
            return self._fields(name, values)
        except wire.WireError as error:
            raise SluiceError(f"column {name}: {error}") from None

    def _fields(self, name: str, values: list[Any]) -> list[bytes]:
        if name == "headers":
            default = wire.table(self._tag) if self._tag else b""
            return [
                default if pairs is None else wire.table({**dict(pairs), **self._tag}) for pairs in values
            ]
        if name == "priority":
            return [b"" if value is None else bytes((_priority(value),)) for value in values]
        if name == "timestamp":
            return [b"" if value is None else _seconds(value) for value in values]
        return [b"" if value is None else wire.short(str(value)) for value in values]


def _pair(header: dict[str, Any]) -> tuple[str, str | bytes | None]:
    """Return name and value of a header as Kafka's source has it: a text, or the bytes that are none."""
    value = header["value"]
    try:
        return header["key"], value if value is None else value.decode()
    except UnicodeDecodeError:
        return header["key"], value


def _priority(value: int) -> int:
    if not 0 <= value <= 255:
        raise SluiceError(f"column priority is 0 to 255, not {value}")
    return value


def _ms(name: str, value: int | datetime) -> int:
    if isinstance(value, datetime):
        value_ms = round(value.timestamp() * 1_000)
        if value_ms < 0:
            raise SluiceError(f"column {name} is 1970 or later, not {value}")
        return value_ms
    if value < 0:
        raise SluiceError(f"column {name} is 0 or more, in ms, not {value}")
    return value


def _seconds(value: datetime) -> bytes:
    seconds = int(value.timestamp())
    if seconds < 0:
        raise SluiceError(f"column timestamp is 1970 or later, not {value}")
    return struct.pack(">Q", seconds)
