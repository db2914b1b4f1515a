"""Group position, type 0b: which offset of its queue's log a group takes over next.

    key    01 0b ‖ TB(queue ID of the group)
    value  next_offset u64LE

The log cursor (08) names the log entry to read from, and an entry holds many messages: those in it with an
offset below `next_offset` have been assigned already and are skipped. Written with every assignment.
"""

from typing import Final

from storage import layout
from storage.encoding import KeyReader, ValueReader, pack_u64

NAME: Final = "group position"
PREFIX: Final = layout.record_prefix(layout.GROUP_POSITION)


def key(queue_id: str) -> bytes:
    return layout.queue_prefix(layout.GROUP_POSITION, queue_id)


def parse_key(raw: bytes) -> str:
    """The queue ID of the group."""
    reader = KeyReader(NAME, raw, PREFIX)
    queue_id = reader.terminated_text("queue_id")
    reader.finish()
    return queue_id


def prefix() -> bytes:
    """What every key of this type begins with."""
    return PREFIX


def encode(next_offset: int) -> bytes:
    return pack_u64(next_offset)


def decode(value: bytes) -> int:
    """The next offset."""
    reader = ValueReader(NAME, value)
    next_offset = reader.u64("next_offset")
    reader.finish()
    return next_offset
