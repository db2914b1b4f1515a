"""Retained message, type 2e: the last message of an MQTT topic that was published with RETAIN.

    key    01 2e ‖ topic raw (no terminator: it is the last field)
    value  qos u8 ‖ envelope VarBytes ‖ body VarBytes

The envelope's offset is 0. Deleted by an empty payload, and when the message expires.
"""

from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, encode_var_bytes

NAME: Final = "retained message"
PREFIX: Final = layout.record_prefix(layout.RETAINED)


class RetainedValue(NamedTuple):
    """What is retained; the topic stands in the envelope, too."""

    qos: int
    envelope: bytes
    body: bytes


def key(topic: str) -> bytes:
    return PREFIX + topic.encode()


def parse_key(raw: bytes) -> str:
    """The topic."""
    return KeyReader(NAME, raw, PREFIX).rest_text("topic")


def prefix() -> bytes:
    """What every key of this type begins with."""
    return PREFIX


def encode(value: RetainedValue) -> bytes:
    return bytes((value.qos,)) + encode_var_bytes(value.envelope) + encode_var_bytes(value.body)


def decode(raw: bytes) -> RetainedValue:
    reader = ValueReader(NAME, raw)
    value = RetainedValue(reader.u8("qos"), reader.var_bytes("envelope"), reader.var_bytes("body"))
    reader.finish()
    return value
