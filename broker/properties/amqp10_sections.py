"""Messages of AMQP 1.0 (part 3.2) taken apart for the store, and put together again for consumers.

The body is stored as consumers of every protocol are to get it, the rest as the properties of the envelope:

    form u8 ‖ sections VarBytes ‖ [framing VarBytes, if the form is PARTS] ‖ footer section

`sections` are header (if it has a priority or a ttl), message annotations, properties and application
properties, as they came; delivery annotations end here. Messages that are nothing but data have no block.
All that is made of a block is made once per template, and read where it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

from config import limits
from protocols.amqp10 import types
from protocols.amqp10.constants import DECODE_ERROR
from protocols.amqp10.errors import LINK, AmqpError
from protocols.amqp10.types import Symbol, UByte, UInt, ULong, skip_value
from queue_manager.options import NAMES
from storage.encoding import encode_var_bytes
from storage.envelope import PROPERTIES_AMQP10, PROPERTIES_NONE

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

# what the body is
FORM_DATA: Final = 0  # one data section, its size told in as few bytes as can be
FORM_WIDE: Final = 1  # one data section, its size told in four bytes
FORM_PARTS: Final = 2  # data sections: the framing tells which bytes are one
FORM_SECTIONS: Final = 3  # sequences or a value: the body is these sections
FORM_NONE: Final = 4  # no body

DEATHS: Final = "x-opt-deaths"
EXCHANGE: Final = "x-exchange"
ROUTING_KEY: Final = "x-routing-key"
ORIGINAL_PREFIX: Final = "x-original-"
COPIES: Final = "x-cc"
DELIVERY_TIME: Final = "x-opt-delivery-time"
DELIVERY_DELAY: Final = "x-opt-delivery-delay"

_CODES: Final = {
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
_LISTS: Final = frozenset((0x45, 0xC0, 0xD0))
_MAPS: Final = frozenset((0xC1, 0xD1))
_BINARIES: Final = frozenset((0xA0, 0xB0))
_SHORT: Final = frozenset((0xA0, 0xA1, 0xA3, 0xC0, 0xC1))  # a size of one byte goes before
_SHORT_TEXTS: Final = frozenset((0xA0, 0xA1, 0xA3))
_SYMBOLS: Final = frozenset((0xA3, 0xB3))
_STRINGS: Final = frozenset((0xA1, 0xB1))
_SHORT_DATA: Final = b"\x00\x53\x75\xa0"
_SHORT_FRAMINGS: Final = tuple(_SHORT_DATA + bytes((size,)) for size in range(256))
_LONG_DATA: Final = b"\x00\x53\x75\xb0"
_DATA: Final = b"\x00\x53\x75"
_DEATHS_AS_BYTES: Final = DEATHS.encode()
_ASKING: Final = re.compile(
    b"|".join(re.escape(name.encode()) for name in (*NAMES, DELIVERY_TIME, DELIVERY_DELAY, COPIES))
)
_LEARNING_MAX: Final = 16  # messages taken apart for one whose shape is learned


class Published(NamedTuple):
    """A message as it is stored; of messages alike that came one after the other the block is one object.

    `asks`: there may be something that the broker acts on, see `amqp10.options_of` and `amqp10.copy_keys`, or
    a user-id, which has to be the publisher's.
    """

    properties_kind: int
    block: bytes
    body: bytes
    persistent: bool
    asks: bool


class _Shape(NamedTuple):
    """What messages have in common that differ in values alone, each of them as long as it was.

    The first `size` octets, which end where the type of the body stands, are `octets` where `mask` is not 0.
    A block is `begin` and the octets from `start` to `end`.
    """

    size: int
    mask: int
    octets: int
    begin: bytes
    start: int
    end: int
    persistent: bool


class PublishReader:
    """Takes messages apart. One for each link: what was before the last body is compared with the next, so
    that messages alike are not looked through again; nor are those that differ in values of their properties
    and application properties alone.
    """

    __slots__ = ("_checked", "_head", "_last", "_learning", "_shape", "_shapes")

    def __init__(self) -> None:
        self._head = b""
        self._last = (PROPERTIES_NONE, b"", False, False)
        # by code: the last section, what is kept of it, and whether that asks anything of the broker
        self._checked: dict[int, tuple[bytes, bytes, bool]] = {}
        self._shape: _Shape | None = None  # the last that was met
        self._shapes: dict[int, _Shape] = {}  # by size
        # taken apart since one was learned: where no shape comes again, learning each is lost
        self._learning = _LEARNING_MAX

    def read(self, message: bytes) -> Published:
        """Take a whole message apart; raises AmqpError for what is none."""
        head = self._head
        if head and message.startswith(head):
            content_at = _content_at(message, len(head))
            if content_at:
                kind, block, persistent, asks = self._last
                return Published(kind, block, message[content_at:], persistent, asks)
        shape = self._shape
        if shape is not None:
            if int.from_bytes(message[: shape.size], "big") & shape.mask != shape.octets:
                shape = self._other_shape(message)
            if shape is not None:
                content_at = _content_at(message, shape.size)
                if content_at:
                    block = shape.begin + message[shape.start : shape.end]
                    return Published(PROPERTIES_AMQP10, block, message[content_at:], shape.persistent, False)
        return self._take_apart(message)

    def _other_shape(self, message: bytes) -> _Shape | None:
        """Return the shape of a message, if it is another than the last one's."""
        shape = self._shapes.get(_head_bytes(message))
        if shape is None or int.from_bytes(message[: shape.size], "big") & shape.mask != shape.octets:
            return None
        self._shape = shape
        return shape

    def _learn(self, message: bytes, found: Sequence[Section], block: bytes, persistent: bool) -> None:
        """Learn the shape of a message that is one data section after others, and asks nothing."""
        if self._learning < _LEARNING_MAX:
            self._learning += 1
            return
        start = next((start for code, start, _, _ in found if code >= MESSAGE_ANNOTATIONS), 0)
        _, end, size, _ = found[-1]
        if start == end or size > limits.AMQP10_SHAPE_BYTES_MAX or not block.endswith(message[start:end]):
            return
        self._learning = 0
        mask = bytearray(b"\xff" * size)
        for code, _, value_at, section_end in found:
            if code in (PROPERTIES, APPLICATION_PROPERTIES):
                _unmask_values(mask, message, value_at, section_end, is_map=code == APPLICATION_PROPERTIES)
        bits = int.from_bytes(mask, "big")
        octets = int.from_bytes(message[:size], "big") & bits
        begin = block[: len(block) - (end - start)]
        if len(self._shapes) >= limits.AMQP10_SHAPES_PER_LINK_MAX:
            self._shapes.clear()
        self._shape = self._shapes[size] = _Shape(size, bits, octets, begin, start, end, persistent)

    def _take_apart(self, message: bytes) -> Published:
        try:
            found = _sections(message)
        except AmqpError as error:
            raise _broken(error.description) from None
        _check_order(found)
        kept: list[bytes] = []
        body: list[Section] = []
        footer = b""
        persistent = asks = False
        for section in found:
            code, start, value_at, end = section
            if code == PROPERTIES:
                _check_list(message, value_at, end, "properties")
                kept.append(message[start:end])
                asks = asks or _names_user(message, value_at, end)
            elif DATA <= code <= VALUE:
                body.append(section)
            elif code == FOOTER:
                _check_map(message, value_at, end, _SYMBOLS)
                footer = message[start:end]
            else:
                raw = message[start:end]
                known = self._checked.get(code)
                if known is None or known[0] != raw:
                    left = _checked(raw, code, value_at - start)
                    asks_now = bool(left) if code == HEADER else _ASKING.search(left) is not None
                    known = (raw, left, asks_now)
                    if len(raw) <= limits.AMQP10_KEPT_SECTIONS_BYTES_MAX:
                        self._checked[code] = known
                if code == HEADER:
                    persistent = _header(raw)[0]
                kept.append(known[1])
                asks = asks or known[2]
        form, framing, content = _body_of(message, body)
        sections = b"".join(kept)
        if form == FORM_DATA and not sections and not footer:
            kind, block = PROPERTIES_NONE, b""
        else:
            kind, block = PROPERTIES_AMQP10, _block(form, sections, framing, footer)
        if form == FORM_DATA and not footer and body[0][2] <= limits.AMQP10_KEPT_SECTIONS_BYTES_MAX:
            self._head = message[: body[0][2]]
            self._last = kind, block, persistent, asks
            if kind != PROPERTIES_NONE and not asks:
                self._learn(message, found, block, persistent)
        return Published(kind, block, content, persistent, asks)


