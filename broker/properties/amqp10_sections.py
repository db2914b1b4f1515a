"""Messages of AMQP 1.0 (part 3.2) taken apart for the store, and put together again for consumers.

The body is stored as consumers of every protocol are to get it, the rest as the properties of the envelope:

    form u8 ‖ sections VarBytes ‖ [framing VarBytes, if the form is PARTS] ‖ footer section

`sections` are header (if it has a priority or a ttl), message annotations, properties and application
properties, as they came; delivery annotations end here. Messages that are nothing but data have no block.
All that is made of a block is made once per template, and read where it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from protocols.amqp10 import types
from protocols.amqp10.constants import DECODE_ERROR
from protocols.amqp10.errors import LINK, AmqpError
from protocols.amqp10.types import Symbol, UByte, UInt, skip_value
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
OFFSET: Final = "x-stream-offset"

_NAMES: Final = {
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
_SYMBOLS: Final = frozenset((0xA3, 0xB3))
_STRINGS: Final = frozenset((0xA1, 0xB1))
_SHORT_DATA: Final = b"\x00\x53\x75\xa0"
_LONG_DATA: Final = b"\x00\x53\x75\xb0"
_DATA: Final = b"\x00\x53\x75"
_DEATHS_AS_BYTES: Final = DEATHS.encode()
_OFFSET_AS_BYTES: Final = types.encode_symbol(OFFSET)


class Published(NamedTuple):
    """A message as it is stored; of messages alike that came one after the other the block is one object."""

    properties_kind: int
    block: bytes
    body: bytes
    persistent: bool


class PublishReader:
    """Takes messages apart. One for each link: what was before the last body is compared with the next, so
    that messages alike are not looked through again.
    """

    __slots__ = ("_head", "_kind", "_known", "_persistent")

    def __init__(self) -> None:
        self._head = b""
        self._kind = PROPERTIES_NONE
        self._known = b""
        self._persistent = False

    def read(self, message: bytes) -> Published:
        """Take a whole message apart; raises AmqpError for what is none."""
        head = self._head
        if head and message.startswith(head):
            at = len(head)
            size = len(message) - at
            if size < 258:
                if size >= 2 and message[at] == 0xA0 and message[at + 1] == size - 2:
                    return Published(self._kind, self._known, message[at + 2 :], self._persistent)
            elif (
                size > 260
                and message[at] == 0xB0
                and int.from_bytes(message[at + 1 : at + 5], "big") == size - 5
            ):
                return Published(self._kind, self._known, message[at + 5 :], self._persistent)
        return self._take_apart(message)

    def _take_apart(self, message: bytes) -> Published:
        try:
            found = list(_sections(message))
        except AmqpError as error:
            raise _broken(error.description) from None
        _check_order([code for code, _, _, _ in found])
        kept: list[bytes] = []
        body: list[tuple[int, int, int, int]] = []
        footer = b""
        persistent = False
        for section in found:
            code, start, value_at, end = section
            if code == HEADER:
                _check_list(message, value_at, end, "header")
                fields = list_values(message, value_at)
                persistent = bool(fields) and fields[0] is True
                if any(value is not None for value in fields[1:3]):
                    kept.append(message[start:end])
            elif code in (MESSAGE_ANNOTATIONS, DELIVERY_ANNOTATIONS):
                _check_map(message, value_at, end, _SYMBOLS, b"x-")
                if code == MESSAGE_ANNOTATIONS:
                    kept.append(_without_deaths(message[start:end], value_at - start))
            elif code == PROPERTIES:
                _check_list(message, value_at, end, "properties")
                kept.append(message[start:end])
            elif code == APPLICATION_PROPERTIES:
                _check_map(message, value_at, end, _STRINGS)
                kept.append(message[start:end])
            elif code == FOOTER:
                _check_map(message, value_at, end, _SYMBOLS)
                footer = message[start:end]
            else:
                body.append(section)
        form, framing, content = _body_of(message, body)
        sections = b"".join(kept)
        if form == FORM_DATA and not sections and not footer:
            kind, block = PROPERTIES_NONE, b""
        else:
            kind, block = PROPERTIES_AMQP10, _block(form, sections, framing, footer)
        if form == FORM_DATA and not footer:
            self._head = message[: body[0][2]]
            self._kind, self._known, self._persistent = kind, block, persistent
        return Published(kind, block, content, persistent)


def _block(form: int, sections: bytes, framing: bytes, footer: bytes) -> bytes:
    parts = [bytes((form,)), encode_var_bytes(sections)]
    if form == FORM_PARTS:
        parts.append(encode_var_bytes(framing))
    return b"".join((*parts, footer))


EMPTY: Final = _block(FORM_DATA, b"", b"", b"")


def _broken(what: str) -> AmqpError:
    return AmqpError(DECODE_ERROR, f"failed to parse message: {what}", LINK)


def _sections(data: bytes, at: int = 0, end: int | None = None) -> Iterator[tuple[int, int, int, int]]:
    """Give code, start, place of the value and end of each section."""
    if end is None:
        end = len(data)
    while at < end:
        start = at
        if data[at]:
            raise _broken("a section has no descriptor")
        if data[at + 1 : at + 2] == b"\x53" and at + 2 < end:
            code = data[at + 2]
            at += 3
        else:
            descriptor, at = types.decode_value(data, at + 1, end)
            code = _NAMES.get(descriptor, -1) if isinstance(descriptor, Symbol) else descriptor
        value_at = at
        if not isinstance(code, int) or not HEADER <= code <= FOOTER:
            raise _broken("there is no such section")
        at = skip_value(data, at, end)
        yield code, start, value_at, at


def _check_order(codes: Sequence[int]) -> None:
    last = 0
    for code in codes:
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


def _check_items(
    data: bytes, at: int, end: int, keys: frozenset[int] | None = None, prefix: bytes = b""
) -> None:
    """Check that items fill what holds them; of a map that keys are of these types, and begin so."""
    position, count = _items(data, at)
    try:
        if keys is not None and count % 2:
            raise _broken("a map has a key without a value")
        for index in range(count):
            if position >= end:
                raise _broken("a value is cut off")
            if keys is not None and not index % 2:
                if data[position] not in keys:
                    raise _broken(f"a key is no {'symbol' if keys is _SYMBOLS else 'string'}")
                if prefix and not _name_at(data, position).startswith(prefix):
                    raise _broken("an annotation's name does not begin with x-")
            position = skip_value(data, position, end)
    except AmqpError as error:
        if error.scope == LINK:
            raise
        raise _broken(error.description) from None
    if position != end:
        raise _broken("items do not fill what holds them")


def _check_map(data: bytes, at: int, end: int, keys: frozenset[int], prefix: bytes = b"") -> None:
    if data[at] not in _MAPS:
        raise _broken("annotations, application properties or footer are no map")
    _check_items(data, at, end, keys, prefix)


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
        if frame == _framing(len(contents[0])):
            return FORM_DATA, b"", contents[0]
        if frame.startswith(_LONG_DATA):
            return FORM_WIDE, b"", contents[0]
    return FORM_PARTS, b"".join(framing), b"".join(contents)


def _framing(size: int) -> bytes:
    return _SHORT_DATA + bytes((size,)) if size < 256 else _LONG_DATA + size.to_bytes(4, "big")


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
        self._at = {code: (start, at, after) for code, start, at, after in _sections(self.sections)}
        self._properties: list[tuple[int, int]] | None = None
        self._pairs: dict[int, dict[str, bytes]] = {}

    def header(self) -> tuple[int | None, int | None]:
        """Return priority and ttl (ms); None for what the publisher did not give."""
        place = self._at.get(HEADER)
        values = [] if place is None else list_values(self.sections, place[1])
        priority, ttl_ms = (*values[1:3], None, None)[:2]
        return (
            int(priority) if type(priority) is UByte else None,
            int(ttl_ms) if type(ttl_ms) is UInt else None,
        )

    def property_at(self, index: int) -> Any:
        """Return the value of a field of the properties, by its place among them."""
        if self._properties is None:
            self._properties = list(self._property_places())
        if index >= len(self._properties):
            return None
        start, end = self._properties[index]
        return decoded(self.sections[start:end])

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

    def annotation_pairs(self) -> list[tuple[bytes, bytes]]:
        """Return names and encoded pairs of the message annotations."""
        place = self._at.get(MESSAGE_ANNOTATIONS)
        if place is None:
            return []
        return [(name, key + value) for name, key, value in _pairs(self.sections, place[1])]

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

    def without(self, names: Iterable[str]) -> bytes:
        """Return the block without the annotations of these names."""
        gone = {name.encode() for name in names}
        place = self._at.get(HEADER)
        header = b"" if place is None else self.sections[place[0] : place[2]]
        return self._with(header, [pair for name, pair in self.annotation_pairs() if name not in gone])

    def _with(self, header: bytes, annotations: Sequence[bytes]) -> bytes:
        sections = header + _annotations(annotations) + self.bare_sections()
        return _block(self.form, sections, self.framing, self.footer)


@lru_cache(maxsize=64)
def read_block(block: bytes) -> Block:
    """Return the sections of a stored block."""
    return Block(block)


def _merged(pairs: Iterable[tuple[bytes, bytes]], added: Iterable[tuple[str, Any]]) -> list[bytes]:
    """Return encoded pairs, those that are added in front."""
    new = {name.encode("ascii", "replace"): (name, value) for name, value in added}
    front = [types.encode_symbol(name) + types.encode_value(value) for name, value in new.values()]
    return front + [encoded for name, encoded in pairs if name not in new]


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


class Delivery:
    """How messages of one template look to consumers of AMQP 1.0: all but the bodies.

    A message is `before(len(body), ...)`, the body and `after`; where `is_framed` is set, `framed(body)`
    stands in the place of the body. `ttl_ms` is what the publisher gave, if anything. `is_checked`: bodies
    are what the properties say they are.
    """

    __slots__ = (
        "_annotations",
        "_bare",
        "_first",
        "_first_size",
        "_form",
        "_framing",
        "_persistent",
        "_priority",
        "after",
        "is_checked",
        "ttl_ms",
    )

    def __init__(
        self,
        persistent: bool,
        priority: int | None,
        ttl_ms: int | None,
        annotations: Sequence[tuple[bytes, bytes]],
        bare: bytes,
        body: tuple[int, bytes, bytes] = (FORM_DATA, b"", b""),
        *,
        is_checked: bool = True,
    ) -> None:
        self._persistent = persistent
        self._priority = priority
        self.ttl_ms = ttl_ms
        self._annotations = annotations
        self._bare = bare
        self._form, self._framing, self.after = body
        self.is_checked = is_checked
        self._first = b""
        self._first_size = -1

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
        header = header_section(
            durable=self._persistent,
            priority=self._priority,
            ttl_ms=ttl_ms,
            first_acquirer=first_acquirer,
            delivery_count=delivery_count,
        )
        before = header + _annotations(_merged(self._annotations, added)) + self._bare + self._frame(size)
        if plain:
            self._first, self._first_size = before, size
        return before

    def around_offset(self, size: int) -> tuple[bytes, bytes]:
        """Return what goes before a body that a stream delivers for the first time, around the eight bytes
        (big endian) of the message's offset.
        """
        # a long that takes eight bytes, so that each offset fits in its place
        pair = _OFFSET_AS_BYTES + b"\x81" + bytes(8)
        header = header_section(
            durable=self._persistent,
            priority=self._priority,
            ttl_ms=self.ttl_ms,
            first_acquirer=True,
            delivery_count=0,
        )
        pairs = [pair, *(encoded for name, encoded in self._annotations if name != OFFSET.encode())]
        start = header + _annotations(pairs)
        at = start.index(pair, len(header)) + len(pair) - 8
        return start[:at], start[at + 8 :] + self._bare + self._frame(size)

    def _frame(self, size: int) -> bytes:
        if self._form == FORM_DATA:
            return _framing(size)
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
        codes = [code for code, _, _, _ in _sections(body)]
        _check_order(codes)
    except AmqpError:
        return False
    return bool(codes) and all(DATA <= code <= VALUE for code in codes)
