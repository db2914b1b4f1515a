"""What waits in a queue, failed, or is done: a snapshot for analysis, which disturbs nothing (`$browse`)."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from spark_bridge import wire
from spark_bridge.client import Connection, Message
from spark_bridge.errors import BrokerUnreachable, Refused
from spark_bridge.reading import SCHEMA as MESSAGE_SCHEMA
from spark_bridge.reading import TRIES_MAX
from spark_bridge.settings import ListSettings

if TYPE_CHECKING:
    from pyarrow import RecordBatch

SCHEMA: Final = f"{MESSAGE_SCHEMA}, state string, state_timestamp timestamp, attempts int, consumer string"
PAGE_ROWS: Final = 1_000
PREFIX: Final = "x-browse-"


def check_lists(settings: ListSettings) -> None:
    """Raise SluiceError for what the broker will refuse, now rather than in a task."""
    with Connection(settings.connection) as connection:
        reply_to = _reply_queue(connection)
        for queue in settings.queues:
            _page(connection, reply_to, settings, queue, None, 1)


def read_list(settings: ListSettings, queue: str) -> Iterator[RecordBatch]:
    """A queue's list, page by page. Raises SluiceError."""
    after: str | None = None
    tries = 0
    while True:
        try:
            with Connection(settings.connection) as connection:
                reply_to = _reply_queue(connection)
                while True:
                    rows, after = _page(connection, reply_to, settings, queue, after, PAGE_ROWS)
                    tries = 0
                    if rows:
                        yield _batch(queue, rows, include_headers=settings.include_headers)
                    if after is None:
                        return
        except BrokerUnreachable:  # between pages nothing is lost
            tries += 1
            if tries > TRIES_MAX:
                raise


def _reply_queue(connection: Connection) -> str:
    reply_to, _ = connection.declare("", exclusive=True)
    connection.consume(reply_to, no_ack=True, arguments={})
    return reply_to


def _page(
    connection: Connection, reply_to: str, settings: ListSettings, queue: str, after: str | None, limit: int
) -> tuple[list[Message], str | None]:
    """The messages of one page, and where the next one begins (None: there is none)."""
    headers: dict[str, Any] = {"x-state": settings.state, "x-limit": limit}
    if settings.group is not None:
        headers["x-group-id"] = settings.group
    if after is not None:
        headers["x-after"] = after
    mark = uuid.uuid4().hex
    properties = {"headers": headers, "reply_to": reply_to, "correlation_id": mark}
    connection.publish("", f"$queue/{queue}/$browse", b"", wire.encode_properties(properties))
    connection.flush()
    timeout_s = settings.connection.confirm_timeout_s
    deadline = time.monotonic() + timeout_s
    rows: list[Message] = []
    while True:
        while connection.deliveries:
            message = connection.deliveries.popleft()
            if f"{PREFIX}state" in message.properties.get("headers", {}):
                rows.append(message)
            elif message.properties.get("correlation_id") == mark:
                answer = json.loads(message.body)
                if answer["status"] == "refused":
                    raise Refused(f"{answer['reason']} (options queue, state, group)")
                return rows, answer["next"]
            deadline = time.monotonic() + timeout_s
        if not connection.poll(deadline - time.monotonic()):
            raise BrokerUnreachable(
                f"queue {queue!r} was not listed within {timeout_s:g} s (option confirmTimeout)"
            )


def _batch(queue: str, messages: list[Message], *, include_headers: bool) -> RecordBatch:
    import pyarrow as pa

    properties = [message.properties for message in messages]
    told = [values["headers"] for values in properties]
    utc = pa.timestamp("us", tz="UTC")
    columns: list[tuple[str, Any, list[Any]]] = [
        ("queue", pa.string(), [queue] * len(messages)),
        ("offset", pa.int64(), [values[f"{PREFIX}offset"] for values in told]),
        ("exchange", pa.string(), [values.get(f"{PREFIX}exchange", "") for values in told]),
        ("routing_key", pa.string(), [values[f"{PREFIX}routing-key"] for values in told]),
        ("timestamp", utc, [_time(values, "timestamp") for values in told]),
        ("message_id", pa.string(), [values.get("message_id") for values in properties]),
        ("content_type", pa.string(), [values.get("content_type") for values in properties]),
        (
            "headers",
            pa.map_(pa.string(), pa.string()),
            [_own(values) if include_headers else None for values in told],
        ),
        ("payload", pa.binary(), [message.body for message in messages]),
        ("state", pa.string(), [values[f"{PREFIX}state"] for values in told]),
        ("state_timestamp", utc, [_time(values, "time") for values in told]),
        ("attempts", pa.int32(), [values[f"{PREFIX}attempts"] for values in told]),
        ("consumer", pa.string(), [values.get(f"{PREFIX}consumer") for values in told]),
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, kind) for _, kind, values in columns], names=[name for name, _, _ in columns]
    )


def _time(told: Mapping[str, Any], name: str) -> int | None:
    """In us; None: there is no such time."""
    time_ms = told.get(PREFIX + name)
    return time_ms * 1_000 if time_ms else None


def _own(headers: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in headers.items() if not name.startswith(PREFIX)]
