"""Values of filter log entries (2d): the messages that one commit added to a filter log, bodies and all.
Packed by hand: one is written with each commit.

    entry (2d)  count u32, body_bytes u32, last_delta u32, first_count u64, first_bytes u64, messages
    message     delta u32, flags u8, publisher u64, envelope VarBytes, body VarBytes

`count` messages have bodies of `body_bytes` in all. `delta` is a message's ID less that of the first,
`last_delta` that of the last. `first_count` and `first_bytes` are what the log got before. Bits 0-1 of
`flags` are the QoS of the publish, bit 2 RETAIN. `publisher` is the number of the session it came from,
`ff...ff` for none. The offset in the envelope is 0: the place of a message is its ID.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from storage.encoding import U64_MAX, pack_u32
from storage.envelope import EnvelopeTemplate, TemplateCache, read_head
from storage.errors import CorruptRecord, FormatTooNew

NO_PUBLISHER: Final = U64_MAX
RETAIN: Final = 4
QOS: Final = 3

_NAME: Final = "filter log entry"
_HEAD: Final = struct.Struct("<IIIQQ")
_MESSAGE: Final = struct.Struct("<IBQI")
_pack_message: Final = struct.Struct("<IBQI2sQq").pack
_ENVELOPE_HEAD_BYTES: Final = 18


class EntryHead(NamedTuple):
    """The head, before the messages."""

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


def encode_entry(first_count: int, first_bytes: int, messages: Sequence[Kept]) -> bytes:
    """Encode an entry of at least one message, in rising order of IDs."""
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


def decode_entry_head(value: bytes) -> EntryHead:
    """Decode only the head, before the messages."""
    if len(value) < _HEAD.size:
        raise CorruptRecord(_NAME, "head", "truncated")
    return EntryHead(*_HEAD.unpack_from(value))


def decode_entry(first_id: int, value: bytes, templates: TemplateCache) -> list[Kept]:
    """Decode the messages of an entry; raises CorruptRecord, or FormatTooNew for flags that this program does
    not know.
    """
    head = decode_entry_head(value)
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
        raise CorruptRecord(_NAME, "message", "truncated") from error
    if position != len(value):
        raise CorruptRecord(_NAME, "end", f"{len(value) - position} bytes too many or too few")
    if all_flags & ~(QOS | RETAIN):
        raise FormatTooNew(f"{_NAME}: flags {all_flags:#04x}")
    return messages


def with_publishers(value: bytes, rename: Callable[[int], int]) -> bytes:
    """Return an entry in which sessions that published have other numbers. Raises CorruptRecord."""
    changed = bytearray(value)
    position = _HEAD.size
    try:
        for _ in range(decode_entry_head(value).message_count):
            delta, flags, publisher, size = _MESSAGE.unpack_from(value, position)
            if publisher != NO_PUBLISHER:
                _MESSAGE.pack_into(changed, position, delta, flags, rename(publisher), size)
            position += _MESSAGE.size + size
            position += 4 + int.from_bytes(value[position : position + 4], "little")
    except struct.error as error:
        raise CorruptRecord(_NAME, "message", "truncated") from error
    if position != len(value):
        raise CorruptRecord(_NAME, "end", f"{len(value) - position} bytes too many or too few")
    return bytes(changed)
