"""A range of a stream to Arrow batches; anybody may read it, at the same time and again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from spark_bridge.client import Connection, Message
from spark_bridge.errors import BrokerUnreachable, OptionError, Refused
from spark_bridge.offsets import OffsetReader, Range, kept, lost
from spark_bridge.settings import ReadSettings

if TYPE_CHECKING:
    from pyarrow import RecordBatch

SCHEMA: Final = (
    "queue string, offset bigint, exchange string, routing_key string, timestamp timestamp,"
    " message_id string, content_type string, headers map<string,string>, payload binary"
)
BATCH_ROWS: Final = 5_000
PREFETCH: Final = 4_000
ACK_EVERY: Final = 1_000
TRIES_MAX: Final = 5
# what the broker adds to a delivery
BROKER_HEADERS: Final = ("x-stream-offset", "x-stream-timestamp", "x-stream-gap", "x-group-id", "x-offset")


def check_schema(schema: Any) -> None:
    """Raise OptionError for a schema of the user's own: the columns are what they are."""
    wanted = [tuple(column.split()) for column in SCHEMA.split(", ")]
    if [(field.name, field.dataType.simpleString()) for field in schema.fields] != wanted:
        raise OptionError(f"the columns are {SCHEMA}: leave the schema out and select from them")


def read_range(settings: ReadSettings, wanted: Range) -> Iterator[RecordBatch]:
    """The messages of a range. Raises SluiceError, DataLost when some are gone and that matters."""
    reader = OffsetReader(settings.connection)
    try:
        ends = reader.ends(wanted.queue)
    finally:
        reader.close()
    found = kept(wanted, ends, fail_on_data_loss=settings.fail_on_data_loss)
    position, tries = wanted.end if found is None else found.start, 0
    while position < wanted.end:
        try:
            for rows in _consumed(settings, wanted._replace(start=position)):
                yield _batch(wanted.queue, rows, include_headers=settings.include_headers)
                position, tries = _offset(rows[-1]) + 1, 0
            return
        except BrokerUnreachable:
            tries += 1
            if tries > TRIES_MAX:
                raise


def _offset(message: Message) -> int:
    return int(message.properties["headers"]["x-stream-offset"])


def _consumed(settings: ReadSettings, wanted: Range) -> Iterator[list[Message]]:
    timeout_s = settings.connection.confirm_timeout_s
    expected = wanted.start
    with Connection(settings.connection) as connection:
        prefetch = min(PREFETCH, wanted.end - wanted.start)
        connection.consume(
            wanted.queue, no_ack=False, arguments={"x-stream-offset": wanted.start}, prefetch=prefetch
        )
        rows: list[Message] = []
        unacknowledged = 0
        deadline = time.monotonic() + timeout_s
        while expected < wanted.end:
            if not connection.deliveries:
                if connection.cancelled:
                    raise Refused(f"stream {wanted.queue!r} was deleted")
                if not connection.poll(deadline - time.monotonic()):
                    raise BrokerUnreachable(
                        f"nothing came of stream {wanted.queue!r} from offset {expected} on within"
                        f" {timeout_s:g} s (option confirmTimeout)"
                    )
                continue
            deadline = time.monotonic() + timeout_s
            while connection.deliveries:
                message = connection.deliveries.popleft()
                unacknowledged += 1
                offset = _offset(message)
                if offset > expected:
                    lost(
                        wanted.queue,
                        expected,
                        min(offset, wanted.end),
                        fail_on_data_loss=settings.fail_on_data_loss,
                    )
                expected = offset + 1
                if offset >= wanted.end:
                    break
                rows.append(message)
                if unacknowledged >= ACK_EVERY:
                    connection.ack(message.delivery_tag)
                    unacknowledged = 0
                if expected == wanted.end:
                    break
            if len(rows) >= BATCH_ROWS:
                yield rows
                rows = []
        if rows:
            yield rows


def _batch(queue: str, messages: list[Message], *, include_headers: bool) -> RecordBatch:
    import pyarrow as pa

    properties = [message.properties for message in messages]
    headers = [values["headers"] for values in properties]
    columns: list[tuple[str, Any, list[Any]]] = [
        ("queue", pa.string(), [queue] * len(messages)),
        ("offset", pa.int64(), [values["x-stream-offset"] for values in headers]),
        ("exchange", pa.string(), [message.exchange for message in messages]),
        ("routing_key", pa.string(), [message.routing_key for message in messages]),
        (
            "timestamp",
            pa.timestamp("us", tz="UTC"),
            [values["x-stream-timestamp"] * 1_000 for values in headers],
        ),
        ("message_id", pa.string(), [values.get("message_id") for values in properties]),
        ("content_type", pa.string(), [values.get("content_type") for values in properties]),
        (
            "headers",
            pa.map_(pa.string(), pa.string()),
            [_own(values) if include_headers else None for values in headers],
        ),
        ("payload", pa.binary(), [message.body for message in messages]),
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, kind) for _, kind, values in columns], names=[name for name, _, _ in columns]
    )


def _own(headers: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in headers.items() if name not in BROKER_HEADERS]
