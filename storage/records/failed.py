"""Failed messages, type 04: messages of one bucket that were given up after too many attempts or a reject.

key    01 04 ‖ TB(queue) ‖ bucket_id u64BE
value  see `storage.records.settled`; settled_at is when the message was failed
"""

from typing import Final

from storage import layout
from storage.encoding import KeyReader
from storage.records.settled import SettledMessage, decode_as, encode, encode_packed
from storage.records.settled import pack_settled as pack_failed

__all__ = [
    "NAME",
    "PREFIX",
    "SettledMessage",
    "decode",
    "encode",
    "encode_packed",
    "key",
    "pack_failed",
    "parse_key",
    "prefix",
]

NAME: Final = "failed"
PREFIX: Final = layout.record_prefix(layout.FAILED)


def key(queue_id: str, bucket_id: int) -> bytes:
    return layout.bucket_key(layout.FAILED, queue_id, bucket_id)


def parse_key(raw: bytes) -> tuple[str, int]:
    """The (queue ID, bucket ID)."""
    return KeyReader(NAME, raw, PREFIX).bucket()


def prefix(queue_id: str | None = None) -> bytes:
    """What the keys of one queue's buckets (or of all queues') begin with."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.FAILED, queue_id)


def decode(value: bytes) -> list[SettledMessage]:
    """The messages of a bucket."""
    return decode_as(NAME, value)
