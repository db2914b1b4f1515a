"""A range of a stream to Arrow batches; anybody may read it, at the same time and again."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final

from spark_bridge.address import key_in_queue, queue_address
from spark_bridge.client import CONSUMER_TAG
from spark_bridge.errors import BrokerUnreachable, OptionError, Refused
from spark_bridge.offsets import OffsetReader, Range, kept, lost
from spark_bridge.runs import OFFSET, TIMESTAMP, RunReader
from spark_bridge.settings import KAFKA_COLUMNS, SLUICE_COLUMNS, ReadSettings

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from spark_bridge.runs import Run

SCHEMA: Final = (
    "queue string, offset bigint, exchange string, routing_key string, timestamp timestamp,"
    " message_id string, content_type string, headers map<string,string>, payload binary"
)
# those of Spark's Kafka source
KAFKA_SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int, headers array<struct<key:string,value:binary>>"
)
LOG_APPEND_TIME: Final = 1  # to Kafka: the time is the broker's
SCHEMAS: Final = {SLUICE_COLUMNS: SCHEMA, KAFKA_COLUMNS: KAFKA_SCHEMA}
BATCH_ROWS: Final = 5_000
PREFETCH: Final = 4_000
ACK_EVERY: Final = 1_000
TRIES_MAX: Final = 5
SKIPPED_S: Final = 0.05  # how long nothing comes before the broker is asked how far it is
# what the broker adds to a delivery
GAP: Final = "x-stream-gap"
BROKER_HEADERS: Final = (OFFSET, TIMESTAMP, GAP, "x-group-id", "x-offset")


def check_schema(schema: Any, columns: str) -> None:
    """Raise OptionError for a schema of the user's own: the columns are what they are."""
    wanted = [tuple(column.split(" ", 1)) for column in columns.split(", ")]
    if [(field.name, field.dataType.simpleString()) for field in schema.fields] != wanted:
        raise OptionError(f"the columns are {columns}: leave the schema out and select from them")


def read_range(settings: ReadSettings, wanted: Range) -> Iterator[RecordBatch]:
    """Read the messages of a range. Raises SluiceError, DataLost when some are gone and that matters."""
    reader = OffsetReader(settings.connection)
    try:
        ends = reader.ends(wanted.queue)
    finally:
        reader.close()
    found = kept(wanted, ends, fail_on_data_loss=settings.fail_on_data_loss)
    position, tries = wanted.end if found is None else found.start, 0
    while position < wanted.end:
        try:
            for runs in _consumed(settings, wanted._replace(start=position)):
                yield batch_of(
                    wanted.queue, runs, columns=settings.columns, include_headers=settings.include_headers
                )
                position, tries = runs[-1].offsets[-1] + 1, 0
            return
        except BrokerUnreachable:
            tries += 1
            if tries > TRIES_MAX:
                raise


def _consumed(settings: ReadSettings, wanted: Range) -> Iterator[list[Run]]:
    timeout_s = settings.connection.confirm_timeout_s
    expected = acked = wanted.start
    with RunReader(settings.connection) as connection:
        prefetch = min(PREFETCH, wanted.end - wanted.start)
        arguments: dict[str, Any] = {OFFSET: wanted.start}
        if settings.selector:
            arguments["x-jms-selector"] = settings.selector
        connection.consume(wanted.queue, no_ack=False, arguments=arguments, prefetch=prefetch)
        runs: list[Run] = []
        row_count = 0
        deadline = time.monotonic() + timeout_s
        while expected < wanted.end:
            if not connection.runs:
                if connection.cancelled:
                    raise Refused(f"stream {wanted.queue!r} was deleted")
                now = time.monotonic()
                if settings.selector and now < deadline:
                    passed = expected if connection.poll(SKIPPED_S) else _passed(connection, wanted, expected)
                    if passed > expected:
                        expected, deadline = passed, now + timeout_s
                    continue
                if not connection.poll(deadline - now):
                    raise BrokerUnreachable(
                        f"nothing came of stream {wanted.queue!r} from offset {expected} on within"
                        f" {timeout_s:g} s (option confirmTimeout)"
                    )
                continue
            deadline = time.monotonic() + timeout_s
            run = connection.runs.popleft()
            tag = run.tag
            if settings.selector:
                _check_gap(settings, wanted.queue, run)
            else:
                for missed, until in _gaps(run.offsets, expected, wanted.end):
                    lost(wanted.queue, missed, until, fail_on_data_loss=settings.fail_on_data_loss)
            expected = run.offsets[-1] + 1
            if expected > wanted.end:
                run = _before(run, wanted.end)
            if run.bodies:
                runs.append(run)
                row_count += len(run.bodies)
            # what the broker may send without more acknowledgements is enough near the end
            if expected - acked >= ACK_EVERY and acked + prefetch < wanted.end:
                connection.ack(tag)
                acked = expected
            if row_count >= BATCH_ROWS:
                yield runs
                runs, row_count = [], 0
        if runs:
            yield runs


