"""Journal state, type 1f: how much of the journal the database holds.

    key    01 1f (there is one)
    value  database u64LE ‖ sequence u64LE ‖ checksum u32LE

Written in every batch the journal hands over, with the sequence number and checksum of the last commit in
it: replay starts behind that. `database` is a random number that the journal's files bear, too: they belong
together. There is none in a database that has no journal (`storage.journal`).
"""

import struct
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader
from storage.errors import CorruptRecord

NAME: Final = "journal state"
PREFIX: Final = layout.record_prefix(layout.JOURNAL_STATE)
KEY: Final = PREFIX

_VALUE: Final = struct.Struct("<QQI")


class JournalState(NamedTuple):
    """Which journal it is, and the last commit of it that the database holds."""

    database_id: int
    sequence: int
    checksum: int


def key() -> bytes:
    return KEY


def parse_key(raw: bytes) -> None:
    """Raises CorruptRecord unless this is the key."""
    KeyReader(NAME, raw, PREFIX).finish()


def prefix() -> bytes:
    """The key: there is one."""
    return PREFIX


def encode(state: JournalState) -> bytes:
    return _VALUE.pack(*state)


def decode(value: bytes) -> JournalState:
    if len(value) != _VALUE.size:
        raise CorruptRecord(NAME, "end", f"{len(value)} bytes")
    return JournalState(*_VALUE.unpack(value))
