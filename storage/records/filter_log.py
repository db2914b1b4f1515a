"""Filter log, type 2c: the messages of a topic filter that sessions are subscribed to.

    key    01 2c ‖ log u64BE
    value  filter Utf8

One for each filter, however many sessions there are. It ends with the last of them: a log that no
subscription (`29`) names is removed, its entries (`2d`) first.
"""

from typing import Final

from storage import layout
from storage.encoding import KeyReader, ValueReader, encode_utf8, pack_u64_key

NAME: Final = "filter log"
PREFIX: Final = layout.record_prefix(layout.FILTER_LOG)


def key(log: int) -> bytes:
    return PREFIX + pack_u64_key(log)


def parse_key(raw: bytes) -> int:
    """The log."""
    reader = KeyReader(NAME, raw, PREFIX)
    log = reader.u64("log")
    reader.finish()
    return log


def prefix() -> bytes:
    """What every key of this type begins with."""
    return PREFIX


def encode(topic_filter: str) -> bytes:
    return encode_utf8(topic_filter)


def decode(value: bytes) -> str:
    """The topic filter."""
    reader = ValueReader(NAME, value)
    topic_filter = reader.utf8("filter")
    reader.finish()
    return topic_filter
