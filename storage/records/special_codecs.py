"""Keys and values that a row of typed fields cannot say, but for the large ones, which have modules of their
own.

    format marker (0f)     version u16 = 1 to 3, name Utf8 = "sluicemq"
    attempts (05)          Array of (claimed_at i64, consumer_id Utf8), oldest first, the newest 32
    claimed bitmap (15)    512 bytes without zero bytes at the end; empty: every bit is set
    queue account (14) key queue_id TB, kind u8, [part u64: of kind 3]
    kinds 1, 2             next_offset u64, body_bytes i64
    kind 3                 Array of (start u16, end u16), from offset part * 4,096 on
    session progress (2a)  read_to u64, Array of (message u64, packet u16, state u8), messages rising

States are 1 for sent with QoS 1, 2 for sent with QoS 2, 3 for PUBREC seen.
"""

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from storage.encoding import (
    Reader,
    encode_array,
    encode_terminated,
    encode_utf8,
    pack_u16,
    pack_u32,
    pack_u64,
    pack_u64_key,
)
from storage.errors import CorruptRecord, FormatTooNew
from storage.records.fields import Codec, Field, KeyCodec

# format marker

PLAIN_VERSION: Final = 1
JOURNALED_VERSION: Final = 2
SEALED_VERSION: Final = 3
_FORMAT_NAME: Final = "sluicemq"


def _encode_format(version: int = PLAIN_VERSION) -> bytes:
    return pack_u16(version) + encode_utf8(_FORMAT_NAME)


def _read_format(reader: Reader) -> int:
    version = reader.u16("version")
    if version > SEALED_VERSION:
        # nothing after the version is known to mean what it does today
        raise FormatTooNew(f"database format {version}; this program reads up to {SEALED_VERSION}")
    name = reader.utf8("name")
    if name != _FORMAT_NAME:
        raise CorruptRecord(reader.record_type, "name", repr(name))
    if version < 1:
        raise CorruptRecord(reader.record_type, "version", str(version))
    return version


FORMAT: Final = Codec(_encode_format, _read_format)

# attempts

_pack_claimed_at: Final = struct.Struct("<q").pack
_pack_spared: Final = struct.Struct("<H").pack
_encode_consumer: Final = lru_cache(1_024)(encode_utf8)
"""A consumer that leaves takes part in very many attempts."""


class Attempt(NamedTuple):
    """One claim of a message."""

    claimed_at_ms: int
    consumer_id: str


class Attempts(NamedTuple):
    """The attempts that are known, and how many claims of all do not count as attempts."""

    made: list[Attempt]
    spared: int


def _encode_attempts(attempts: Iterable[tuple[int, str]], spared: int = 0) -> bytes:
    made = encode_array(
        [_pack_claimed_at(at_ms) + _encode_consumer(consumer) for at_ms, consumer in attempts]
    )
    return made + _pack_spared(spared) if spared else made


def _read_attempts(reader: Reader) -> Attempts:
    count = reader.u16("count")
    made = [Attempt(reader.i64("claimed_at"), reader.utf8("consumer_id")) for _ in range(count)]
    return Attempts(made, 0 if reader.at_end() else reader.u16("spared"))


ATTEMPTS: Final = Codec(_encode_attempts, _read_attempts)
"""`encode` takes attempts in the order they were made, and how many claims are spared."""

# claimed bitmap

CHUNK_BITS: Final = 12
CHUNK_OFFSETS: Final = 1 << CHUNK_BITS
CHUNK_BYTES: Final = CHUNK_OFFSETS // 8
EVERYTHING: Final = b"\xff" * CHUNK_BYTES


def _encode_bitmap(bitmap: bytes | bytearray) -> bytes:
    if bitmap == EVERYTHING:
        return b""
    value = bytes(bitmap).rstrip(b"\x00")
    if not value or len(bitmap) != CHUNK_BYTES:
        raise ValueError("a bitmap has CHUNK_BYTES bytes, and bits in them")
    return value


def _read_bitmap(reader: Reader) -> bytes:
    value = reader.rest()
    if not value:
        return EVERYTHING
    if len(value) > CHUNK_BYTES:
        raise CorruptRecord(reader.record_type, "bitmap", f"{len(value)} bytes")
    if not value[-1] or value == EVERYTHING:
        raise CorruptRecord(reader.record_type, "bitmap", "not in its shortest form")
    return value.ljust(CHUNK_BYTES, b"\x00")