def _content_at(message: bytes, at: int) -> int:
    """Return where the bytes begin of a data section that ends the message, its type at `at`; 0 if the size
    is not told in as few bytes as can be, or is another.
    """
    size = len(message) - at
    if size < 258:
        return at + 2 if size >= 2 and message[at] == 0xA0 and message[at + 1] == size - 2 else 0
    is_long = size > 260 and message[at] == 0xB0
    return at + 5 if is_long and int.from_bytes(message[at + 1 : at + 5], "big") == size - 5 else 0


def _head_bytes(message: bytes) -> int:
    """Return where the type of the first body section stands; 0 where that cannot be told shortly."""
    at = 0
    end = len(message) - 5
    while at < end and message[at + 1] == 0x53:
        if message[at + 2] >= DATA:
            return at + 3
        kind = message[at + 3]
        if kind not in _SHORT:
            return 0
        at += 5 + message[at + 4]
    return 0


def _unmask_values(mask: bytearray, data: bytes, at: int, end: int, *, is_map: bool) -> None:
    """Put 0 for the octets of values that may differ: those of a list, or of a map but for its keys."""
    position, count = _items(data, at)
    for index in range(count):
        code = data[position]
        after = skip_value(data, position, end)
        if (index % 2 or not is_map) and (_STEPS[code] or code in _SHORT_TEXTS):
            start = position + (1 if _STEPS[code] else 2)
            mask[start:after] = bytes(after - start)
        position = after


