"""Epoch, type 19: a committed epoch whose rows are on their way into the queue's log.

    key    01 19 ‖ TB(queue) ‖ number u64BE
    value  producer Utf8 ‖ epoch u64LE ‖ Array of (part u64LE ‖ attempt Utf8)

The decision: written with the producer's record, it makes exactly the named attempts part of the queue.
Numbers rise in the order of the commits. Deleted with the last of its rows (`storage.records.staged_rows`).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, encode_array, encode_utf8, pack_u64, pack_u64_key

NAME: Final = "epoch"
PREFIX: Final = layout.record_prefix(layout.EPOCH)


class DecidedEpoch(NamedTuple):
    """Whose epoch it is, and which attempts, by part, make it up."""

    producer: str
    epoch: int
    attempts: tuple[tuple[int, str], ...]


def key(queue_id: str, number: int) -> bytes:
    return prefix(queue_id) + pack_u64_key(number)


def parse_key(raw: bytes) -> tuple[str, int]:
    """The queue ID and the number."""
    reader = KeyReader(NAME, raw, PREFIX)
    found = reader.terminated_text("queue_id"), reader.u64("number")
    reader.finish()
    return found


def prefix(queue_id: str | None = None) -> bytes:
    """What the keys of one queue's epochs (or of all queues') begin with."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.EPOCH, queue_id)


def encode(producer: str, epoch: int, attempts: Sequence[tuple[int, str]]) -> bytes:
    elements = [pack_u64(part) + encode_utf8(attempt) for part, attempt in attempts]
    return encode_utf8(producer) + pack_u64(epoch) + encode_array(elements)


def decode(value: bytes) -> DecidedEpoch:
    reader = ValueReader(NAME, value)
    producer = reader.utf8("producer")
    epoch = reader.u64("epoch")
    count = reader.u16("attempts")
    attempts = tuple([(reader.u64("part"), reader.utf8("attempt")) for _ in range(count)])
    reader.finish()
    return DecidedEpoch(producer, epoch, attempts)
