"""Exchange, type 1a: a durable exchange that was declared.

    key    01 1a ‖ exchange name raw (no terminator: it is the last field)
    value  type Utf8 ‖ flags u8 ‖ arguments, a table (see `storage.values`)

Flags: 01 auto-delete, 02 internal. The exchanges that are there in every virtual host have no record.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, encode_utf8
from storage.errors import FormatTooNew
from storage.values import encode_table, read_table

NAME: Final = "exchange"
PREFIX: Final = layout.record_prefix(layout.EXCHANGE)
AUTO_DELETE: Final = 0x01
INTERNAL: Final = 0x02


class StoredExchange(NamedTuple):
    """What was declared."""

    type: str
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, object]


def key(name: str) -> bytes:
    return PREFIX + name.encode()


def parse_key(raw: bytes) -> str:
    """The exchange's name."""
    return KeyReader(NAME, raw, PREFIX).rest_text("name")


def encode(exchange: StoredExchange) -> bytes:
    flags = exchange.auto_delete * AUTO_DELETE | exchange.internal * INTERNAL
    return encode_utf8(exchange.type) + bytes((flags,)) + encode_table(exchange.arguments)


def decode(value: bytes) -> StoredExchange:
    """Read one; raises CorruptRecord, or FormatTooNew for flags that this program does not know."""
    reader = ValueReader(NAME, value)
    kind = reader.utf8("type")
    flags = reader.u8("flags")
    if flags & ~(AUTO_DELETE | INTERNAL):
        raise FormatTooNew(f"{NAME}: flags {flags:#04x}")
    arguments = read_table(reader)
    reader.finish()
    return StoredExchange(kind, bool(flags & AUTO_DELETE), bool(flags & INTERNAL), arguments)
