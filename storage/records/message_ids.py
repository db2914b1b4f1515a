"""Message ID block, type 07: which message IDs are reserved.

    key    01 07 (there is one)
    value  base u64BE ‖ size u64BE (see `storage.sequence`)

Written with the first publish that uses an ID of the block.
"""

from typing import Final

from storage import layout
from storage.encoding import KeyReader
from storage.sequence import SequenceAllocator, decode_block, encode_block

NAME: Final = "message IDs"
PREFIX: Final = layout.record_prefix(layout.MESSAGE_IDS)
KEY: Final = PREFIX

encode: Final = encode_block
decode: Final = decode_block


def key() -> bytes:
    return KEY


def parse_key(raw: bytes) -> None:
    """Raises CorruptRecord unless this is the key."""
    KeyReader(NAME, raw, PREFIX).finish()


def prefix() -> bytes:
    """The key: there is one."""
    return PREFIX


def allocator(stored: bytes | None) -> SequenceAllocator:
    """The allocator of message IDs after a start, from the stored value if there is one."""
    return SequenceAllocator(KEY, None if stored is None else decode(stored))
