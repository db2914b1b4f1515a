"""Values of active (02), done (03), failed (04) and settlements (21) records, packed by hand: some are
written with every commit.

    active (02)            Array of Available, Array of InFlight
    done (03), failed (04) Array of Settled
    settlements (21)       Array of Settled, Array of claim_id u64
    Available  message_id u64, claim_id u64, attempts u16, metadata VarBytes
    InFlight   message_id u64, claim_id u64, claimed_at i64, lease_deadline i64, attempts u16,
               metadata VarBytes
    Settled    message_id u64, claim_id u64, settled_at i64, attempts u16, metadata VarBytes

Arrays are in rising order of claim IDs. `attempts` counts claims so far: 1 at the first consumer, at most
65,535; 0 if redriven. A settlement counts only for the claim ID and the attempts of its delivery. `metadata`
is the envelope of the publish; backing off sets its `visible_at`.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeVar

from storage.encoding import Reader, encode_array, pack_u64
from storage.errors import CorruptRecord
from storage.records.fields import Codec

M = TypeVar("M")


_AVAILABLE: Final = struct.Struct("<QQHI")
_IN_FLIGHT: Final = struct.Struct("<QQqqHI")
_SETTLED: Final = struct.Struct("<QQqHI")
_pack_available: Final = _AVAILABLE.pack
_pack_in_flight: Final = _IN_FLIGHT.pack
_pack_settled: Final = _SETTLED.pack


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


class SettledMessage(NamedTuple):
    """A message its queue is finished with; `settled_at_ms` is when it was done or failed."""

    message_id: int
    claim_id: int
    settled_at_ms: int
    attempts: int
    metadata: bytes


class Settlements(NamedTuple):
    """Messages that are done, and claim IDs of those that were let go of."""

    done: list[SettledMessage]
    released: list[int]


def pack_available(message_id: int, claim_id: int, attempts: int, metadata: bytes) -> bytes:
    """Pack one available message."""
    return _pack_available(message_id, claim_id, attempts, len(metadata)) + metadata


def pack_in_flight(
    message_id: int, claim_id: int, claimed_at_ms: int, lease_deadline_ms: int, attempts: int, metadata: bytes
) -> bytes:
    """Pack one message in flight."""
    head = _pack_in_flight(message_id, claim_id, claimed_at_ms, lease_deadline_ms, attempts, len(metadata))
    return head + metadata


def pack_settled(message_id: int, claim_id: int, settled_at_ms: int, attempts: int, metadata: bytes) -> bytes:
    """Pack one settled message."""
    return _pack_settled(message_id, claim_id, settled_at_ms, attempts, len(metadata)) + metadata


def packed_claim_id(element: bytes) -> int:
    """Return the claim ID in a packed message of any kind."""
    return int.from_bytes(element[8:16], "little")


def _encode_active(available: Sequence[bytes], in_flight: Sequence[bytes]) -> bytes:
    return encode_array(available) + encode_array(in_flight)


def _encode_settlements(done: Sequence[bytes], released: Iterable[int]) -> bytes:
    return encode_array(done) + encode_array([pack_u64(claim_id) for claim_id in released])


def _read_messages(reader: Reader, head: struct.Struct, make: Callable[[Sequence[Any]], M]) -> list[M]:
    """Read an array of elements: a head, whose last number is the size of the metadata, and that."""
    data, size, unpack_from = reader.data, head.size, head.unpack_from
    messages = []
    first = reader.position
    position = first + 2
    try:
        for _ in repeat(None, data[position - 2] | data[position - 1] << 8):
            *numbers, length = unpack_from(data, position)
            start = position + size
            position = start + length
            numbers.append(data[start:position])
            messages.append(make(numbers))
    except (struct.error, IndexError) as error:
        raise CorruptRecord(reader.record_type, "array", "truncated") from error
    if position > len(data):
        raise CorruptRecord(reader.record_type, "metadata", "truncated")
    reader.skip(position - first)
    return messages


def _read_active(reader: Reader) -> tuple[list[AvailableMessage], list[InFlightMessage]]:
    available = _read_messages(reader, _AVAILABLE, AvailableMessage._make)
    return available, _read_messages(reader, _IN_FLIGHT, InFlightMessage._make)


def _read_settled(reader: Reader) -> list[SettledMessage]:
    return _read_messages(reader, _SETTLED, SettledMessage._make)


def _read_settlements(reader: Reader) -> Settlements:
    done = _read_settled(reader)
    return Settlements(done, [reader.u64("released") for _ in range(reader.u16("released"))])


ACTIVE: Final = Codec(_encode_active, _read_active)
"""`encode` takes packed messages, available and in flight, each in rising order of claim IDs."""
SETTLED: Final[Codec[[Iterable[bytes]], list[SettledMessage]]] = Codec(encode_array, _read_settled)
"""`encode` takes packed messages in rising order of claim IDs."""
SETTLEMENTS: Final = Codec(_encode_settlements, _read_settlements)
"""`encode` takes packed messages that are done, and claim IDs of those let go of, each in rising order."""
