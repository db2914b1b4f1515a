"""Committed epoch, type 18: the last one of a producer in a queue.

    key    01 18 ‖ TB(queue) ‖ producer raw (no terminator: it is the last field)
    value  epoch u64LE ‖ committed_at i64LE ‖ row_count u64LE ‖ checksum Utf8

Written with the decision to commit (`storage.records.epoch`). It is what makes committing idempotent, so it
stays long after the rows are gone.
"""

import struct
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, encode_utf8

NAME: Final = "committed epoch"
PREFIX: Final = layout.record_prefix(layout.COMMITTED_EPOCH)


class CommittedEpoch(NamedTuple):
    """The last epoch, when it was committed, with how many rows and which checksum ("": none given)."""

    epoch: int
    committed_at_ms: int
    row_count: int
    checksum: str


def key(queue_id: str, producer: str) -> bytes:
    return prefix(queue_id) + producer.encode()


def parse_key(raw: bytes) -> tuple[str, str]:
    """The queue ID and the producer."""
    reader = KeyReader(NAME, raw, PREFIX)
    return reader.terminated_text("queue_id"), reader.rest_text("producer")


def prefix(queue_id: str | None = None) -> bytes:
    """What the keys of one queue's producers (or of all queues') begin with."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.COMMITTED_EPOCH, queue_id)


def encode(committed: CommittedEpoch) -> bytes:
    epoch, committed_at_ms, row_count, checksum = committed
    return struct.pack("<QqQ", epoch, committed_at_ms, row_count) + encode_utf8(checksum)


def decode(value: bytes) -> CommittedEpoch:
    reader = ValueReader(NAME, value)
    found = CommittedEpoch(
        reader.u64("epoch"), reader.i64("committed_at"), reader.u64("row_count"), reader.utf8("checksum")
    )
    reader.finish()
    return found