def _passed(connection: RunReader, wanted: Range, expected: int) -> int:
    """Return up to where the broker has looked for messages that the selector wants, and sent them;
    `expected` where some of those are still to be taken from `runs`.
    """
    address = f"{queue_address(wanted.queue)}/$stream-status"
    answer = connection.ask(address, {"x-consumer-tag": CONSUMER_TAG})
    if answer["status"] == "refused":
        raise Refused(f"stream {wanted.queue!r}: {answer['reason']}")
    return expected if connection.runs else int(answer["position"])


def _check_gap(settings: ReadSettings, queue: str, run: Run) -> None:
    """Tell of what retention took while the broker looked for messages that the selector wants."""
    gap = run.properties["headers"].get(GAP, 0)
    if gap:
        lost(queue, run.offsets[0] - gap, run.offsets[0], fail_on_data_loss=settings.fail_on_data_loss)


def _gaps(offsets: list[int], expected: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield offsets `[first, until)` below `end` that are missing."""
    if offsets[0] == expected and offsets[-1] - expected + 1 == len(offsets):
        return
    for offset in offsets:
        if expected < offset and expected < end:
            yield expected, min(offset, end)
        expected = offset + 1


def _before(run: Run, end: int) -> Run:
    count = bisect_left(run.offsets, end)
    return replace(
        run,
        offsets=run.offsets[:count],
        times_ms=run.times_ms[:count],
        message_ids=run.message_ids[:count],
        bodies=run.bodies[:count],
    )


def batch_of(queue: str, runs: list[Run], *, columns: str, include_headers: bool) -> RecordBatch:
    """Return the rows of messages, in the columns that were asked for."""
    import pyarrow as pa

    numbers: list[int] = []
    for number, run in enumerate(runs):
        numbers += repeat(number, len(run.bodies))
    which = pa.array(numbers, pa.int32())

    def of_each_run(kind: Any, values: list[Any]) -> Any:
        return pa.array(values, kind).take(which)

    properties = [run.properties for run in runs]
    of_kafka = columns == KAFKA_COLUMNS
    own = _own_bytes if of_kafka else _own
    headers = [own(values["headers"]) if include_headers else None for values in properties]
    keys = [key_in_queue(queue, run.exchange, run.routing_key) for run in runs]
    times_us = [time_ms * 1_000 for run in runs for time_ms in run.times_ms]
    offsets = pa.array(list(chain.from_iterable(run.offsets for run in runs)), pa.int64())
    times = pa.array(times_us, pa.timestamp("us", tz="UTC"))
    payloads = pa.array(list(chain.from_iterable(run.bodies for run in runs)), pa.binary())
    if of_kafka:
        pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
        arrays = {
            "key": of_each_run(pa.binary(), [key and key.encode() for key in keys]),
            "value": payloads,
            "topic": of_each_run(pa.string(), [queue] * len(runs)),
            "partition": of_each_run(pa.int32(), [0] * len(runs)),
            "offset": offsets,
            "timestamp": times,
            "timestampType": of_each_run(pa.int32(), [LOG_APPEND_TIME] * len(runs)),
            "headers": of_each_run(pa.list_(pair), headers),
        }
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    arrays = {
        "queue": of_each_run(pa.string(), [queue] * len(runs)),
        "offset": offsets,
        "exchange": of_each_run(pa.string(), [run.exchange for run in runs]),
        "routing_key": of_each_run(pa.string(), keys),
        "timestamp": times,
        "message_id": pa.array(list(chain.from_iterable(run.message_ids for run in runs)), pa.string()),
        "content_type": of_each_run(pa.string(), [values.get("content_type") for values in properties]),
        "headers": of_each_run(pa.map_(pa.string(), pa.string()), headers),
        "payload": payloads,
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def text_of(value: Any) -> str:
    """Return the value of a header as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _own(headers: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, text_of(value)) for name, value in headers.items() if name not in BROKER_HEADERS]


def _own_bytes(headers: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": name, "value": value if isinstance(value, bytes) else str(value).encode()}
        for name, value in headers.items()
        if name not in BROKER_HEADERS
    ]
