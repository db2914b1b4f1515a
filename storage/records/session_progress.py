"""Progress of a session, type 2a: what it has been sent and has not finished.

    key    01 2a ‖ session u64BE
    value  read_to u64LE ‖ Array of (message u64LE ‖ packet u16LE ‖ state u8)

Everything of the session's with an ID below `read_to` is done, but for the messages in the array, which are
in rising order. States: 1 sent with QoS 1, 2 sent with QoS 2, 3 sent with QoS 2 and PUBREC seen. Written
before a message of QoS 2 is sent and before PUBREL is; otherwise now and then, as a message sent twice with
QoS 1 is no harm.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, encode_array, pack_u64, pack_u64_key

NAME: Final = "session progress"
PREFIX: Final = layout.record_prefix(layout.SESSION_PROGRESS)
SENT_QOS_1: Final = 1
SENT_QOS_2: Final = 2
RECEIVED_QOS_2: Final = 3
_pack_sent: Final = struct.Struct("<QHB").pack


class Sent(NamedTuple):
    """A message that is not finished."""

    message_id: int
    packet_id: int
    state: int


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


def encode(read_to: int, sent: Iterable[Sent]) -> bytes:
    return join(read_to, [encode_sent(each) for each in sent])


def encode_sent(sent: Sent) -> bytes:
    """One element of the array."""
    return _pack_sent(*sent)


def join(read_to: int, sent: Iterable[bytes]) -> bytes:
    """The value with these elements, each from `encode_sent`."""
    return pack_u64(read_to) + encode_array(sent)


def decode(value: bytes) -> tuple[int, list[Sent]]:
    """`read_to`, and what is not finished."""
    reader = ValueReader(NAME, value)
    read_to = reader.u64("read_to")
    count = reader.u16("sent")
    sent = [Sent(reader.u64("message"), reader.u16("packet"), reader.u8("state")) for _ in range(count)]
    reader.finish()
    return read_to, sent
