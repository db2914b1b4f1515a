"""Queue meta, type 0c: where a queue's kept log begins.

    key    01 0c ‖ queue name raw (no terminator: it is the last field)
    value  head_offset u64LE ‖ head_sequence u64LE

`head_offset` is the lowest offset still kept, `head_sequence` the log entry to begin reading at to find it.
Written when retention moves the head.
"""

from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, pack_u64
from storage.errors import CorruptRecord

NAME: Final = "queue meta"
PREFIX: Final = layout.record_prefix(layout.QUEUE_META)


class QueueMeta(NamedTuple):
    """The head of a queue's log."""

    head_offset: int
    head_sequence: int


def key(queue_name: str) -> bytes:
    return PREFIX + layout.check_queue_id(queue_name).encode()


def parse_key(raw: bytes) -> str:
    """The queue's name."""
    queue_name = KeyReader(NAME, raw, PREFIX).rest_text("queue_name")
    try:
        return layout.check_queue_id(queue_name)
    except ValueError as error:
        raise CorruptRecord(NAME, "queue_name", str(error)) from error


def prefix() -> bytes:
    """What every key of this type begins with."""
    return PREFIX


def encode(head_offset: int, head_sequence: int) -> bytes:
    return pack_u64(head_offset) + pack_u64(head_sequence)


def decode(value: bytes) -> QueueMeta:
    reader = ValueReader(NAME, value)
    meta = QueueMeta(reader.u64("head_offset"), reader.u64("head_sequence"))
    reader.finish()
    return meta
