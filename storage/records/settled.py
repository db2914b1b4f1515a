"""The value that done (03) and failed (04) records share: one Array, in rising order of claim IDs, of

message_id u64LE ‖ claim_id u64LE ‖ settled_at i64LE ‖ attempts u16LE ‖ n u32LE ‖ metadata (n bytes)
"""

import struct
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from storage.encoding import encode_array
from storage.errors import CorruptRecord

_ELEMENT: Final = struct.Struct("<QQqHI")
_pack_element: Final = _ELEMENT.pack


class SettledMessage(NamedTuple):
    """A message its queue is finished with; `settled_at_ms` is when it was done or failed."""

    message_id: int
    claim_id: int
    settled_at_ms: int
    attempts: int
    metadata: bytes


def pack_settled(message_id: int, claim_id: int, settled_at_ms: int, attempts: int, metadata: bytes) -> bytes:
    """One element of the array."""
    return _pack_element(message_id, claim_id, settled_at_ms, attempts, len(metadata)) + metadata


def packed_claim_id(element: bytes) -> int:
    """The claim ID in a packed element."""
    return int.from_bytes(element[8:16], "little")


def encode_packed(messages: Sequence[bytes]) -> bytes:
    """A bucket of packed elements, which the caller gives in rising order of claim IDs."""
    return encode_array(messages)


def encode(messages: Iterable[SettledMessage]) -> bytes:
    """A bucket of messages in any order."""
    return encode_array([pack_settled(*message) for message in sorted(messages, key=attrgetter("claim_id"))])


def decode_as(record_type: str, value: bytes) -> list[SettledMessage]:
    """The messages of a bucket; `record_type` is named in the error when the value is corrupt."""
    messages, position = decode_elements(record_type, value)
    if position != len(value):
        raise CorruptRecord(record_type, "array", "bytes left over")
    return messages


def decode_elements(record_type: str, value: bytes) -> tuple[list[SettledMessage], int]:
    """The array a value begins with, and the position behind it."""
    messages = []
    if len(value) < 2:
        raise CorruptRecord(record_type, "count", "truncated")
    position = 2
    try:
        for _ in range(value[0] | value[1] << 8):
            message_id, claim_id, settled_at_ms, attempts, length = _ELEMENT.unpack_from(value, position)
            start = position + _ELEMENT.size
            position = start + length
            messages.append(
                SettledMessage(message_id, claim_id, settled_at_ms, attempts, value[start:position])
            )
    except struct.error as error:
        raise CorruptRecord(record_type, "array", "truncated") from error
    if position > len(value):
        raise CorruptRecord(record_type, "metadata", "truncated")
    return messages, position
