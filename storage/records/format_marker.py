"""Format marker, type 0f: says what the database is, before anything else in it is believed.

    key    01 0f (there is one)
    value  version u16LE = 1 or 2 ‖ name Utf8 = "sluicemq"

Written when a database is created and verified whenever it is opened. The version rises when an existing
key's layout changes; new record types and fields do not need it. 2 says that the journal beside the
database may hold confirmed commits which the database does not (`storage.journal`), so that programs which
know nothing of it keep away; without a journal it is 1.
"""

from typing import Final

from storage import layout
from storage.encoding import KeyReader, ValueReader, encode_utf8, pack_u16
from storage.errors import CorruptRecord, FormatTooNew

NAME: Final = "format marker"
PREFIX: Final = layout.record_prefix(layout.FORMAT)
KEY: Final = PREFIX
PLAIN_VERSION: Final = 1
JOURNALED_VERSION: Final = 2
FORMAT_VERSION: Final = JOURNALED_VERSION
FORMAT_NAME: Final = "sluicemq"


def key() -> bytes:
    return KEY


def parse_key(raw: bytes) -> None:
    """Raises CorruptRecord unless this is the key."""
    KeyReader(NAME, raw, PREFIX).finish()


def prefix() -> bytes:
    """The key: there is one."""
    return PREFIX


def encode(version: int = PLAIN_VERSION) -> bytes:
    return pack_u16(version) + encode_utf8(FORMAT_NAME)


def decode(value: bytes) -> int:
    """The format version, which is one this program reads; raises FormatTooNew or CorruptRecord otherwise."""
    reader = ValueReader(NAME, value)
    version = reader.u16("version")
    if version > FORMAT_VERSION:
        # nothing after the version is known to mean what it does today
        raise FormatTooNew(f"database format {version}; this program reads up to {FORMAT_VERSION}")
    name = reader.utf8("name")
    reader.finish()
    if name != FORMAT_NAME:
        raise CorruptRecord(NAME, "name", repr(name))
    if version < 1:
        raise CorruptRecord(NAME, "version", str(version))
    return version