def _block(form: int, sections: bytes, framing: bytes, footer: bytes) -> bytes:
    parts = [bytes((form,)), encode_var_bytes(sections)]
    if form == FORM_PARTS:
        parts.append(encode_var_bytes(framing))
    return b"".join((*parts, footer))


EMPTY: Final = _block(FORM_DATA, b"", b"", b"")


def _broken(what: str) -> AmqpError:
    return AmqpError(DECODE_ERROR, f"failed to parse message: {what}", LINK)


Section = tuple[int, int, int, int]
"""code, start, place of the value, end"""


def _sections(data: bytes) -> list[Section]:
    """Return the sections of a message; raises AmqpError for what is none."""
    found = []
    at, end = 0, len(data)
    while at < end:
        start = at
        if data[at]:
            raise _broken("a section has no descriptor")
        if at + 4 < end and data[at + 1] == 0x53:
            code = data[at + 2]
            at += 3
            kind = data[at]
            value_at = at
            if kind in _SHORT:
                at += 2 + data[at + 1]
                if at > end:
                    raise _broken("a value is cut off")
            else:
                at = skip_value(data, at, end)
        else:
            code, value_at = _descriptor(data, at, end)
            at = skip_value(data, value_at, end)
        if not HEADER <= code <= FOOTER:
            raise _broken("there is no such section")
        found.append((code, start, value_at, at))
    return found


