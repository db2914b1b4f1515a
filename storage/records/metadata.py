"""Metadata record: the value of one entry of a queue's metadata log.

    value  Array of: message_id u64LE ‖ n u32LE ‖ metadata (n bytes, an envelope)

Its key is the log's (`storage.metadata_log`). One append makes one record, however many messages it holds
(at most `ARRAY_COUNT_MAX`); message IDs in it need not be consecutive.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Final

from storage.encoding import ARRAY_COUNT_MAX, pack_u16
from storage.errors import CorruptRecord

NAME: Final = "metadata"

_HEAD: Final = struct.Struct("<QI")
_HEAD_BYTES: Final = _HEAD.size
_pack_head: Final[Callable[[int, int], bytes]] = _HEAD.pack
_unpack_head: Final = _HEAD.unpack_from


def join_metadata(count: int, parts: Iterable[bytes]) -> bytes:
    """Join `count` elements given as parts (of `storage.envelope`) to a record."""
    if count > ARRAY_COUNT_MAX:
        raise ValueError(f"a metadata record has at most {ARRAY_COUNT_MAX} elements, not {count}")
    return b"".join((pack_u16(count), *parts))


def encode(messages: Sequence[tuple[int, bytes]]) -> bytes:
    """Encode (message_id, metadata) pairs as a record."""
    parts = []
    for message_id, metadata in messages:
        parts.append(_pack_head(message_id, len(metadata)))
        parts.append(metadata)
    return join_metadata(len(messages), parts)


def decode(value: bytes) -> list[tuple[int, bytes]]:
    """Decode the (message_id, metadata) pairs, in the order they were appended."""
    size = len(value)
    if size < 2:
        raise CorruptRecord(NAME, "count", "truncated")
    count = value[0] | value[1] << 8
    if count > 1 and size >= 2 + _HEAD_BYTES:
        # messages published alike have metadata of one length: then the array is a table
        length = _unpack_head(value, 2)[1]
        if size == 2 + count * (_HEAD_BYTES + length):
            table = struct.iter_unpack(f"<QI{length}s", memoryview(value)[2:])
            messages = [(message_id, metadata) for message_id, n, metadata in table if n == length]
            if len(messages) == count:
                return messages
    return _decode_elements(value, count)


def _decode_elements(value: bytes, count: int) -> list[tuple[int, bytes]]:
    size = len(value)
    messages = []
    position = 2
    for _ in repeat(None, count):
        start = position + _HEAD_BYTES
        if start > size:
            raise CorruptRecord(NAME, "message_id", "truncated")
        message_id, length = _unpack_head(value, position)
        position = start + length
        messages.append((message_id, value[start:position]))
    if position != size:
        raise CorruptRecord(NAME, "metadata", "truncated" if position > size else "bytes left over")
    return messages
