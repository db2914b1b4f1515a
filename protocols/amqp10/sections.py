"""The sections of a message (AMQP 1.0, 3.2), found by their offsets and not decoded.

A message is kept and forwarded as the octets that it came as; what the broker changes on the way is what
stands before the properties: header, delivery annotations, message annotations.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from protocols.amqp10.errors import LINK, AmqpError, malformed

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

_NAMES: Final[dict[str, int]] = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
# the codes that a section's value may have; any in a body's value
_MAPS: Final = frozenset((0xC1, 0xD1))
_LISTS: Final = frozenset((0x45, 0xC0, 0xD0))
_VALUE_CODES: Final[dict[int, frozenset[int]]] = {
    HEADER: _LISTS,
    DELIVERY_ANNOTATIONS: _MAPS,
    MESSAGE_ANNOTATIONS: _MAPS,
    PROPERTIES: _LISTS,
    APPLICATION_PROPERTIES: _MAPS,
    DATA: frozenset((0xA0, 0xB0)),
    SEQUENCE: _LISTS,
    FOOTER: _MAPS,
}


class Sections:
    """Where the sections of a message are.

    `spans` has, by code, where the value of a section begins and where it ends; those of the body, of which
    there may be several, are in `bodies` instead. `bare_at` is where the bare message begins, which nothing
    may change: behind the annotations. `body_kind` is DATA, SEQUENCE, VALUE, or 0 without a body.
    """

    __slots__ = ("bare_at", "bodies", "body_at", "body_end", "body_kind", "data", "spans")

    def __init__(self, data: bytes) -> None:
        """Find the sections of `data`. Raises AmqpError (decode-error, the link's) for what is no message."""
        self.data = data
        self.spans: dict[int, tuple[int, int]] = {}
        self.bodies: list[tuple[int, int]] = []
        self.body_kind = 0
        self.bare_at = 0
        self.body_at = self.body_end = 0
        try:
            self._find(data)
        except AmqpError as error:
            raise AmqpError(error.condition, error.description, LINK) from None

    def _find(self, data: bytes) -> None:
        pos = 0
        end = len(data)
        before = 0
        while pos < end:
            start = pos
            if data.startswith(b"\x00\x53", pos) and pos + 3 < end:
                code = data[pos + 2]
                pos += 3
            else:
                code, pos = _code_at(data, pos, end)
            if code < before or (code == before and code not in (DATA, SEQUENCE)):
                raise malformed(f"unexpected message section 0x{code:02x} behind 0x{before:02x}")
            if not HEADER <= code <= FOOTER:
                raise malformed(f"no message section has the code 0x{code:02x}")
            if DATA <= before <= VALUE and code != before and code != FOOTER:
                raise malformed("a body of two kinds")
            if pos >= end:
                raise malformed("a section without a value")
            codes = _VALUE_CODES.get(code)
            if codes is not None and data[pos] not in codes:
                raise malformed(f"message section 0x{code:02x} has a wrong type")
            after = t.skip_value(data, pos, end)
            if DATA <= code <= VALUE:
                if not self.body_kind:
                    self.body_kind = code
                    self.body_at = start
                self.bodies.append((pos, after))
                self.body_end = after
            else:
                self.spans[code] = (pos, after)
            if code < PROPERTIES:
                self.bare_at = after
            before = code
            pos = after

    def decode(self, code: int) -> Any:
        """Decode a section but a body's; None when there is none. Raises AmqpError (decode-error)."""
        span = self.spans.get(code)
        if span is None:
            return None
        value = t.decode_value(self.data, *span)[0]
        if code in (HEADER, PROPERTIES):
            return p.compose(t.Described(t.ULong(code), value))
        return value

    @property
    def header(self) -> p.Header:
        """The header; one of defaults where there is none."""
        return self.decode(HEADER) or p.Header()

    @property
    def properties(self) -> p.Properties:
        """The properties; none set where there are none."""
        return self.decode(PROPERTIES) or p.Properties()

    def body_values(self) -> list[Any]:
        """Decode the body: the octets of each data section, the items of each sequence, or the one value."""
        return [t.decode_value(self.data, start, end)[0] for start, end in self.bodies]

    def body_data(self) -> bytes:
        """Return the octets of all data sections, without decoding; b"" for a body of another kind."""
        if self.body_kind != DATA:
            return b""
        data = self.data
        parts = [data[start + (2 if data[start] == 0xA0 else 5) : end] for start, end in self.bodies]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def bare(self) -> bytes:
        """Return properties, application properties, body and footer as they came."""
        return self.data[self.bare_at :]

    def annotations(self, code: int = MESSAGE_ANNOTATIONS) -> bytes:
        """Return the section of message or delivery annotations as it came, b"" where there is none."""
        span = self.spans.get(code)
        return b"" if span is None else encode_section_head(code) + self.data[span[0] : span[1]]

    def with_header(self, header: p.Header) -> bytes:
        """Return the message with another header; all else is octet for octet what it was, but for delivery
        annotations, which are for one hop only (3.2.2).
        """
        return p.encode(header) + self.annotations() + self.bare()


def _code_at(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read the descriptor of a section in any of its forms; gives its code and where the value begins."""
    if data[pos]:
        raise malformed("no message section begins here")
    descriptor, pos = t.decode_value(data, pos + 1, end)
    if type(descriptor) is t.Symbol:
        return _NAMES.get(descriptor, 0), pos
    return (int(descriptor) if type(descriptor) is t.ULong else 0), pos


def encode_section_head(code: int) -> bytes:
    """Encode what stands before the value of a section."""
    return b"\x00\x53" + bytes((code,))


def encode_section(code: int, value: Any) -> bytes:
    """Encode a section; `value` is a map for annotations and the like, bytes for DATA."""
    return encode_section_head(code) + t.encode_value(value)


@lru_cache(maxsize=256)
def encode_header(
    durable: bool,
    priority: int | None = None,
    ttl: int | None = None,
    first_acquirer: bool = False,
    delivery_count: int = 0,
) -> bytes:
    """Encode a header in which durable, first-acquirer and delivery-count are told, whatever they are."""
    fields = [
        t.encode_value(durable),
        b"\x40" if priority is None else t.encode_ubyte(priority),
        b"\x40" if ttl is None else t.encode_uint(ttl),
        t.encode_value(first_acquirer),
        t.encode_uint(delivery_count),
    ]
    return encode_section_head(HEADER) + t.encode_encoded_list(fields)
