"""The metadata envelope: what the broker keeps of a message beside its payload.

The record layout calls it opaque metadata. Little-endian throughout; a field whose flag is clear is left
out and has its zero value:

    version u8 = 01 ‖ flags u8 ‖ offset u64 ‖ received_at i64 ‖ [visible_at i64] ‖ [expires_at i64] ‖
    [priority u8] ‖ topic Utf8 ‖ [exchange Utf8] ‖ [properties VarBytes, if their kind is not 0]

Offset and receipt time stand at fixed places and everything after them (the suffix) is equal for messages
published alike, so a run of them is made from one `EnvelopeTemplate`. All times are milliseconds since the
Unix epoch. All eight flags are taken: another field means another version.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final

from config import limits
from storage.encoding import ARRAY_COUNT_MAX, U64_MAX, encode_utf8, encode_var_bytes
from storage.errors import CorruptRecord, FormatTooNew

ENVELOPE_VERSION: Final = 0x01

HAS_VISIBLE_AT: Final = 0x01
HAS_EXPIRES_AT: Final = 0x02
HAS_PRIORITY: Final = 0x04
PERSISTENT: Final = 0x08
SHARED: Final = 0x10
PROPERTIES_KIND_SHIFT: Final = 5
HAS_EXCHANGE: Final = 0x80

RELATIVE_EXPIRY_MAX: Final = 1 << 40  # an expires_at below it counts from received_at; as a date: 2004

# what the properties bytes are
PROPERTIES_NONE: Final = 0
PROPERTIES_AMQP: Final = 1  # an AMQP 0.9.1 content header after the body size: property flags and list
PROPERTIES_MQTT: Final = 2  # an MQTT 5 PUBLISH property block without its length
PROPERTIES_AMQP10: Final = (
    3  # a message of AMQP 1.0 without what is its body: `broker.properties.amqp10_sections`
)

_HEAD: Final = struct.Struct("<BBQq")
_HEAD_BYTES: Final = _HEAD.size
_pack_head: Final = _HEAD.pack
_unpack_head: Final = _HEAD.unpack_from
_I64: Final = struct.Struct("<q")
_pack_i64: Final = _I64.pack
_unpack_i64: Final = _I64.unpack_from
_unpack_u32: Final = struct.Struct("<I").unpack_from
_pack_element: Final = struct.Struct("<QI2sQq").pack  # message ID, size and head of one metadata element
_OFFSET_IN_ELEMENT: Final = 14
_EVERY_BYTE: Final = bytes(range(256))
_HAS_ZEROABLE: Final = HAS_VISIBLE_AT | HAS_EXPIRES_AT | HAS_PRIORITY
_PROPERTIES_KIND_MASK: Final = 3 << PROPERTIES_KIND_SHIFT


SuffixFields = tuple[int, int, int, str, str, bytes]
"""visible_at_ms, expires_at_ms, priority, topic, exchange, properties"""


class EnvelopeTemplate:
    """Everything of an envelope but offset and receipt time; made once for many messages published alike.

    `topic` is the MQTT topic or the AMQP routing key. `visible_at_ms` 0 means at once, `expires_at_ms` 0
    never, below `RELATIVE_EXPIRY_MAX` so long after the receipt. `properties` must be empty if their kind is
    `PROPERTIES_NONE`. `persistent`: published with QoS > 0 or delivery mode 2. `shared`: the payload has a
    reference count record. `exchange` is "" for MQTT and the default exchange. `context` belongs to the
    caller.
    """

    __slots__ = (
        "context",
        "exchange",
        "expires_at_ms",
        "flags",
        "head",
        "persistent",
        "priority",
        "properties",
        "properties_kind",
        "shared",
        "suffix",
        "topic",
        "visible_at_ms",
    )

    def __init__(
        self,
        topic: str,
        properties_kind: int = PROPERTIES_NONE,
        properties: bytes = b"",
        *,
        priority: int = 0,
        visible_at_ms: int = 0,
        expires_at_ms: int = 0,
        persistent: bool = False,
        shared: bool = False,
        exchange: str = "",
        context: Any = None,
    ) -> None:
        if not 0 <= properties_kind <= PROPERTIES_AMQP10:
            raise ValueError(f"properties kind {properties_kind}")
        if properties and properties_kind == PROPERTIES_NONE:
            raise ValueError("properties without a kind")
        flags = properties_kind << PROPERTIES_KIND_SHIFT
        suffix = b""
        if visible_at_ms:
            flags |= HAS_VISIBLE_AT
            suffix = _pack_i64(visible_at_ms)
        if expires_at_ms:
            flags |= HAS_EXPIRES_AT
            suffix += _pack_i64(expires_at_ms)
        if priority:
            flags |= HAS_PRIORITY
            suffix += bytes((priority,))
        suffix += encode_utf8(topic)
        if exchange:
            flags |= HAS_EXCHANGE
            suffix += encode_utf8(exchange)
        if properties_kind:
            suffix += encode_var_bytes(properties)
        if persistent:
            flags |= PERSISTENT
        if shared:
            flags |= SHARED
        fields = visible_at_ms, expires_at_ms, priority, topic, exchange, properties
        self.fill(fields, flags, bytes((ENVELOPE_VERSION, flags)), suffix, context)

    def fill(self, fields: SuffixFields, flags: int, head: bytes, suffix: bytes, context: Any = None) -> None:
        """Take the fields, and what they look like in an envelope."""
        self.visible_at_ms, self.expires_at_ms, self.priority = fields[:3]
        self.topic, self.exchange, self.properties = fields[3:]
        self.properties_kind = flags >> PROPERTIES_KIND_SHIFT & 3
        self.persistent = flags & PERSISTENT != 0
        self.shared = flags & SHARED != 0
        self.flags = flags
        self.head = head
        self.suffix = suffix
        self.context = context

    def is_like(self, other: "EnvelopeTemplate") -> bool:
        """Return whether envelopes made from both are the same."""
        return self.suffix == other.suffix and self.head == other.head

    @property
    def envelope_bytes(self) -> int:
        """The size of each envelope made from this template."""
        return _HEAD_BYTES + len(self.suffix)


def vary(
    base: EnvelopeTemplate, properties: Sequence[bytes], persistent: Sequence[bool]
) -> list[EnvelopeTemplate]:
    """Make templates like `base`, whose properties are empty, but for properties and persistence.

    A fraction of the price of new ones, for messages that have little else of their own.
    """
    make = object.__new__
    flags = base.flags & ~PERSISTENT
    kinds = [(kind, bytes((ENVELOPE_VERSION, kind))) for kind in (flags, flags | PERSISTENT)]
    start = base.suffix[: -len(encode_var_bytes(b""))]
    topic, exchange, shared, priority = base.topic, base.exchange, base.shared, base.priority
    properties_kind, visible_at_ms, expires_at_ms = (
        base.properties_kind,
        base.visible_at_ms,
        base.expires_at_ms,
    )
    templates = []
    for raw, is_persistent in zip(properties, persistent, strict=True):
        template: EnvelopeTemplate = make(EnvelopeTemplate)
        template.topic = topic
        template.properties_kind = properties_kind
        template.properties = raw
        template.priority = priority
        template.visible_at_ms = visible_at_ms
        template.expires_at_ms = expires_at_ms
        template.persistent = is_persistent
        template.shared = shared
        template.exchange = exchange
        template.flags, template.head = kinds[is_persistent]
        template.suffix = start + encode_var_bytes(raw)
        template.context = None
        templates.append(template)
    return templates


def encode_varied_elements(
    templates: Sequence[EnvelopeTemplate], first_message_id: int, first_offset: int, received_at_ms: int
) -> list[bytes]:
    """Encode single elements of a metadata record for messages with templates of their own."""
    count = len(templates)
    return [
        _pack_element(message_id, _HEAD_BYTES + len(template.suffix), template.head, offset, received_at_ms)
        + template.suffix
        for message_id, offset, template in zip(
            range(first_message_id, first_message_id + count),
            range(first_offset, first_offset + count),
            templates,
            strict=True,
        )
    ]


def expires_at_ms(template: EnvelopeTemplate, received_at_ms: int) -> int:
    """Return when a message of this template expires by itself, in ms since the epoch; 0: never."""
    field = template.expires_at_ms
    return received_at_ms + field if 0 < field < RELATIVE_EXPIRY_MAX else field


def encode_metadata_block(
    template: EnvelopeTemplate, first_message_id: int, first_offset: int, received_at_ms: int, count: int
) -> bytes:
    """Encode the elements of a metadata record (`storage.records.metadata`) for a run, without single
    envelopes.

    All elements have one size, so each byte of a number that differs between them is filled in by one strided
    assignment: several times faster than one after the other.
    """
    if not 0 < count <= ARRAY_COUNT_MAX:
        raise ValueError(f"a metadata record has 1 to {ARRAY_COUNT_MAX} elements, not {count}")
    suffix = template.suffix
    element = _pack_element(
        first_message_id, _HEAD_BYTES + len(suffix), template.head, first_offset, received_at_ms
    )
    if count == 1:
        return element + suffix
    block = bytearray(element + suffix) * count
    size = len(element) + len(suffix)
    _fill_rising(block, 0, size, first_message_id, count)
    _fill_rising(block, _OFFSET_IN_ELEMENT, size, first_offset, count)
    return bytes(block)


def _fill_rising(block: bytearray, position: int, size: int, first: int, count: int) -> None:
    """Write `first`, `first + 1`, ... as u64LE at `position` of each of `count` elements of `size` bytes."""
    last = first + count - 1
    if last > U64_MAX:
        raise ValueError(f"{last} is no u64")
    low = first & 0xFF
    block[position::size] = (_EVERY_BYTE * ((low + count >> 8) + 1))[low : low + count]
    for index in range(1, (first ^ last).bit_length() + 7 >> 3):
        shift = 8 * index
        column = [
            bytes((number & 0xFF,)) * (min(last, (number + 1 << shift) - 1) - max(first, number << shift) + 1)
            for number in range(first >> shift, (last >> shift) + 1)
        ]
        block[position + index :: size] = b"".join(column)


def read_head(data: bytes) -> tuple[int, int, int]:
    """Read the (flags, offset, received_at_ms) of an envelope, without the rest."""
    if len(data) < _HEAD_BYTES:
        raise CorruptRecord("envelope", "head", "truncated")
    version, flags, offset, received_at_ms = _unpack_head(data)
    if version != ENVELOPE_VERSION:
        raise _wrong_version(version)
    return flags, offset, received_at_ms


def decode_envelope(data: bytes) -> tuple[int, int, EnvelopeTemplate]:
    """Read offset, receipt time and template; raises CorruptRecord, or FormatTooNew for a later version."""
    _, offset, received_at_ms = read_head(data)
    return offset, received_at_ms, _decode_template(data)


class TemplateCache:
    """Finds the template an envelope was made from, so that messages published alike share one object."""

    __slots__ = ("_templates",)

    def __init__(self) -> None:
        self._templates: dict[bytes, EnvelopeTemplate] = {}

    def find(self, data: bytes) -> EnvelopeTemplate:
        """Return the template of this envelope; one object for equal flags and suffix while it is cached."""
        key = data[:2] + data[_HEAD_BYTES:]
        template = self._templates.get(key)
        if template is None:
            template = _decode_template(data)
            if len(self._templates) >= limits.ENVELOPE_TEMPLATES_MAX:
                self._templates.clear()
            self._templates[key] = template
        return template

    def decode(self, envelopes: Sequence[bytes]) -> list[tuple[int, int, EnvelopeTemplate]]:
        """Decode (offset, received_at_ms, template) of each envelope."""
        find = self.find
        result = []
        for data in envelopes:
            template = find(data)
            _, _, offset, received_at_ms = _unpack_head(data)
            result.append((offset, received_at_ms, template))
        return result


def _decode_template(data: bytes) -> EnvelopeTemplate:
    flags, _, _ = read_head(data)
    template = object.__new__(EnvelopeTemplate)  # its bytes are there: as they came
    template.fill(_decode_suffix(flags, data), flags, data[:2], data[_HEAD_BYTES:])
    return template


def _decode_suffix(flags: int, data: bytes) -> SuffixFields:
    """Read what follows the head, which is known to be good."""
    position = _HEAD_BYTES
    visible_at_ms = expires_at_ms = priority = 0
    exchange = ""
    properties = b""
    try:
        if flags & _HAS_ZEROABLE:
            if flags & HAS_VISIBLE_AT:
                (visible_at_ms,) = _unpack_i64(data, position)
                position += 8
            if flags & HAS_EXPIRES_AT:
                (expires_at_ms,) = _unpack_i64(data, position)
                position += 8
            if flags & HAS_PRIORITY:
                priority = data[position]
                position += 1
        start = position + 2
        position = start + (data[position] | data[position + 1] << 8)
        topic = data[start:position].decode()
        if flags & HAS_EXCHANGE:
            start = position + 2
            position = start + (data[position] | data[position + 1] << 8)
            exchange = data[start:position].decode()
        if flags & _PROPERTIES_KIND_MASK:
            start = position + 4
            position = start + _unpack_u32(data, position)[0]
            properties = data[start:position]
    except (IndexError, struct.error) as error:
        raise CorruptRecord("envelope", "suffix", "truncated") from error
    except UnicodeDecodeError as error:
        raise CorruptRecord("envelope", "topic or exchange", "not UTF-8") from error
    if position != len(data):
        raise CorruptRecord("envelope", "suffix", "truncated" if position > len(data) else "bytes left over")
    return visible_at_ms, expires_at_ms, priority, topic, exchange, properties


def _wrong_version(version: int) -> CorruptRecord | FormatTooNew:
    if version > ENVELOPE_VERSION:
        return FormatTooNew(f"message envelope version {version}; this program reads {ENVELOPE_VERSION}")
    return CorruptRecord("envelope", "version", str(version))


# a time in an envelope only while a group makes the message wait, in the record of its bucket


def with_visible_at(envelope: bytes, visible_at_ms: int) -> bytes:
    """Return the envelope with this time (over 0) in place of the one it may have."""
    plain, _ = without_visible_at(envelope)
    head = bytes((ENVELOPE_VERSION, plain[1] | HAS_VISIBLE_AT)) + plain[2:_HEAD_BYTES]
    return head + _pack_i64(visible_at_ms) + plain[_HEAD_BYTES:]


def without_visible_at(envelope: bytes) -> tuple[bytes, int]:
    """Return the envelope without the time, and the time in ms (0 if it had none).

    Raises CorruptRecord, or FormatTooNew for a later version.
    """
    flags, _, _ = read_head(envelope)
    if not flags & HAS_VISIBLE_AT:
        return envelope, 0
    end = _HEAD_BYTES + _I64.size
    if len(envelope) < end:
        raise CorruptRecord("envelope", "visible_at", "truncated")
    plain = b"".join(
        (envelope[:1], bytes((flags & ~HAS_VISIBLE_AT,)), envelope[2:_HEAD_BYTES], envelope[end:])
    )
    return plain, _unpack_i64(envelope, _HEAD_BYTES)[0]
