"""Released offsets, type 1e: offsets of a queue that were let go of while older ones are still kept.

    key    01 1e ‖ queue name raw (no terminator: it is the last field)
    value  Ranges: u32 count ‖ count × (start u64 ‖ end u64), half-open, in order

Usually a restart works them out of what the groups have done. Written where that will not do: when a group
begins before them, or the last group goes; written again without what a redrive brings back; deleted once
the head of the queue's log has passed them.
"""

from typing import Final

from storage import layout
from storage.encoding import KeyReader, ValueReader
from storage.ranges import Ranges, encode_ranges, read_ranges

NAME: Final = "released offsets"
PREFIX: Final = layout.record_prefix(layout.RELEASED_OFFSETS)


def key(queue_name: str) -> bytes:
    return PREFIX + queue_name.encode()


def parse_key(raw: bytes) -> str:
    """The queue's name."""
    return KeyReader(NAME, raw, PREFIX).rest_text("queue_name")


def prefix() -> bytes:
    """What every key of this type begins with."""
    return PREFIX


def encode(ranges: Ranges) -> bytes:
    return encode_ranges(ranges)


def decode(value: bytes) -> Ranges:
    reader = ValueReader(NAME, value)
    ranges = read_ranges(reader, NAME, "ranges")
    reader.finish()
    return ranges
