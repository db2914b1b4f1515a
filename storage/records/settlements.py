"""Settlements, type 21: what was settled in a bucket since its records were written last.

    key    01 21 ‖ TB(queue) ‖ bucket_id u64BE ‖ first_claim_id u64BE
    value  Array of Settled ‖ Array of claim_id u64LE, each in rising order of claim IDs

The first are done and belong into the done record (03), for its elements see `storage.records.settled`; the
second were let go of at once, which is what a queue that keeps no done messages does. Neither is active any
more, whatever the active record (02) says. A bucket has as many of them as there were writes, until it is
written as a whole: then it has none. `first_claim_id` is the lowest claim ID in the value.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, encode_array, pack_u64, pack_u64_key
from storage.errors import CorruptRecord
from storage.records.settled import SettledMessage, decode_elements

NAME: Final = "settlements"
PREFIX: Final = layout.record_prefix(layout.SETTLEMENTS)


class SettlementsKey(NamedTuple):
    """Which bucket of which group, and which of its records."""

    queue_id: str
    bucket_id: int
    first_claim_id: int


class Settlements(NamedTuple):
    """Messages that are done, and claim IDs of those that were let go of."""

    done: list[SettledMessage]
    released: list[int]


def key(queue_id: str, bucket_id: int, first_claim_id: int) -> bytes:
    return layout.bucket_key(layout.SETTLEMENTS, queue_id, bucket_id) + pack_u64_key(first_claim_id)


def parse_key(raw: bytes) -> SettlementsKey:
    reader = KeyReader(NAME, raw, PREFIX)
    found = SettlementsKey(
        reader.terminated_text("queue_id"), reader.u64("bucket_id"), reader.u64("first_claim_id")
    )
    reader.finish()
    return found


def prefix(queue_id: str | None = None) -> bytes:
    """What the keys of one queue's records (or of all queues') begin with."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.SETTLEMENTS, queue_id)


def encode_packed(done: Sequence[bytes], released: Iterable[int]) -> bytes:
    """A record of packed elements (`settled.pack_settled`) and claim IDs, each in rising order."""
    return encode_array(done) + encode_array([pack_u64(claim_id) for claim_id in released])


def decode(value: bytes) -> Settlements:
    """What was settled."""
    done, position = decode_elements(NAME, value)
    count = int.from_bytes(value[position : position + 2], "little")
    start = position + 2
    if len(value) != start + 8 * count:
        raise CorruptRecord(NAME, "released", "truncated" if len(value) < start + 8 * count else "left over")
    released = [int.from_bytes(value[at : at + 8], "little") for at in range(start, len(value), 8)]
    return Settlements(done, released)
