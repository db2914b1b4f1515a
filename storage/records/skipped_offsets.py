"""Skipped offsets, type 1d: what a group was made to pass over by a reset and still keeps, as if it had done
it.

    key    01 1d ‖ TB(queue ID of the group)
    value  passed_at_ms u64LE ‖ Ranges (as in `storage.ranges`)

Written with the reset, replaced by the next one. Deleted when the queue's done retention has passed since,
with the group removal record that then lets go of the payloads, or with the group.
"""

from typing import Final

from storage import layout
from storage.encoding import KeyReader, ValueReader, pack_u64
from storage.ranges import Ranges, encode_ranges, read_ranges

NAME: Final = "skipped offsets"
PREFIX: Final = layout.record_prefix(layout.SKIPPED_OFFSETS)


def key(queue_id: str) -> bytes:
    return prefix(queue_id)


def parse_key(raw: bytes) -> str:
    """The group's queue ID."""
    reader = KeyReader(NAME, raw, PREFIX)
    queue_id = reader.terminated_text("queue_id")
    reader.finish()
    return queue_id


def prefix(queue_id: str | None = None) -> bytes:
    """What the key of one group (or of all groups) begins with."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.SKIPPED_OFFSETS, queue_id)


def encode(passed_at_ms: int, ranges: Ranges) -> bytes:
    return pack_u64(passed_at_ms) + encode_ranges(ranges)


def decode(value: bytes) -> tuple[int, Ranges]:
    """When that was, and the offsets."""
    reader = ValueReader(NAME, value)
    passed_at_ms = reader.u64("passed_at")
    ranges = read_ranges(reader, NAME, "ranges")
    reader.finish()
    return passed_at_ms, ranges
