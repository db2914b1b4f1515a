"""Removal, type 0d: a queue was deleted and its records are still being taken away.

    key    01 0d ‖ log ID raw (no terminator: it is the last field)
    value  queue_name Utf8 ‖ Array of queue ID Utf8 (of the queue and its groups)

Written with the delete of the queue's specification and deleted with the last of its other records, so that
a crash in between leaves nothing behind for ever.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, encode_array, encode_utf8

NAME: Final = "removal"
PREFIX: Final = layout.record_prefix(layout.REMOVAL)


class PendingRemoval(NamedTuple):
    """The queue that goes, and the queue IDs its records stand under."""

    queue_name: str
    queue_ids: tuple[str, ...]


def key(log_id: str) -> bytes:
    return PREFIX + log_id.encode()


def parse_key(raw: bytes) -> str:
    """The log ID."""
    return KeyReader(NAME, raw, PREFIX).rest_text("log_id")


def prefix() -> bytes:
    """What every key of this type begins with."""
    return PREFIX


def encode(queue_name: str, queue_ids: Sequence[str]) -> bytes:
    return encode_utf8(queue_name) + encode_array([encode_utf8(queue_id) for queue_id in queue_ids])


def decode(value: bytes) -> PendingRemoval:
    reader = ValueReader(NAME, value)
    queue_name = reader.utf8("queue_name")
    queue_ids = tuple([reader.utf8("queue_id") for _ in range(reader.u16("queue_ids"))])
    reader.finish()
    return PendingRemoval(queue_name, queue_ids)
