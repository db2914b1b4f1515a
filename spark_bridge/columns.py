"""Which columns a write takes, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark_bridge.errors import OptionError
from spark_bridge.settings import IDEMPOTENT, WriteSettings

_TEXT: Final = ("string",)
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
KAFKA_HEADERS: Final = "array<struct<key:string,value:binary>>"
# name: the types it may have, as Spark writes them
COLUMNS: Final = {
    "payload": ("binary", "string"),
    "value": ("binary", "string"),
    "routing_key": _TEXT,
    "key": ("binary", "string"),
    "exchange": _TEXT,
    "headers": ("map<string,string>", KAFKA_HEADERS),
    "message_id": _TEXT,
    "content_type": _TEXT,
    "correlation_id": _TEXT,
    "expiration": (*_TEXT, *_WHOLE),
    "priority": _WHOLE,
    "timestamp": ("timestamp",),
    "delay": _WHOLE,
    "deliver_at": ("timestamp",),
}
# become headers
HEADER_COLUMNS: Final = {"delay": "x-delay", "deliver_at": "deliver-at"}
_NOT_PROPERTIES: Final = ("payload", "value", "routing_key", "key", "exchange", *HEADER_COLUMNS)
PROPERTY_COLUMNS: Final = tuple(name for name in COLUMNS if name not in _NOT_PROPERTIES)
# columns of a read that say where a message was: what was read can be written as it is
LEFT_OUT: Final = (
    "queue", "offset", "topic", "partition", "timestampType", "state", "state_timestamp", "attempts",
    "consumer",
)  # fmt: skip
_ALIKE: Final = (("payload", "value"), ("routing_key", "key"))


@dataclass(frozen=True, slots=True)
class Layout:
    """Where in a row what is: column indices, -1 for what is not there. `has_kafka_headers`: the headers are
    an array of structs, as Spark's Kafka source has them.
    """

    payload: int
    routing_key: int
    exchange: int
    properties: tuple[tuple[str, int], ...]
    headers: tuple[tuple[str, int], ...] = ()
    has_kafka_headers: bool = False


def layout_of(schema: Any, settings: WriteSettings) -> Layout:
    """Check a StructType against what can be written; raises OptionError naming the columns at fault."""
    return check_columns([(field.name, field.dataType.simpleString()) for field in schema.fields], settings)


def check_columns(columns: Sequence[tuple[str, str]], settings: WriteSettings) -> Layout:
    """Check as `layout_of`, for (name, type) pairs."""
    indices: dict[str, int] = {}
    for index, (name, kind) in enumerate(columns):
        if name in LEFT_OUT:
            continue
        if name not in COLUMNS:
            raise OptionError(f"column {name!r} cannot be written; the columns are {', '.join(COLUMNS)}")
        if kind not in COLUMNS[name]:
            raise OptionError(f"column {name} is {' or '.join(COLUMNS[name])}, not {kind}")
        indices[name] = index
    for one, other in _ALIKE:
        if one in indices and other in indices:
            raise OptionError(f"columns {one} and {other} mean the same: write one of them")
    payload = indices.get("payload", indices.get("value", -1))
    routing_key = indices.get("routing_key", indices.get("key", -1))
    if payload < 0:
        raise OptionError("a column payload or value (binary or string) is needed")
    if settings.delivery == IDEMPOTENT and "message_id" not in indices:
        raise OptionError(f"delivery {IDEMPOTENT} needs a column message_id")
    routed = settings.queue or settings.exchange or settings.routing_key is not None
    if not routed and routing_key < 0 and "exchange" not in indices:
        raise OptionError("where to? Set option queue, or exchange and routingKey, or add columns for them")
    return Layout(
        payload,
        -1 if settings.routing_key is not None else routing_key,
        -1 if settings.exchange or settings.queue else indices.get("exchange", -1),
        tuple((name, indices[name]) for name in PROPERTY_COLUMNS if name in indices),
        tuple((name, indices[name]) for name in HEADER_COLUMNS if name in indices),
        ("headers", KAFKA_HEADERS) in columns,
    )
