"""Attempts, type 05: who claimed a message and when, oldest first.

    key    01 05 ‖ TB(queue) ‖ message_id u64BE
    value  Array of: claimed_at i64LE (ms since the Unix epoch) ‖ consumer_id Utf8

Written when an attempt ends without success; the claim of a message in flight is in its active record.
"""

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, encode_array, encode_utf8, pack_u64_key

NAME: Final = "attempts"
PREFIX: Final = layout.record_prefix(layout.ATTEMPTS)

_pack_i64: Final = struct.Struct("<q").pack


_encode_consumer: Final = lru_cache(1_024)(encode_utf8)
"""A consumer that leaves takes part in very many attempts."""


class Attempt(NamedTuple):
    """One claim of a message."""

    claimed_at_ms: int
    consumer_id: str


def key(queue_id: str, message_id: int) -> bytes:
    return layout.queue_prefix(layout.ATTEMPTS, queue_id) + pack_u64_key(message_id)


def key_after(prefix: bytes, message_id: int) -> bytes:
    """As `key`, by what `prefix` gives for the queue."""
    return prefix + pack_u64_key(message_id)


def parse_key(raw: bytes) -> tuple[str, int]:
    """The (queue ID, message ID)."""
    reader = KeyReader(NAME, raw, PREFIX)
    queue_id = reader.terminated_text("queue_id")
    message_id = reader.u64("message_id")
    reader.finish()
    return queue_id, message_id


def prefix(queue_id: str | None = None) -> bytes:
    """What the keys of one queue's attempts (or of all queues') begin with."""
    return PREFIX if queue_id is None else layout.queue_prefix(layout.ATTEMPTS, queue_id)


def pack_attempt(claimed_at_ms: int, consumer_id: str) -> bytes:
    """One element of the array."""
    return _pack_i64(claimed_at_ms) + _encode_consumer(consumer_id)


def encode(attempts: Iterable[tuple[int, str]]) -> bytes:
    """Attempts in the order they were made, as `Attempt` or equal tuples."""
    return encode_array([pack_attempt(*attempt) for attempt in attempts])


def decode(value: bytes) -> list[Attempt]:
    reader = ValueReader(NAME, value)
    count = reader.u16("count")
    attempts = [Attempt(reader.i64("claimed_at"), reader.utf8("consumer_id")) for _ in range(count)]
    reader.finish()
    return attempts
