"""Entry of a filter log, type 2d: the messages that one commit added to it, bodies and all.

    key    01 2d ‖ log u64BE ‖ first message u64BE
    value  count u32LE ‖ body_bytes u32LE ‖ last_delta u32LE ‖ first_count u64LE ‖ first_bytes u64LE ‖ …
    message  delta u32LE ‖ flags u8 ‖ publisher u64LE ‖ envelope VarBytes ‖ body VarBytes

There are `count` messages with bodies of `body_bytes` in all. `delta` is a message's ID less that of the
first, `last_delta` that of the last. `first_count` and `first_bytes`: so many messages, and bytes of body,
the log ever got before this entry. Flags: bits 0-1 the QoS it was published with, bit 2 RETAIN. `publisher`
is the number of the session that published it, `ff...ff` if none did. The envelope's offset is 0: the place
of a message in a filter log is its ID.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import U64_MAX, KeyReader, pack_u32, pack_u64_key
from storage.envelope import EnvelopeTemplate, TemplateCache, read_head
from storage.errors import CorruptRecord, FormatTooNew

NAME: Final = "filter log entry"
PREFIX: Final = layout.record_prefix(layout.FILTER_LOG_ENTRY)
NO_PUBLISHER: Final = U64_MAX
RETAIN: Final = 4
QOS: Final = 3

_HEAD: Final = struct.Struct("<IIIQQ")
_MESSAGE: Final = struct.Struct("<IBQI")
_pack_message: Final = struct.Struct("<IBQI2sQq").pack
_ENVELOPE_HEAD_BYTES: Final = 18


class EntryHead(NamedTuple):
    """What stands before the messages."""

    message_count: int
    body_bytes: int
    last_delta: int
    first_count: int
    first_bytes: int


class Kept(NamedTuple):
    """A message of a filter log; `flags` and `publisher` as above."""

    message_id: int
    flags: int
    publisher: int
    template: EnvelopeTemplate
    received_at_ms: int
    body: bytes

    @property
    def qos(self) -> int:
        """Of the publish."""
        return self.flags & QOS


def key(log: int, first_id: int) -> bytes:
    return prefix(log) + pack_u64_key(first_id)


def parse_key(raw: bytes) -> tuple[int, int]:
    """Log and first message."""
    reader = KeyReader(NAME, raw, PREFIX)
    found = reader.u64("log"), reader.u64("first message")
    reader.finish()
    return found


def prefix(log: int | None = None) -> bytes:
    """What the keys of one log's entries (or of all) begin with, oldest first."""
    return PREFIX if log is None else PREFIX + pack_u64_key(log)


def encode(first_count: int, first_bytes: int, messages: Sequence[Kept]) -> bytes:
    """An entry of at least one message, in rising order of IDs."""
    first_id = messages[0].message_id
    body_bytes = sum([len(message.body) for message in messages])
    last_delta = messages[-1].message_id - first_id
    parts = [_HEAD.pack(len(messages), body_bytes, last_delta, first_count, first_bytes)]
    for message in messages:
        template = message.template
        suffix = template.suffix
        parts += (
            _pack_message(
                message.message_id - first_id,
                message.flags,
                message.publisher,
                _ENVELOPE_HEAD_BYTES + len(suffix),
                template.head,
                0,
                message.received_at_ms,
            ),
            suffix,
            pack_u32(len(message.body)),
            message.body,
        )
    return b"".join(parts)


def decode_head(value: bytes) -> EntryHead:
    """Only what stands before the messages."""
    if len(value) < _HEAD.size:
        raise CorruptRecord(NAME, "head", "truncated")
    return EntryHead(*_HEAD.unpack_from(value))


def decode(first_id: int, value: bytes, templates: TemplateCache) -> list[Kept]:
    """The messages of an entry; raises CorruptRecord, or FormatTooNew for flags that this program does not
    know.
    """
    head = decode_head(value)
    position = _HEAD.size
    messages = []
    all_flags = 0
    try:
        for _ in range(head.message_count):
            delta, flags, publisher, size = _MESSAGE.unpack_from(value, position)
            position += _MESSAGE.size
            all_flags |= flags
            envelope = value[position : position + size]
            _, _, received_at_ms = read_head(envelope)
            position += size + 4
            body_bytes = int.from_bytes(value[position - 4 : position], "little")
            body = value[position : position + body_bytes]
            position += body_bytes
            template = templates.find(envelope)
            messages.append(Kept(first_id + delta, flags, publisher, template, received_at_ms, body))
    except struct.error as error:
        raise CorruptRecord(NAME, "message", "truncated") from error
    if position != len(value):
        raise CorruptRecord(NAME, "end", f"{len(value) - position} bytes too many or too few")
    if all_flags & ~(QOS | RETAIN):
        raise FormatTooNew(f"{NAME}: flags {all_flags:#04x}")
    return messages