def _descriptor(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the code that a descriptor stands for, and the place behind it."""
    descriptor, at = types.decode_value(data, at + 1, end)
    if isinstance(descriptor, Symbol):
        return _CODES.get(descriptor, -1), at
    return (descriptor if isinstance(descriptor, ULong) else -1), at


def _check_order(sections: Sequence[Section]) -> None:
    last = 0
    for code, _, _, _ in sections:
        if (
            code < last
            or (code == last and code not in (DATA, SEQUENCE))
            or (DATA <= last <= VALUE and DATA <= code <= VALUE and code != last)
        ):
            raise _broken("its sections are not in order")
        last = code


def _items(data: bytes, at: int) -> tuple[int, int]:
    """Return where the items of a list or map begin, and how many they are."""
    code = data[at]
    if code == 0x45:
        return at + 1, 0
    if code & 0x10:
        return at + 9, int.from_bytes(data[at + 5 : at + 9], "big")
    return at + 3, data[at + 2]


def _check_list(data: bytes, at: int, end: int, what: str) -> None:
    if data[at] not in _LISTS:
        raise _broken(f"{what} is no list")
    _check_items(data, at, end)


def _check_items(data: bytes, at: int, end: int) -> None:
    """Check that items fill what holds them."""
    position, count = _items(data, at)
    try:
        for _ in range(count):
            if position >= end:
                raise _broken("a value is cut off")
            code = data[position]
            step = _STEPS[code]
            if step:
                position += step
            elif code in _SHORT:
                position += 2 + data[position + 1]
            else:
                position = skip_value(data, position, end)
    except IndexError:
        raise _broken("a value is cut off") from None
    except AmqpError as error:
        raise _broken(error.description) from None
    if position != end:
        raise _broken("items do not fill what holds them")


def _step(code: int) -> int:
    try:
        return skip_value(bytes((code,)) + bytes(16), 0, 17)
    except AmqpError:
        return 0


# what a value of fixed width takes with its code; 0: it has none
_STEPS: Final = tuple(_step(code) if 0x40 <= code < 0xA0 else 0 for code in range(256))


def _names_user(data: bytes, at: int, end: int) -> bool:
    """Return whether properties that were checked have a user-id, their second field."""
    position, count = _items(data, at)
    return count > 1 and data[skip_value(data, position, end)] != 0x40


def _check_map(data: bytes, at: int, end: int, keys: frozenset[int], prefix: bytes = b"") -> None:
    if data[at] not in _MAPS:
        raise _broken("annotations, application properties or footer are no map")
    _check_items(data, at, end)
    if _items(data, at)[1] % 2:
        raise _broken("a map has a key without a value")
    for name, key, _ in _pairs(data, at):
        if key[0] not in keys:
            raise _broken(f"a key is no {'symbol' if keys is _SYMBOLS else 'string'}")
        if not name.startswith(prefix):
            raise _broken("an annotation's name does not begin with x-")


def _name_at(data: bytes, at: int) -> bytes:
    if data[at] & 0x10:
        return data[at + 5 : at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")]
    return data[at + 2 : at + 2 + data[at + 1]]


def _body_of(message: bytes, body: list[tuple[int, int, int, int]]) -> tuple[int, bytes, bytes]:
    """Return form, framing and bytes of a body."""
    if not body:
        return FORM_NONE, b"", b""
    start, end = body[0][1], body[-1][3]
    if body[0][0] != DATA:
        return FORM_SECTIONS, b"", message[start:end]
    framing: list[bytes] = []
    contents: list[bytes] = []
    for _, begin, value_at, after in body:
        if message[value_at] not in _BINARIES:
            raise _broken("a data section is no binary")
        content_at = value_at + (5 if message[value_at] == 0xB0 else 2)
        frame = message[begin:content_at]
        framing += (bytes((len(frame),)), frame, (after - content_at).to_bytes(4, "little"))
        contents.append(message[content_at:after])
    frame = framing[1]
    if len(body) == 1:
        if frame == data_framing(len(contents[0])):
            return FORM_DATA, b"", contents[0]
        if frame.startswith(_LONG_DATA):
            return FORM_WIDE, b"", contents[0]
    return FORM_PARTS, b"".join(framing), b"".join(contents)


def data_framing(size: int) -> bytes:
    """Return what goes before the bytes of a data section."""
    return _SHORT_FRAMINGS[size] if size < 256 else _LONG_DATA + size.to_bytes(4, "big")


def _checked(section: bytes, code: int, value_at: int) -> bytes:
    """Return what is kept of a header, annotations or application properties; raises AmqpError."""
    end = len(section)
    if code == HEADER:
        _check_list(section, value_at, end, "header")
        _, priority, ttl_ms = _header(section)
        if priority is None and ttl_ms is None:
            return b""
        # whether it is durable is told by the envelope
        return header_section(durable=False, priority=priority, ttl_ms=ttl_ms)
    if code == APPLICATION_PROPERTIES:
        _check_map(section, value_at, end, _STRINGS)
        return section
    _check_map(section, value_at, end, _SYMBOLS, b"x-")
    return _without_deaths(section, value_at) if code == MESSAGE_ANNOTATIONS else b""


def _header(section: bytes) -> tuple[bool, int | None, int | None]:
    """Return what a header section says: whether the message is durable, its priority and its ttl (ms)."""
    if len(section) > limits.AMQP10_KEPT_SECTIONS_BYTES_MAX:
        return _read_header(section)
    return _kept_header(section)


@lru_cache(maxsize=256)
def _kept_header(section: bytes) -> tuple[bool, int | None, int | None]:
    return _read_header(section)


def _read_header(section: bytes) -> tuple[bool, int | None, int | None]:
    ((_, _, value_at, _),) = _sections(section)
    durable, priority, ttl_ms = (*list_values(section, value_at)[:3], None, None, None)[:3]
    return (
        durable is True,
        int(priority) if type(priority) is UByte else None,
        int(ttl_ms) if type(ttl_ms) is UInt else None,
    )


def _without_deaths(section: bytes, value_at: int) -> bytes:
    """Return annotations with a publisher's history of deaths under another name."""
    if _DEATHS_AS_BYTES not in section:
        return section
    pairs = [
        (types.encode_symbol(ORIGINAL_PREFIX + DEATHS) if name == _DEATHS_AS_BYTES else key) + value
        for name, key, value in _pairs(section, value_at)
    ]
    return _annotations(pairs)


def _pairs(data: bytes, at: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Give name, encoded name and encoded value of each pair of a map that was checked."""
    position, count = _items(data, at)
    end = len(data)
    for _ in range(count // 2):
        value_at = skip_value(data, position, end)
        after = skip_value(data, value_at, end)
        yield _name_at(data, position), data[position:value_at], data[value_at:after]
        position = after


def _annotations(pairs: Sequence[bytes]) -> bytes:
    return b"\x00\x53\x72" + encoded_map(pairs) if pairs else b""


def encoded_map(pairs: Sequence[bytes]) -> bytes:
    """Return a map of pairs that are encoded."""
    items = b"".join(pairs)
    size, count = len(items), 2 * len(pairs)
    if size < 255 and count < 256:
        return bytes((0xC1, size + 1, count)) + items
    return b"\xd1" + (size + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + items


def list_values(data: bytes, at: int) -> list[Any]:
    """Return the values of a header or of properties; None for one that cannot be read."""
    position, count = _items(data, at)
    values = []
    for _ in range(count):
        after = skip_value(data, position, len(data))
        values.append(decoded(data[position:after]))
        position = after
    return values


def decoded(encoded: bytes) -> Any:
    """Decode one value of a stored message; None for what cannot be read, and is handed on as it came."""
    try:
        return types.decode_whole(encoded)
    except AmqpError:
        return None


class Block:
    """The sections of a stored block; what they hold is decoded where it is asked for."""

    __slots__ = ("_at", "_pairs", "_properties", "footer", "form", "framing", "sections")

    def __init__(self, block: bytes) -> None:
        self.form = block[0]
        end = 5 + int.from_bytes(block[1:5], "little")
        self.sections = block[5:end]
        self.framing = b""
        if self.form == FORM_PARTS:
            start = end + 4
            end = start + int.from_bytes(block[end:start], "little")
            self.framing = block[start:end]
        self.footer = block[end:]
        self._at = {code: place for code, *place in _sections(self.sections)}
        self._properties: list[tuple[int, int]] | None = None
        self._pairs: dict[int, dict[str, bytes]] = {}

    def header(self) -> tuple[int | None, int | None]:
        """Return priority and ttl (ms); None for what the publisher did not give."""
        place = self._at.get(HEADER)
        return (None, None) if place is None else _header(self.sections[place[0] : place[2]])[1:]

    def property_at(self, index: int) -> Any:
        """Return the value of a field of the properties, by its place among them."""
        if self._properties is None:
            self._properties = list(self._property_places())
        if index >= len(self._properties):
            return None
        start, end = self._properties[index]
        return None if self.sections[start] == 0x40 else decoded(self.sections[start:end])

    def _property_places(self) -> Iterator[tuple[int, int]]:
        place = self._at.get(PROPERTIES)
        if place is None:
            return
        position, count = _items(self.sections, place[1])
        for _ in range(count):
            after = skip_value(self.sections, position, len(self.sections))
            yield position, after
            position = after

    def pairs(self, code: int) -> dict[str, bytes]:
        """Return the encoded values of a map by their names; of several with one name the first."""
        known = self._pairs.get(code)
        if known is None:
            known = self._pairs[code] = {}
            place = self._at.get(code)
            if place is not None:
                for name, _, value in _pairs(self.sections, place[1]):
                    known.setdefault(name.decode(errors="replace"), value)
        return known

    def value(self, code: int, name: str) -> Any:
        """Return the value of a name in annotations or application properties; None if there is none."""
        encoded = self.pairs(code).get(name)
        return None if encoded is None else decoded(encoded)

    def annotations(self) -> bytes:
        """Return the message annotations as they came; nothing where there are none."""
        place = self._at.get(MESSAGE_ANNOTATIONS)
        return b"" if place is None else self.sections[place[0] : place[2]]

    def annotation_pairs(self) -> list[tuple[bytes, bytes]]:
        """Return names and encoded pairs of the message annotations."""
        return annotation_pairs(self.annotations())

    def bare_sections(self) -> bytes:
        """Return properties and application properties as they came."""
        for code in (PROPERTIES, APPLICATION_PROPERTIES):
            if code in self._at:
                return self.sections[self._at[code][0] :]
        return b""

    def stamped(self, annotations: Iterable[tuple[str, Any]]) -> bytes:
        """Return the block of a copy that the broker makes: with these annotations, each in the place of what
        had its name, and without a ttl; the rest stays byte for byte.
        """
        priority, _ = self.header()
        # whether it is durable is told by the envelope
        kept = b"" if priority is None else header_section(durable=False, priority=priority, ttl_ms=None)
        return self._with(kept, _merged(self.annotation_pairs(), annotations))

    def annotated(self, annotations: Iterable[tuple[str, Any]]) -> bytes:
        """Return the block with these annotations, each in the place of what had its name."""
        return self._with(self._header_section(), _merged(self.annotation_pairs(), annotations))

    def without(self, names: Iterable[str]) -> bytes:
        """Return the block without the annotations of these names."""
        gone = {name.encode() for name in names}
        left = [pair for name, pair in self.annotation_pairs() if name not in gone]
        return self._with(self._header_section(), left)

    def _header_section(self) -> bytes:
        place = self._at.get(HEADER)
        return b"" if place is None else self.sections[place[0] : place[2]]

    def _with(self, header: bytes, annotations: Sequence[bytes]) -> bytes:
        sections = header + _annotations(annotations) + self.bare_sections()
        return _block(self.form, sections, self.framing, self.footer)


def annotation_pairs(section: bytes) -> list[tuple[bytes, bytes]]:
    """Return names and encoded pairs of message annotations; none of no section."""
    if not section:
        return []
    ((_, _, value_at, _),) = _sections(section)
    return [(name, key + value) for name, key, value in _pairs(section, value_at)]


def may_ask(block: bytes) -> bool:
    """Return whether there may be something in a stored block that the broker acts on."""
    return block.startswith(b"\x00\x53\x70", 5) or _ASKING.search(block) is not None


_SHORT_PROPERTIES: Final = b"\x00\x53\x73\xc0"
_ID_BYTES: Final = {0x40: 1, 0x44: 1, 0x53: 2, 0x80: 9, 0x98: 17}  # of a message-id, by its code


def may_name_user(block: bytes) -> bool:
    """Return whether there may be a user-id in a stored block: told without decoding where properties come
    first and are short, as most are.
    """
    if not block.startswith(_SHORT_PROPERTIES, 5):
        return bool(block)
    if block[10] < 2:
        return False
    code = block[11]
    size = _ID_BYTES.get(code) or (2 + block[12] if code in (0xA0, 0xA1) else 0)
    return not size or block[11 + size] != 0x40


def read_block(block: bytes) -> Block:
    """Return the sections of a stored block."""
    return Block(block) if len(block) > limits.AMQP10_KEPT_SECTIONS_BYTES_MAX else _kept_block(block)


@lru_cache(maxsize=64)
def _kept_block(block: bytes) -> Block:
    return Block(block)


def _merged(pairs: Iterable[tuple[bytes, bytes]], added: Iterable[tuple[str, Any]]) -> list[bytes]:
    """Return encoded pairs, those that are added in front."""
    new = {name.encode("ascii", "replace"): (name, value) for name, value in added}
    front = [types.encode_symbol(name) + types.encode_value(value) for name, value in new.values()]
    return front + [encoded for name, encoded in pairs if name not in new]


@lru_cache(maxsize=256)
def header_section(
    *,
    durable: bool,
    priority: int | None,
    ttl_ms: int | None,
    first_acquirer: bool | None = None,
    delivery_count: int | None = None,
) -> bytes:
    """Return a header section; what is None is left out."""
    items = [
        durable,
        None if priority is None else UByte(priority),
        None if ttl_ms is None else UInt(ttl_ms),
        first_acquirer,
        None if delivery_count is None else UInt(delivery_count),
    ]
    while items and items[-1] is None:
        items.pop()
    return b"\x00\x53\x70" + types.encode_list(items)


class Annotations:
    """The annotations of deliveries: encoded pairs by their names, and the section they are."""

    __slots__ = ("is_dead_letter", "pairs", "section")

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        self.pairs = pairs
        self.section = _annotations([encoded for _, encoded in pairs])
        self.is_dead_letter = any(name == _DEATHS_AS_BYTES for name, _ in pairs)


@dataclass(eq=False, repr=False, slots=True)
class Delivery:
    """How messages of one template look to consumers of AMQP 1.0: all but the bodies.

    A message is `before(len(body), ...)`, the body and `after`; where `is_framed` is set, `framed(body)`
    stands in the place of the body. `ttl_ms` is what the publisher gave, if anything. `is_checked`: bodies
    are what the properties say they are.
    """

    _persistent: bool
    _priority: int | None
    ttl_ms: int | None
    _annotations: Annotations
    _bare: bytes
    body: InitVar[tuple[int, bytes, bytes]]
    """Its form, framing and what goes after it."""
    is_checked: bool = field(default=True, kw_only=True)
    after: bytes = field(init=False)
    _form: int = field(init=False)
    _framing: bytes = field(init=False)
    _first: bytes = field(default=b"", init=False)
    _first_size: int = field(default=-1, init=False)

    def __post_init__(self, body: tuple[int, bytes, bytes]) -> None:
        self._form, self._framing, self.after = body

    @property
    def is_framed(self) -> bool:
        """Whether bodies are several sections, which `framed` makes of them."""
        return self._form == FORM_PARTS

    def before(
        self,
        size: int,
        *,
        delivery_count: int = 0,
        first_acquirer: bool = True,
        left_ms: int | None = None,
        added: Sequence[tuple[str, Any]] = (),
    ) -> bytes:
        """Return what goes before a body of `size` bytes: header, annotations with those `added` (values of
        `protocols.amqp10.types`), the sections of the bare message before the body, and the framing of that.

        `left_ms` is what is left of a ttl; by default what the publisher gave.
        """
        plain = not delivery_count and first_acquirer and left_ms is None and not added
        if plain and size == self._first_size:
            return self._first
        ttl_ms = self.ttl_ms
        if ttl_ms is not None and left_ms is not None:
            ttl_ms = min(max(left_ms, 1), ttl_ms)
        own = self._annotations
        header = header_section(
            durable=self._persistent,
            priority=self._priority,
            ttl_ms=ttl_ms,
            first_acquirer=first_acquirer and not own.is_dead_letter,
            delivery_count=delivery_count,
        )
        section = _annotations(_merged(own.pairs, added)) if added else own.section
        before = header + section + self._bare + self._frame(size)
        if plain:
            self._first, self._first_size = before, size
        return before

    def _frame(self, size: int) -> bytes:
        if self._form == FORM_DATA:
            return data_framing(size)
        return _LONG_DATA + size.to_bytes(4, "big") if self._form == FORM_WIDE else b""

    def framed(self, body: bytes) -> bytes:
        """Return a body that is several data sections as these."""
        parts: list[bytes] = []
        position = at = 0
        framing = self._framing
        while position < len(framing):
            frame_at = position + 1
            position = frame_at + framing[position]
            size = int.from_bytes(framing[position : position + 4], "little")
            parts += (framing[frame_at:position], body[at : at + size])
            position += 4
            at += size
        return b"".join(parts)

    def message(self, body: bytes, **delivery: Any) -> bytes:
        """Return a whole message; `delivery` is what `before` takes."""
        content = self.framed(body) if self._form == FORM_PARTS else body
        return b"".join((self.before(len(body), **delivery), content, self.after))


def are_body_sections(body: bytes) -> bool:
    """Return whether these bytes are the body of a message of AMQP 1.0."""
    try:
        found = _sections(body)
        _check_order(found)
    except AmqpError:
        return False
    return bool(found) and all(DATA <= code <= VALUE for code, _, _, _ in found)
