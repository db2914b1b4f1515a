"""Virtual host, type 22: one that was made by administration.

    key    01 22 ‖ name raw (no terminator: it is the last field)
    value  flags u8 ‖ connections_max u32LE ‖ queues_max u32LE

Flags: 01 it is being deleted, with all that is in it. The limits are 0 where there is none. `/`, and virtual
hosts that only stand in the configuration, have no record.
"""

from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, pack_u32
from storage.errors import FormatTooNew

NAME: Final = "virtual host"
PREFIX: Final = layout.record_prefix(layout.VHOST)
BEING_DELETED: Final = 0x01


class StoredVhost(NamedTuple):
    """What is kept of a virtual host."""

    connections_max: int
    queues_max: int
    is_being_deleted: bool = False


def key(name: str) -> bytes:
    return PREFIX + name.encode()


def parse_key(raw: bytes) -> str:
    """The name of the virtual host."""
    return KeyReader(NAME, raw, PREFIX).rest_text("name")


def encode(vhost: StoredVhost) -> bytes:
    flags = BEING_DELETED if vhost.is_being_deleted else 0
    return bytes((flags,)) + pack_u32(vhost.connections_max) + pack_u32(vhost.queues_max)


def decode(value: bytes) -> StoredVhost:
    """Read one; raises CorruptRecord, or FormatTooNew for flags that this program does not know."""
    reader = ValueReader(NAME, value)
    flags = reader.u8("flags")
    if flags & ~BEING_DELETED:
        raise FormatTooNew(f"{NAME}: flags {flags:#04x}")
    connections_max = reader.u32("connections_max")
    queues_max = reader.u32("queues_max")
    reader.finish()
    return StoredVhost(connections_max, queues_max, bool(flags & BEING_DELETED))
