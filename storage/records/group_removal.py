"""GroupRemoval, type 1c: a consumer group was deleted or reset, and what only it kept is still being let go
of.

    key    01 1c ‖ TB(queue ID of the group) ‖ number u64BE
    value  log_id Utf8 ‖ mode u8 ‖ claim_end u64 ‖ failed_below u64 ‖ head u64 ‖
           log_ranges Ranges ‖ row_ranges Ranges (as in `storage.ranges`)

Written with the change itself, written again without what was let go of in the same commit, and deleted with
the last of it; so a crash in between leaves nothing behind and lets go of nothing twice. `number` is a
message ID that no message gets: no two removals have the same.

mode 0: only payloads go, those of `log_ranges`, which the queue's log tells. 1 and 2: besides, the group's
buckets of claim numbers below `claim_end` go; a later life of the group begins at that number. 1 (deleted):
with the payloads of `row_ranges`, which the buckets tell. 2 (reset): failed messages below offset
`failed_below` stay, and with the other rows goes the payload of what lies below offset `head`: it was
redriven.
"""

import struct
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, encode_utf8, pack_u64_key
from storage.errors import FormatTooNew
from storage.ranges import Ranges, encode_ranges, read_ranges

NAME: Final = "group removal"
PREFIX: Final = layout.record_prefix(layout.GROUP_REMOVAL)

RELEASE: Final = 0
DELETE: Final = 1
RESET: Final = 2

_FIXED: Final = struct.Struct("<BQQQ")


class PendingGroupRemoval(NamedTuple):
    """The value of a record."""

    log_id: str
    mode: int
    claim_end: int
    failed_below: int
    head: int
    log_ranges: Ranges
    row_ranges: Ranges


class Key(NamedTuple):
    """The parts of a key."""

    queue_id: str
    number: int


def key(queue_id: str, number: int) -> bytes:
    return prefix(queue_id) + pack_u64_key(number)


def parse_key(raw: bytes) -> Key:
    reader = KeyReader(NAME, raw, PREFIX)
    parsed = Key(reader.terminated_text("queue_id"), reader.u64("number"))
    reader.finish()
    return parsed


def prefix(queue_id: str) -> bytes:
    """What the keys of one group's removals begin with."""
    return layout.queue_prefix(layout.GROUP_REMOVAL, queue_id)


def encode(removal: PendingGroupRemoval) -> bytes:
    return b"".join(
        (
            encode_utf8(removal.log_id),
            _FIXED.pack(removal.mode, removal.claim_end, removal.failed_below, removal.head),
            encode_ranges(removal.log_ranges),
            encode_ranges(removal.row_ranges),
        )
    )


def decode(value: bytes) -> PendingGroupRemoval:
    """Read one; raises CorruptRecord, or FormatTooNew for a mode that this program does not know."""
    reader = ValueReader(NAME, value)
    log_id = reader.utf8("log_id")
    mode = reader.u8("mode")
    if mode > RESET:
        raise FormatTooNew(f"{NAME}: mode {mode}")
    removal = PendingGroupRemoval(
        log_id,
        mode,
        claim_end=reader.u64("claim_end"),
        failed_below=reader.u64("failed_below"),
        head=reader.u64("head"),
        log_ranges=read_ranges(reader, NAME, "log_ranges"),
        row_ranges=read_ranges(reader, NAME, "row_ranges"),
    )
    reader.finish()
    return removal
