"""Holder, type 20: which broker has a database in an object store open.

    key    01 20 (there is one)
    value  token u64LE ‖ beat u64LE ‖ pid u32LE ‖ host Utf8

`token` is a random number of each opening, `beat` rises every few seconds while the broker runs. Deleted when
it stops; that of a broker that was killed stands still. There is none in a database on a local disk: that is
locked.
"""

import struct
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, encode_utf8

NAME: Final = "holder"
PREFIX: Final = layout.record_prefix(layout.HOLDER)
KEY: Final = PREFIX

_NUMBERS: Final = struct.Struct("<QQI")


class Holder(NamedTuple):
    """One opening of the database by a process, as of one beat."""

    token: int
    beat: int
    pid: int
    host: str

    def describe(self) -> str:
        """The process, in words."""
        return f"process {self.pid} on {self.host}"


def key() -> bytes:
    return KEY


def parse_key(raw: bytes) -> None:
    """Raises CorruptRecord unless this is the key."""
    KeyReader(NAME, raw, PREFIX).finish()


def prefix() -> bytes:
    """The key: there is one."""
    return PREFIX


def encode(holder: Holder) -> bytes:
    return _NUMBERS.pack(holder.token, holder.beat, holder.pid) + encode_utf8(holder.host)


def decode(value: bytes) -> Holder:
    reader = ValueReader(NAME, value)
    token, beat, pid, host = reader.u64("token"), reader.u64("beat"), reader.u32("pid"), reader.utf8("host")
    reader.finish()
    return Holder(token, beat, pid, host)
