"""Session, type 28: an MQTT session that outlives its connection.

    key    01 28 ‖ [virtual host ‖ 1d] client identifier raw (no terminator: it is the last field)
    value  number u64LE ‖ expiry_s u32LE ‖ ended_at i64LE ‖ user Utf8

In `/` there is the client identifier alone. `number` is what the other records of the session are stored
under; a client identifier gets a new one with every new session. `expiry_s` `ff ff ff ff`: the session never
expires. `ended_at`: when its connection ended, -1 while it has one. `user`: whose it is.
"""

import struct
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, encode_utf8

NAME: Final = "session"
PREFIX: Final = layout.record_prefix(layout.SESSION)
NEVER_S: Final = 0xFFFF_FFFF
CONNECTED: Final = -1
_pack: Final = struct.Struct("<QIq").pack


class SessionValue(NamedTuple):
    """One session."""

    number: int
    expiry_s: int
    ended_at_ms: int
    user: str


def key(client_id: str) -> bytes:
    return PREFIX + client_id.encode()


def parse_key(raw: bytes) -> str:
    """The client identifier."""
    return KeyReader(NAME, raw, PREFIX).rest_text("client_id")


def prefix() -> bytes:
    """What every key of this type begins with."""
    return PREFIX


def encode(session: SessionValue) -> bytes:
    return _pack(*session[:-1]) + encode_utf8(session.user)


def decode(value: bytes) -> SessionValue:
    reader = ValueReader(NAME, value)
    session = SessionValue(
        reader.u64("number"), reader.u32("expiry"), reader.i64("ended_at"), reader.utf8("user")
    )
    reader.finish()
    return session
