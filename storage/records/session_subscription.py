"""Subscription of a session, type 29.

    key    01 29 ‖ session u64BE ‖ topic filter raw, as it was subscribed to (`$share/...` and all)
    value  log u64LE ‖ options u8 ‖ identifier u32LE ‖ from_id u64LE ‖ read_count u64LE ‖ read_bytes u64LE ‖
           properties VarBytes

`log` is the filter log (`2c`) that keeps the session's messages; `ff...ff`: none does. `options` is the
byte of the SUBSCRIBE (bits 0-1 QoS, 2 no local, 3 retain as published, 4-5 retain handling), `identifier`
the subscription identifier, 0 for none. Messages with IDs below `from_id` are not the session's.
`properties` are the user properties of the SUBSCRIBE as an MQTT 5 property block: what a subscription to a
queue asks for. Of what the log ever got, `read_count` messages with `read_bytes` of body came before what the
session has yet to read.
"""

import struct
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import U64_MAX, KeyReader, ValueReader, encode_var_bytes, pack_u64_key
from storage.errors import FormatTooNew

NAME: Final = "session subscription"
PREFIX: Final = layout.record_prefix(layout.SESSION_SUBSCRIPTION)
NO_LOG: Final = U64_MAX
OPTIONS: Final = 0x3F
_pack: Final = struct.Struct("<QBIQQQ").pack


class SubscriptionValue(NamedTuple):
    """What was subscribed to a filter, and how."""

    log: int
    options: int
    identifier: int
    from_id: int
    read_count: int
    read_bytes: int
    properties: bytes


def key(session: int, topic_filter: str) -> bytes:
    return PREFIX + pack_u64_key(session) + topic_filter.encode()


def parse_key(raw: bytes) -> tuple[int, str]:
    """Session and topic filter."""
    reader = KeyReader(NAME, raw, PREFIX)
    return reader.u64("session"), reader.rest_text("filter")


def prefix() -> bytes:
    """What every key of this type begins with."""
    return PREFIX


def encode(subscription: SubscriptionValue) -> bytes:
    return _pack(*subscription[:-1]) + encode_var_bytes(subscription.properties)


def decode(value: bytes) -> SubscriptionValue:
    """Read one; raises CorruptRecord, or FormatTooNew for options that this program does not know."""
    reader = ValueReader(NAME, value)
    subscription = SubscriptionValue(
        reader.u64("log"),
        reader.u8("options"),
        reader.u32("identifier"),
        reader.u64("from_id"),
        reader.u64("read_count"),
        reader.u64("read_bytes"),
        reader.var_bytes("properties"),
    )
    reader.finish()
    if subscription.options & ~OPTIONS:
        raise FormatTooNew(f"{NAME}: options {subscription.options:#04x}")
    return subscription
