"""Done messages, type 03: messages of one bucket that a consumer has acknowledged.

key    01 03 ‖ TB(queue) ‖ bucket_id u64BE
value  see `storage.records.settled`; settled_at is when the message was done
"""

from typing import Final

from storage import layout
from storage.encoding import KeyReader
from storage.records.settled import SettledMessage, decode_as, encode, encode_packed
from storage.records.settled import pack_settled as pack_done

__all__ = [
    "NAME",
    "PREFIX",
    "SettledMessage",
    "decode",
    "encode",
    "encode_packed",
    "key",
    "pack_done",
    "parse_key",
    "prefix",
]

NAME: Final = "done"
PREFIX: Final = layout.record_prefix(layout.DONE)


def key(queue_id: str, bucket_id: int) -> bytes:
    return layout.bucket_key(layout.DONE, queue_id, bucket_id)


def parse_key(raw: bytes) -> tuple[str, int]:
    """The (queue ID, bucket ID)."""
    return KeyReader(NAME, raw, PREFIX).bucket()


def prefix(queue_id: str | None = None) -> bytes:
    """What the keys of one queue's buckets (or of all queues') begin with."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.DONE, queue_id)


def decode(value: bytes) -> list[SettledMessage]:
    """The messages of a bucket."""
    return decode_as(NAME, value)
