"""Log cursor, type 08: how far a queue has taken messages over from a metadata log.

    key    01 08 ‖ TB(queue) ‖ log ID raw
    value  next_sequence u64LE: the first log entry not yet wholly assigned

Written in the same batch as the buckets it filled, so each message is assigned exactly once.
"""

from typing import Final

from storage import layout
from storage.encoding import KeyReader, ValueReader, pack_u64

NAME: Final = "log cursor"
PREFIX: Final = layout.record_prefix(layout.LOG_CURSOR)


def key(queue_id: str, log_id: str) -> bytes:
    return layout.queue_prefix(layout.LOG_CURSOR, queue_id) + log_id.encode()


def parse_key(raw: bytes) -> tuple[str, str]:
    """The (queue ID, log ID)."""
    reader = KeyReader(NAME, raw, PREFIX)
    return reader.terminated_text("queue_id"), reader.rest_text("log_id")


def prefix(queue_id: str | None = None) -> bytes:
    """What the keys of one queue's cursors (or of all queues') begin with."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.LOG_CURSOR, queue_id)


def encode(next_sequence: int) -> bytes:
    return pack_u64(next_sequence)


def decode(value: bytes) -> int:
    """The next sequence."""
    reader = ValueReader(NAME, value)
    next_sequence = reader.u64("next_sequence")
    reader.finish()
    return next_sequence
