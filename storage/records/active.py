"""Active messages, type 02: one bucket of messages a queue still has to deliver.

    key        01 02 ‖ TB(queue) ‖ bucket_id u64BE
    value      Array of Available ‖ Array of InFlight, each in rising order of claim IDs
    Available  message_id u64LE ‖ claim_id u64LE ‖ attempts u16LE ‖ n u32LE ‖ metadata (n bytes)
    InFlight   message_id u64LE ‖ claim_id u64LE ‖ claimed_at i64LE ‖ lease_deadline i64LE ‖ attempts u16LE
               ‖ n u32LE ‖ metadata (n bytes)

Times are milliseconds since the Unix epoch. A claim ID is given once, when the message enters the queue,
and a message keeps it through every claim and requeue; `attempts` counts its claims so far.
"""

import struct
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, encode_array
from storage.errors import CorruptRecord

NAME: Final = "active"
PREFIX: Final = layout.record_prefix(layout.ACTIVE)
EMPTY: Final = bytes(4)  # the value of a bucket with nothing in it

_AVAILABLE: Final = struct.Struct("<QQHI")
_IN_FLIGHT: Final = struct.Struct("<QQqqHI")
_pack_available: Final = _AVAILABLE.pack
_pack_in_flight: Final = _IN_FLIGHT.pack


class AvailableMessage(NamedTuple):
    """A message that waits for a consumer."""

    message_id: int
    claim_id: int
    attempts: int
    metadata: bytes


class InFlightMessage(NamedTuple):
    """A message a consumer holds until it settles it or `lease_deadline_ms` passes."""

    message_id: int
    claim_id: int
    claimed_at_ms: int
    lease_deadline_ms: int
    attempts: int
    metadata: bytes


def key(queue_id: str, bucket_id: int) -> bytes:
    return layout.bucket_key(layout.ACTIVE, queue_id, bucket_id)


def parse_key(raw: bytes) -> tuple[str, int]:
    """The (queue ID, bucket ID)."""
    return KeyReader(NAME, raw, PREFIX).bucket()


def prefix(queue_id: str | None = None) -> bytes:
    """What the keys of one queue's buckets (or of all queues') begin with."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.ACTIVE, queue_id)


def pack_available(message_id: int, claim_id: int, attempts: int, metadata: bytes) -> bytes:
    """One element of the first array."""
    return _pack_available(message_id, claim_id, attempts, len(metadata)) + metadata


def pack_in_flight(
    message_id: int, claim_id: int, claimed_at_ms: int, lease_deadline_ms: int, attempts: int, metadata: bytes
) -> bytes:
    """One element of the second array."""
    head = _pack_in_flight(message_id, claim_id, claimed_at_ms, lease_deadline_ms, attempts, len(metadata))
    return head + metadata


def encode_packed(available: Sequence[bytes], in_flight: Sequence[bytes]) -> bytes:
    """A bucket of packed elements, which the caller gives in rising order of claim IDs."""
    return encode_array(available) + encode_array(in_flight)


def encode(
    available: Iterable[tuple[int, int, int, bytes]],
    in_flight: Iterable[tuple[int, int, int, int, int, bytes]],
) -> bytes:
    """A bucket of elements in any order, given as the classes above or equal tuples."""
    return encode_packed(
        [pack_available(*element) for element in sorted(available, key=itemgetter(1))],
        [pack_in_flight(*element) for element in sorted(in_flight, key=itemgetter(1))],
    )


def decode(value: bytes) -> tuple[list[AvailableMessage], list[InFlightMessage]]:
    """The available and the in-flight messages of a bucket."""
    try:
        available, position = _decode_available(value, 0)
        in_flight, position = _decode_in_flight(value, position)
    except (struct.error, IndexError) as error:
        raise CorruptRecord(NAME, "array", "truncated") from error
    if position != len(value):
        raise CorruptRecord(NAME, "metadata", "truncated" if position > len(value) else "bytes left over")
    return available, in_flight


def _decode_available(value: bytes, position: int) -> tuple[list[AvailableMessage], int]:
    messages = []
    count = value[position] | value[position + 1] << 8
    position += 2
    for _ in range(count):
        message_id, claim_id, attempts, length = _AVAILABLE.unpack_from(value, position)
        start = position + _AVAILABLE.size
        position = start + length
        messages.append(AvailableMessage(message_id, claim_id, attempts, value[start:position]))
    return messages, position


def _decode_in_flight(value: bytes, position: int) -> tuple[list[InFlightMessage], int]:
    messages = []
    count = value[position] | value[position + 1] << 8
    position += 2
    for _ in range(count):
        message_id, claim_id, claimed_at_ms, lease_deadline_ms, attempts, length = _IN_FLIGHT.unpack_from(
            value, position
        )
        start = position + _IN_FLIGHT.size
        position = start + length
        messages.append(
            InFlightMessage(
                message_id, claim_id, claimed_at_ms, lease_deadline_ms, attempts, value[start:position]
            )
        )
    return messages, position
