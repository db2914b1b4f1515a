"""Producer, type 11: how far a producer that numbers its publishes has got in a queue.

    key    01 11 ‖ TB(queue) ‖ producer ID, Utf8 raw
    value  sequence u64LE ‖ seen_ms u64LE ‖ digest of the last body, 8 bytes

Written with each of its publishes.
"""

from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, pack_u64
from storage.records.identified import DIGEST_BYTES

NAME: Final = "producer"
PREFIX: Final = layout.record_prefix(layout.PRODUCER)


class ProducerProgress(NamedTuple):
    """The highest sequence taken, when, and the digest of its body."""

    sequence: int
    seen_ms: int
    digest: bytes


def key(queue_id: str, producer_id: str) -> bytes:
    return prefix(queue_id) + producer_id.encode()


def parse_key(raw: bytes) -> tuple[str, str]:
    """Queue and producer ID."""
    reader = KeyReader(NAME, raw, PREFIX)
    return reader.terminated_text("queue_id"), reader.rest_text("producer_id")


def prefix(queue_id: str | None = None) -> bytes:
    """What the keys of one queue's (or of all queues') producers begin with."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.PRODUCER, queue_id)


def encode(sequence: int, seen_ms: int, digest: bytes) -> bytes:
    return pack_u64(sequence) + pack_u64(seen_ms) + digest


def decode(value: bytes) -> ProducerProgress:
    reader = ValueReader(NAME, value)
    found = ProducerProgress(reader.u64("sequence"), reader.u64("seen"), reader.take(DIGEST_BYTES, "digest"))
    reader.finish()
    return found
