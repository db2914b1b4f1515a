"""Producer, type 11: how far a producer that numbers its publishes has got in a queue.

    key    01 11 ‖ TB(queue) ‖ producer ID, Utf8 raw
    value  sequence i64LE ‖ seen_ms u64LE ‖ digest of the last body, 8 bytes [‖ refused u64LE]

Written with each of its publishes. `sequence` is -1 while none was taken, the digest then zeros. `refused` is
there while a publish that the full queue refused has to be sent again before those that follow it.
"""

from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, pack_i64, pack_u64
from storage.records.identified import DIGEST_BYTES

NAME: Final = "producer"
PREFIX: Final = layout.record_prefix(layout.PRODUCER)
NONE_TAKEN: Final = -1


class ProducerProgress(NamedTuple):
    """The highest sequence taken (or `NONE_TAKEN`), the digest of its body, when the producer was last heard
    of, and the lowest sequence that was refused and has to come before the next; None: there is none.
    """

    sequence: int
    seen_ms: int
    digest: bytes
    refused: int | None = None


def key(queue_id: str, producer_id: str) -> bytes:
    return prefix(queue_id) + producer_id.encode()


def parse_key(raw: bytes) -> tuple[str, str]:
    """Queue and producer ID."""
    reader = KeyReader(NAME, raw, PREFIX)
    return reader.terminated_text("queue_id"), reader.rest_text("producer_id")


def prefix(queue_id: str | None = None) -> bytes:
    """What the keys of one queue's (or of all queues') producers begin with."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.PRODUCER, queue_id)


def encode(sequence: int, seen_ms: int, digest: bytes, refused: int | None = None) -> bytes:
    value = pack_i64(sequence) + pack_u64(seen_ms) + digest
    return value if refused is None else value + pack_u64(refused)


def decode(value: bytes) -> ProducerProgress:
    reader = ValueReader(NAME, value)
    sequence, seen_ms = reader.i64("sequence"), reader.u64("seen")
    digest = reader.take(DIGEST_BYTES, "digest")
    refused = None if reader.at_end() else reader.u64("refused")
    reader.finish()
    return ProducerProgress(sequence, seen_ms, digest, refused)
