"""Received publish, type 2b: a publish of QoS 2 that was taken and that the client has not released yet.

    key    01 2b ‖ session u64BE ‖ packet u16BE
    value  received_at i64LE

Written with the message; deleted, durably, before PUBCOMP says so: from then on the client uses the packet
identifier for another message.
"""

from typing import Final

from storage import layout
from storage.encoding import KeyReader, ValueReader, pack_i64, pack_u64_key

NAME: Final = "received publish"
PREFIX: Final = layout.record_prefix(layout.SESSION_RECEIVED)


def key(session: int, packet_id: int) -> bytes:
    return PREFIX + pack_u64_key(session) + packet_id.to_bytes(2, "big")


def parse_key(raw: bytes) -> tuple[int, int]:
    """Session and packet identifier."""
    reader = KeyReader(NAME, raw, PREFIX)
    found = reader.u64("session"), reader.u16("packet")
    reader.finish()
    return found


def prefix() -> bytes:
    """What every key of this type begins with."""
    return PREFIX


def encode(received_at_ms: int) -> bytes:
    return pack_i64(received_at_ms)


def decode(value: bytes) -> int:
    """When it was received."""
    reader = ValueReader(NAME, value)
    received_at_ms = reader.i64("received_at")
    reader.finish()
    return received_at_ms
