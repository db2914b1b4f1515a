"""Payload, type 01.

    key    01 01 ‖ message_id u64BE
    value  the message's body, verbatim; may be empty

Written with the publish; deleted when no queue needs the message any more. Message IDs rise, so a range of
keys is a range of publish time.
"""

import struct
from collections.abc import Callable
from itertools import repeat
from typing import Final

from storage import layout
from storage.encoding import KeyReader

NAME: Final = "payload"
PREFIX: Final = layout.record_prefix(layout.PAYLOAD)

_KEY: Final = struct.Struct(">HQ")
_pack_key: Final[Callable[[int, int], bytes]] = _KEY.pack
_PREFIX_NUMBER: Final = int.from_bytes(PREFIX, "big")


def key(message_id: int) -> bytes:
    return _pack_key(_PREFIX_NUMBER, message_id)


def key_run(first_message_id: int, count: int) -> list[bytes]:
    """The keys of `count` messages with consecutive IDs."""
    return list(map(_pack_key, repeat(_PREFIX_NUMBER), range(first_message_id, first_message_id + count)))


def parse_key(raw: bytes) -> int:
    """The message ID."""
    reader = KeyReader(NAME, raw, PREFIX)
    message_id = reader.u64("message_id")
    reader.finish()
    return message_id


def prefix() -> bytes:
    """What every key of this type begins with."""
    return PREFIX


def encode(body: bytes) -> bytes:
    """The body itself: nothing is put around it."""
    return body


def decode(value: bytes) -> bytes:
    return value