BITMAP: Final = Codec(_encode_bitmap, _read_bitmap)
"""A bitmap of CHUNK_BYTES with at least one bit set."""

# queue account

APPENDED: Final = 1
TAKEN: Final = 2
EXPIRED: Final = 3
PART_OFFSETS: Final = 4_096


class AccountKey(NamedTuple):
    """Which account; `part` is 0 but for EXPIRED."""

    queue_id: str
    kind: int
    part: int


def _encode_account_key(queue_id: str, kind: int, part: int = 0) -> bytes:
    raw = encode_terminated(queue_id.encode()) + bytes((kind,))
    return raw + pack_u64_key(part) if kind == EXPIRED else raw


def _read_account_key(reader: Reader) -> AccountKey:
    queue_id = reader.terminated_text("queue_id")
    kind = reader.u8("kind")
    if kind not in (APPENDED, TAKEN, EXPIRED):
        raise FormatTooNew(f"{reader.record_type}: kind {kind}")
    part = int.from_bytes(reader.take(8, "part"), "big") if kind == EXPIRED else 0
    return AccountKey(queue_id, kind, part)


ACCOUNT_KEY: Final = KeyCodec(_encode_account_key, _read_account_key)


def _encode_expired(ranges: Sequence[tuple[int, int]]) -> bytes:
    return encode_array([pack_u16(start) + pack_u16(end) for start, end in ranges])


def _read_expired(reader: Reader) -> list[tuple[int, int]]:
    found = []
    last_end = -1
    for _ in range(reader.u16("count")):
        start, end = reader.u16("start"), reader.u16("end")
        if not last_end < start < end <= PART_OFFSETS:
            raise CorruptRecord(reader.record_type, "range", f"{start} to {end}")
        found.append((start, end))
        last_end = end
    return found


EXPIRED_OFFSETS: Final = Codec(_encode_expired, _read_expired)
"""Half-open ranges within a part, counted from its beginning."""

# the end of the key of a binding

BINDING_DIGEST_BYTES: Final = 16


def _read_binding_digest(reader: Reader, name: str) -> bytes:
    digest = reader.rest()
    if len(digest) not in (0, BINDING_DIGEST_BYTES):
        raise CorruptRecord(reader.record_type, name, f"{len(digest)} bytes")
    return digest


BINDING_DIGEST: Final = Field(bytes, _read_binding_digest)

# session progress

SENT_QOS_1: Final = 1
SENT_QOS_2: Final = 2
RECEIVED_QOS_2: Final = 3
_SENT: Final = struct.Struct("<QHB")


class Sent(NamedTuple):
    """A message that is not finished: sent with QoS 1, with QoS 2, or that and PUBREC seen."""

    message_id: int
    packet_id: int
    state: int


def pack_sent(sent: Sent) -> bytes:
    """Pack a message of a session's progress."""
    return _SENT.pack(*sent)


def _encode_progress(read_to: int, sent: Iterable[bytes]) -> bytes:
    return pack_u64(read_to) + encode_array(sent)


def _read_progress(reader: Reader) -> tuple[int, list[Sent]]:
    read_to = reader.u64("read_to")
    count = reader.u16("sent")
    return read_to, [Sent(*_SENT.unpack(reader.take(_SENT.size, "sent"))) for _ in range(count)]


PROGRESS: Final = Codec(_encode_progress, _read_progress)
"""`encode` takes `read_to` and packed messages in rising order."""

# written with every message that expires, of a producer that numbers its publishes, that is retained

_pack_expiring: Final = struct.Struct("<QI").pack
_pack_progress: Final = struct.Struct("<qQ8s").pack
_pack_refused: Final = struct.Struct("<qQ8sQ").pack
_pack_retained: Final = struct.Struct("<BI").pack


def encode_expiring(message_id: int, body_bytes: int, envelope: bytes) -> bytes:
    return _pack_expiring(message_id, body_bytes) + envelope


def encode_producer(sequence: int, seen_ms: int, digest: bytes, refused: int | None = None) -> bytes:
    if refused is None:
        return _pack_progress(sequence, seen_ms, digest)
    return _pack_refused(sequence, seen_ms, digest, refused)


def encode_retained(qos: int, envelope: bytes, body: bytes, user: str | None = None) -> bytes:
    by = b"" if user is None else encode_utf8(user)
    return b"".join((_pack_retained(qos, len(envelope)), envelope, pack_u32(len(body)), body, by))
