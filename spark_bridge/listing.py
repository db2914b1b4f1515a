"""The messages that wait in a queue, failed, or are done: a snapshot for analysis, which disturbs nothing
(`$browse`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from spark_bridge.address import key_in_queue, queue_address
from spark_bridge.errors import BrokerUnreachable, Refused
from spark_bridge.listed import ListLink, Row
from spark_bridge.reading import SCHEMA as MESSAGE_SCHEMA
from spark_bridge.reading import TRIES_MAX
from spark_bridge.settings import ListSettings

if TYPE_CHECKING:
    from pyarrow import RecordBatch

SCHEMA: Final = f"{MESSAGE_SCHEMA}, state string, state_timestamp timestamp, attempts int, consumer string"
PAGE_ROWS: Final = 1_000


def check_lists(settings: ListSettings) -> None:
    """Raise SluiceError for what the broker will refuse, now rather than in a task."""
    with ListLink(settings.connection) as link:
        reply_to = link.take_replies()
        for queue in settings.queues:
            take_page(link, queue, ask_page(link, reply_to, settings, queue, None, 1))


def read_list(settings: ListSettings, queue: str) -> Iterator[RecordBatch]:
    """Read a queue's list, page by page, the next one asked for in advance. Raises SluiceError."""
    after: str | None = None
    tries = 0
    while True:
        try:
            with ListLink(settings.connection) as link:
                reply_to = link.take_replies()
                asked = ask_page(link, reply_to, settings, queue, after, PAGE_ROWS)
                while asked:
                    rows, after = take_page(link, queue, asked)
                    tries = 0
                    asked = ""
                    if after is not None:
                        asked = ask_page(link, reply_to, settings, queue, after, PAGE_ROWS)
                    if rows:
                        yield _batch(queue, rows, include_headers=settings.include_headers)
                return
        except BrokerUnreachable:  # between pages nothing is lost
            tries += 1
            if tries > TRIES_MAX:
                raise


def ask_page(
    link: ListLink, reply_to: str, settings: ListSettings, queue: str, after: str | None, limit: int
) -> str:
    """Ask for a page; gives the mark of its answer."""
    headers: dict[str, Any] = {"x-state": settings.state, "x-limit": limit}
    if settings.group is not None:
        headers["x-group-id"] = settings.group
    if after is not None:
        headers["x-after"] = after
    return link.request(reply_to, f"{queue_address(queue)}/$browse", headers)


def take_page(link: ListLink, queue: str, mark: str) -> tuple[list[Row], str | None]:
    """Wait for the messages of a page; gives also where the next one begins (None: there is none)."""
    answer = link.answer(mark, f"queue {queue!r} was not listed")
    if answer["status"] == "refused":
        raise Refused(f"{answer['reason']} (options queue, state, group)")
    rows = link.take_rows()
    if len(rows) != answer["messages"]:  # what a slow reader has no room for is not sent
        raise BrokerUnreachable(
            f"queue {queue!r}: {len(rows)} of {answer['messages']} messages of a page came"
        )
    return rows, answer["next"]


def _batch(queue: str, rows: list[Row], *, include_headers: bool) -> RecordBatch:
    import pyarrow as pa

    utc = pa.timestamp("us", tz="UTC")
    columns: list[tuple[str, Any, list[Any]]] = [
        ("queue", pa.string(), [queue] * len(rows)),
        ("offset", pa.int64(), [row.offset for row in rows]),
        ("exchange", pa.string(), [row.exchange for row in rows]),
        ("routing_key", pa.string(), [key_in_queue(queue, row.exchange, row.routing_key) for row in rows]),
        ("timestamp", utc, [row.received_ms * 1_000 or None for row in rows]),
        ("message_id", pa.string(), [row.message_id for row in rows]),
        ("content_type", pa.string(), [row.content_type for row in rows]),
        (
            "headers",
            pa.map_(pa.string(), pa.string()),
            [row.headers if include_headers else None for row in rows],
        ),
        ("payload", pa.binary(), [row.body for row in rows]),
        ("state", pa.string(), [row.state for row in rows]),
        ("state_timestamp", utc, [row.state_ms * 1_000 or None for row in rows]),
        ("attempts", pa.int32(), [row.attempts for row in rows]),
        ("consumer", pa.string(), [row.consumer for row in rows]),
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, kind) for _, kind, values in columns], names=[name for name, _, _ in columns]
    )
