"""Expiry, type 12: when a message that expires by itself does so.

    key    01 12 ‖ TB(queue) ‖ expires_at u64BE ‖ offset u64BE
    value  message_id u64LE ‖ body_bytes u32LE ‖ envelope (`storage.envelope`)

Written with the message's log entry, only for messages with an expiry of their own. Deleted when the message
expires, or with its log entry: the envelope there tells the key. Written again if the last group is deleted
while it holds a message that expired meanwhile.
"""

from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, pack_u32, pack_u64, pack_u64_key

NAME: Final = "expiry"
PREFIX: Final = layout.record_prefix(layout.EXPIRY)
UNKNOWN_BYTES: Final = (1 << 32) - 1  # as `body_bytes`: the payload tells
_HEAD_BYTES: Final = 12


class ExpiryKey(NamedTuple):
    """Which message expires when, in which queue."""

    queue_id: str
    expires_at_ms: int
    offset: int


class ExpiringMessage(NamedTuple):
    """What giving the message up takes."""

    message_id: int
    body_bytes: int
    envelope: bytes


def key(queue_id: str, expires_at_ms: int, offset: int) -> bytes:
    return prefix(queue_id) + pack_u64_key(expires_at_ms) + pack_u64_key(offset)


def parse_key(raw: bytes) -> ExpiryKey:
    reader = KeyReader(NAME, raw, PREFIX)
    found = ExpiryKey(reader.terminated_text("queue_id"), reader.u64("expires_at"), reader.u64("offset"))
    reader.finish()
    return found


def prefix(queue_id: str | None = None) -> bytes:
    """What the keys of one queue's messages (or of all queues') begin with, in the order they expire."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.EXPIRY, queue_id)


def encode(message_id: int, body_bytes: int, envelope: bytes) -> bytes:
    return pack_u64(message_id) + pack_u32(body_bytes) + envelope


def decode(value: bytes) -> ExpiringMessage:
    reader = ValueReader(NAME, value)
    return ExpiringMessage(reader.u64("message_id"), reader.u32("body_bytes"), value[_HEAD_BYTES:])
