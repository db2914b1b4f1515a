"""Claim state, type 09: the next claim number of a queue, which deleted buckets no longer tell.

    key    01 09 ‖ TB(queue)
    value  bucket_exponent u8 ‖ next_claim_number u64LE

Written with every assignment. The number never restarts; when the exponent changes it is rounded up to a
bucket's beginning (`layout.align_claim_number`).
"""

from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, pack_u64
from storage.errors import CorruptRecord

NAME: Final = "claim state"
PREFIX: Final = layout.record_prefix(layout.CLAIM_STATE)


class ClaimState(NamedTuple):
    """Where a queue's claim numbers go on."""

    bucket_exponent: int
    next_claim_number: int


def key(queue_id: str) -> bytes:
    return layout.queue_prefix(layout.CLAIM_STATE, queue_id)


def parse_key(raw: bytes) -> str:
    """The queue ID."""
    reader = KeyReader(NAME, raw, PREFIX)
    queue_id = reader.terminated_text("queue_id")
    reader.finish()
    return queue_id


def prefix() -> bytes:
    """What every key of this type begins with."""
    return PREFIX


def encode(bucket_exponent: int, next_claim_number: int) -> bytes:
    return bytes((layout.check_bucket_exponent(bucket_exponent),)) + pack_u64(next_claim_number)


def decode(value: bytes) -> ClaimState:
    reader = ValueReader(NAME, value)
    state = ClaimState(reader.u8("bucket_exponent"), reader.u64("next_claim_number"))
    reader.finish()
    if state.bucket_exponent > layout.BUCKET_EXPONENT_MAX:
        raise CorruptRecord(NAME, "bucket_exponent", str(state.bucket_exponent))
    if state.next_claim_number > layout.NUMBER_MASK + 1:
        raise CorruptRecord(NAME, "next_claim_number", "does not fit 60 bits")
    return state
