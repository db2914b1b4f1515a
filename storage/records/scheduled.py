"""Scheduled message, type 0e: published, confirmed, and not in its queue's log before it is due.

    key    01 0e ‖ TB(queue) ‖ due_ms u64BE ‖ message_id u64BE
    value  envelope (`storage.envelope`), offset 0

One row for each queue that takes the message; its payload lies under the message ID as always. When it is
due the row is deleted with the commit that appends the message to the log, under the same ID.
"""

from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, pack_u64_key

NAME: Final = "scheduled message"
PREFIX: Final = layout.record_prefix(layout.SCHEDULED)


class ScheduledKey(NamedTuple):
    """Which message is due when, in which queue."""

    queue_id: str
    due_ms: int
    message_id: int


def key(queue_id: str, due_ms: int, message_id: int) -> bytes:
    return prefix(queue_id) + pack_u64_key(due_ms) + pack_u64_key(message_id)


def parse_key(raw: bytes) -> ScheduledKey:
    reader = KeyReader(NAME, raw, PREFIX)
    found = ScheduledKey(reader.terminated_text("queue_id"), reader.u64("due"), reader.u64("message_id"))
    reader.finish()
    return found


def prefix(queue_id: str | None = None) -> bytes:
    """What the keys of one queue's messages (or of all queues') begin with, in the order they are due."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.SCHEDULED, queue_id)
