"""Will, type 2f: what is published for a session's client if it does not come back in time.

    key    01 2f ‖ session u64BE
    value  due_at i64LE ‖ delay_s u32LE ‖ first_byte u8 ‖ client_id Utf8 ‖ user Utf8 ‖ topic Utf8 ‖
           properties VarBytes ‖ payload VarBytes ‖ source Utf8

`due_at`: -1 while the client is connected. `first_byte` is that of the PUBLISH it becomes, with QoS and
RETAIN; `properties` are a property block of MQTT 5 without its length. `source`: what vouched for the
user; a record may end before it. Only wills with a delay, of sessions that outlive their connection, are
stored. Deleted in the commit with the publish, or when the client is back.
"""

import struct
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, encode_utf8, encode_var_bytes, pack_u64_key

NAME: Final = "will"
PREFIX: Final = layout.record_prefix(layout.SESSION_WILL)
CONNECTED: Final = -1
_pack: Final = struct.Struct("<qIB").pack


class WillValue(NamedTuple):
    """One will. `source` "": it is not known."""

    due_at_ms: int
    delay_s: int
    first_byte: int
    client_id: str
    user: str
    topic: str
    properties: bytes
    payload: bytes
    source: str


def key(session: int) -> bytes:
    return PREFIX + pack_u64_key(session)


def parse_key(raw: bytes) -> int:
    """The session."""
    reader = KeyReader(NAME, raw, PREFIX)
    session = reader.u64("session")
    reader.finish()
    return session


def prefix() -> bytes:
    """What every key of this type begins with."""
    return PREFIX


def encode(will: WillValue) -> bytes:
    texts = b"".join(map(encode_utf8, (will.client_id, will.user, will.topic)))
    head = _pack(will.due_at_ms, will.delay_s, will.first_byte)
    blocks = encode_var_bytes(will.properties) + encode_var_bytes(will.payload)
    return b"".join((head, texts, blocks, encode_utf8(will.source)))


def decode(raw: bytes) -> WillValue:
    reader = ValueReader(NAME, raw)
    will = WillValue(
        reader.i64("due_at"),
        reader.u32("delay"),
        reader.u8("first_byte"),
        reader.utf8("client_id"),
        reader.utf8("user"),
        reader.utf8("topic"),
        reader.var_bytes("properties"),
        reader.var_bytes("payload"),
        "" if reader.at_end() else reader.utf8("source"),
    )
    reader.finish()
    return will
