"""Removal, type 0d: a queue was deleted and its records are still being taken away.

    key    01 0d ‖ log ID raw (no terminator: it is the last field)
    value  queue_name Utf8 ‖ Array of queue ID Utf8 (of the queue and its groups) ‖
           [head_offset u64LE ‖ released Ranges]

`released` are the offsets from `head_offset` on whose payloads had been let go of; a record may end before
that, where it was not known.

Written with the delete of the queue's specification and deleted with the last of its other records, so that
a crash in between leaves nothing behind for ever.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, encode_array, encode_utf8, pack_u64
from storage.ranges import Ranges, encode_ranges, read_ranges

NAME: Final = "removal"
PREFIX: Final = layout.record_prefix(layout.REMOVAL)


class PendingRemoval(NamedTuple):
    """The queue that goes, and the queue IDs its records stand under."""

    queue_name: str
    queue_ids: tuple[str, ...]
    head_offset: int = 0
    released: Ranges | None = None


def key(log_id: str) -> bytes:
    return PREFIX + log_id.encode()


def parse_key(raw: bytes) -> str:
    """The log ID."""
    return KeyReader(NAME, raw, PREFIX).rest_text("log_id")


def prefix() -> bytes:
    """What every key of this type begins with."""
    return PREFIX


def encode(
    queue_name: str, queue_ids: Sequence[str], head_offset: int = 0, released: Ranges | None = None
) -> bytes:
    value = encode_utf8(queue_name) + encode_array([encode_utf8(queue_id) for queue_id in queue_ids])
    return value if released is None else value + pack_u64(head_offset) + encode_ranges(released)


def decode(value: bytes) -> PendingRemoval:
    reader = ValueReader(NAME, value)
    queue_name = reader.utf8("queue_name")
    queue_ids = tuple([reader.utf8("queue_id") for _ in range(reader.u16("queue_ids"))])
    if reader.position == len(value):
        return PendingRemoval(queue_name, queue_ids)
    head_offset = reader.u64("head_offset")
    released = read_ranges(reader, NAME, "released")
    reader.finish()
    return PendingRemoval(queue_name, queue_ids, head_offset, released)
