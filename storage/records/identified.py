"""Message with a deduplication ID, type 10: a publish with this ID was taken, and when.

    key    01 10 ‖ TB(queue) ‖ deduplication ID, Utf8 raw
    value  seen_ms u64LE ‖ digest of the body, 8 bytes

Written with the publish, deleted when the queue's deduplication window has passed.
"""

from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, pack_u64

NAME: Final = "deduplication ID"
PREFIX: Final = layout.record_prefix(layout.IDENTIFIED)
DIGEST_BYTES: Final = 8


class Identified(NamedTuple):
    """When a publish was taken, and the digest of its body."""

    seen_ms: int
    digest: bytes


def key(queue_id: str, deduplication_id: str) -> bytes:
    return prefix(queue_id) + deduplication_id.encode()


def parse_key(raw: bytes) -> tuple[str, str]:
    """Queue and deduplication ID."""
    reader = KeyReader(NAME, raw, PREFIX)
    return reader.terminated_text("queue_id"), reader.rest_text("deduplication_id")


def prefix(queue_id: str | None = None) -> bytes:
    """What the keys of one queue's (or of all queues') IDs begin with."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.IDENTIFIED, queue_id)


def encode(seen_ms: int, digest: bytes) -> bytes:
    return pack_u64(seen_ms) + digest


def decode(value: bytes) -> Identified:
    reader = ValueReader(NAME, value)
    found = Identified(reader.u64("seen"), reader.take(DIGEST_BYTES, "digest"))
    reader.finish()
    return found
