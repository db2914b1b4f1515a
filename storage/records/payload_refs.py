"""Payload reference count, type 0a: how many queues still need the payload of a message that went to several.

    key    01 0a ‖ message_id u64BE
    value  count u32LE

Only messages whose envelope has the `SHARED` flag have one. Payload and count are deleted when it would
become 0.
"""

from typing import Final

from storage import layout
from storage.encoding import KeyReader, ValueReader, pack_u32, pack_u64_key

NAME: Final = "payload references"
PREFIX: Final = layout.record_prefix(layout.PAYLOAD_REFS)


def key(message_id: int) -> bytes:
    return PREFIX + pack_u64_key(message_id)


def parse_key(raw: bytes) -> int:
    """The message ID."""
    reader = KeyReader(NAME, raw, PREFIX)
    message_id = reader.u64("message_id")
    reader.finish()
    return message_id


def prefix() -> bytes:
    """What every key of this type begins with."""
    return PREFIX


def encode(count: int) -> bytes:
    return pack_u32(count)


def decode(value: bytes) -> int:
    """The count."""
    reader = ValueReader(NAME, value)
    count = reader.u32("count")
    reader.finish()
    return count
