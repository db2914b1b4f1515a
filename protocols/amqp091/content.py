"""Content properties: the flags and property list of a content header frame (AMQP 0.9.1, 4.2.6.1).

Properties travel through the broker as the raw bytes the publisher sent. They are checked once
(`check_properties`), looked at only where something needs a field, and changed by splicing.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import repeat
from struct import Struct
from typing import Any, Final

from pamqp import commands

from protocols.amqp091 import tables
from protocols.amqp091.constants import SYNTAX_ERROR
from protocols.errors import ProtocolError

Properties = commands.Basic.Properties

_FLAGS: Final = Struct(">H")
_U32: Final = Struct(">I")

_SHORT_STRING: Final = 0
_TABLE: Final = -1
_OCTET: Final = 1
_TIMESTAMP: Final = 8

# (flag, pamqp's name, kind) in wire order; kinds above 0 are widths in bytes
_FIELDS: Final = (
    (0x8000, "content_type", _SHORT_STRING),
    (0x4000, "content_encoding", _SHORT_STRING),
    (0x2000, "headers", _TABLE),
    (0x1000, "delivery_mode", _OCTET),
    (0x0800, "priority", _OCTET),
    (0x0400, "correlation_id", _SHORT_STRING),
    (0x0200, "reply_to", _SHORT_STRING),
    (0x0100, "expiration", _SHORT_STRING),
    (0x0080, "message_id", _SHORT_STRING),
    (0x0040, "timestamp", _TIMESTAMP),
    (0x0020, "message_type", _SHORT_STRING),
    (0x0010, "user_id", _SHORT_STRING),
    (0x0008, "app_id", _SHORT_STRING),
    (0x0004, "cluster_id", _SHORT_STRING),
)
_HEADERS_FLAG: Final = 0x2000
_DELIVERY_MODE_FLAG: Final = 0x1000
_PRIORITY_FLAG: Final = 0x0800
_EXPIRATION_FLAG: Final = 0x0100
_REPLY_TO_FLAG: Final = 0x0200
_ASKING_FLAGS: Final = _PRIORITY_FLAG | _EXPIRATION_FLAG | 0x0010  # user ID
_UNKNOWN_FLAGS: Final = (
    0x0003  # bit 1 is unassigned, bit 0 announces a second flag word of unknown properties
)


def _malformed(what: str) -> ProtocolError:
    return ProtocolError(SYNTAX_ERROR, f"malformed content properties: {what}")


@lru_cache(maxsize=512)
def _plan(flags: int) -> tuple[int, ...]:
    """Return the fields to skip for these flags: their kinds in order, neighbouring fixed widths added up."""
    plan: list[int] = []
    for flag, _, kind in _FIELDS:
        if flags & flag:
            if kind > 0 and plan and plan[-1] > 0:
                plan[-1] += kind
            else:
                plan.append(kind)
    return tuple(plan)


def check_properties(raw: bytes) -> int:
    """Check that the fields the flags announce fill `raw` exactly, and give what most publishes need to know:
    the delivery mode, 0 when absent; -1 where there may be more: a priority, an expiration, a user ID.

    Raises ProtocolError (502). Strings are not decoded: a correlation id that is not UTF-8 passes unchanged,
    as it does in other brokers.
    """
    end = len(raw)
    if end < 2:
        raise _malformed("flags cut off")
    flags = _FLAGS.unpack_from(raw)[0]
    if flags & _UNKNOWN_FLAGS:
        raise _malformed(f"unknown flags 0x{flags:04x}")
    pos = 2
    mode_at = 0
    for kind in _plan(flags):
        if kind > 0:
            mode_at = mode_at or pos
            pos += kind
        elif kind == _TABLE:
            pos = tables.skip_table(raw, pos, end)
        elif pos < end:
            pos += 1 + raw[pos]
        else:
            raise _malformed("string missing")
    if pos != end:
        raise _malformed("length does not match the flags")
    if flags & _ASKING_FLAGS:
        return -1
    # of the properties of a fixed width it is the first
    return raw[mode_at] if flags & _DELIVERY_MODE_FLAG else 0


def decode_properties(raw: bytes) -> Properties:
    """Decode all fields as a pamqp Properties object; absent ones are None.

    Strings that are not UTF-8 get replacement characters. Raises ProtocolError (502) for bytes that
    `check_properties` would refuse.
    """
    check_properties(raw)
    properties = Properties()
    for name, value in decode_fields(raw).items():
        setattr(properties, name, dict(value) if name == "headers" else value)
    return properties


def decode_fields(raw: bytes) -> dict[str, Any]:
    """Decode the fields that are there, by pamqp's names; `headers` as pairs in order and with duplicates.

    As `decode_properties`, of bytes that were validated.
    """
    fields: dict[str, Any] = {}
    flags = _FLAGS.unpack_from(raw)[0]
    end = len(raw)
    pos = 2
    for flag, name, kind in _FIELDS:
        if not flags & flag:
            continue
        if kind == _SHORT_STRING:
            start = pos + 1
            pos = start + raw[pos]
            fields[name] = raw[start:pos].decode(errors="replace")
        elif kind == _TABLE:
            fields[name], pos = tables.decode_pairs(raw, pos, end)
        elif kind == _OCTET:
            fields[name] = raw[pos]
            pos += 1
        else:
            fields[name] = tables.decode_timestamp(raw, pos)
            pos += _TIMESTAMP
    return fields


def encode_properties(properties: Properties, headers: Sequence[tuple[str, Any]] | None = None) -> bytes:
    """Encode a Properties object as raw properties; fields that are None or "" are left out.

    `headers`, when given, takes the place of `properties.headers` and keeps order and duplicates. Raises
    LocalProtocolError for a string above 255 bytes.
    """
    flags = 0
    parts = [b""]
    for flag, name, kind in _FIELDS:
        value: Any = getattr(properties, name)
        if kind == _TABLE:
            pairs: Iterable[tuple[str, Any]] | None = headers
            if pairs is None and value is not None:
                pairs = value.items()
            if pairs is None:
                continue
            parts.append(tables.encode_table(pairs))
        elif value is None or value == "":
            continue
        elif kind == _SHORT_STRING:
            parts.append(tables.short_string(value))
        elif kind == _OCTET:
            parts.append(bytes((value,)))
        else:
            assert isinstance(value, datetime)
            parts.append(tables.encode_timestamp(value))
        flags |= flag
    parts[0] = _FLAGS.pack(flags)
    return b"".join(parts)


def _headers_at(raw: bytes, flags: int) -> int:
    """Return where the headers table is, or would be."""
    pos = 2
    if flags & 0x8000:
        pos += 1 + raw[pos]
    if flags & 0x4000:
        pos += 1 + raw[pos]
    return pos


def decode_headers(raw: bytes) -> list[tuple[str, Any]]:
    """Decode only the headers, as pairs in the publisher's order and with duplicates; [] when there are
    none.
    """
    flags = _FLAGS.unpack_from(raw)[0]
    if not flags & _HEADERS_FLAG:
        return []
    return tables.decode_pairs(raw, _headers_at(raw, flags), len(raw))[0]


def peek_fields(raw: bytes) -> tuple[int, int, bytes | None]:
    """Return delivery mode (0 when absent), priority (0 when absent) and expiration (None when absent).

    What routing a publish needs to know, without decoding the rest; `raw` must have been validated.
    """
    flags = _FLAGS.unpack_from(raw)[0]
    delivery_mode = priority = 0
    pos = _headers_at(raw, flags)
    if flags & _HEADERS_FLAG:
        pos += 4 + _U32.unpack_from(raw, pos)[0]
    if flags & _DELIVERY_MODE_FLAG:
        delivery_mode = raw[pos]
        pos += 1
    if flags & _PRIORITY_FLAG:
        priority = raw[pos]
        pos += 1
    if not flags & _EXPIRATION_FLAG:
        return delivery_mode, priority, None
    if flags & 0x0400:
        pos += 1 + raw[pos]
    if flags & 0x0200:
        pos += 1 + raw[pos]
    return delivery_mode, priority, raw[pos + 1 : pos + 1 + raw[pos]]


def _without(raw: bytes, at: int, names: set[bytes]) -> bytes:
    """Return the entries of the table at `at` but those called so."""
    spans = tables.entry_spans(raw, at, len(raw))
    return b"".join([raw[first:last] for name, first, last in spans if name not in names])


def without_headers(raw: bytes, names: Iterable[str]) -> bytes:
    """Return `raw` without the headers of these names; everything else stays byte for byte."""
    flags = _FLAGS.unpack_from(raw)[0]
    if not flags & _HEADERS_FLAG:
        return raw
    at = _headers_at(raw, flags)
    end = at + 4 + _U32.unpack_from(raw, at)[0]
    kept = _without(raw, at, {name.encode() for name in names})
    return b"".join((raw[:at], _U32.pack(len(kept)), kept, raw[end:]))


def rename_header(raw: bytes, name: str, other: str) -> bytes:
    """Return `raw` with the headers called `name` under the name `other`; everything else stays byte for
    byte.
    """
    encoded = name.encode()
    first, end = headers_span(raw)
    if encoded not in raw[first:end]:
        return raw
    entries = [
        tables.encode_name(other) + raw[start + 1 + len(encoded) : stop]
        if found == encoded
        else raw[start:stop]
        for found, start, stop in tables.entry_spans(raw, first, len(raw))
    ]
    table = b"".join(entries)
    return b"".join((raw[:first], _U32.pack(len(table)), table, raw[end:]))


def headers_span(raw: bytes) -> tuple[int, int]:
    """Return where the headers table begins and ends, its length included; an empty span when there is
    none.
    """
    flags = _FLAGS.unpack_from(raw)[0]
    at = _headers_at(raw, flags)
    return at, at + 4 + _U32.unpack_from(raw, at)[0] if flags & _HEADERS_FLAG else at


def with_headers_table(raw: bytes, span: tuple[int, int], table: bytes) -> bytes:
    """Return `raw` with another headers table (its length included) in the place of that at `span`; b"" for
    none.
    """
    flags = _FLAGS.unpack_from(raw)[0] & ~_HEADERS_FLAG | (_HEADERS_FLAG if table else 0)
    return b"".join((_FLAGS.pack(flags), raw[2 : span[0]], table, raw[span[1] :]))


def _field_at(raw: bytes, flags: int, flag: int) -> int:
    """Return where the field of this flag is, or would be."""
    pos = 2
    for kind in _plan(flags & ~(2 * flag - 1)):
        if kind > 0:
            pos += kind
        elif kind == _TABLE:
            pos += 4 + _U32.unpack_from(raw, pos)[0]
        else:
            pos += 1 + raw[pos]
    return pos


def reply_to(raw: bytes) -> bytes:
    """Return where replies are to go; b"" when that is not said."""
    flags = _FLAGS.unpack_from(raw)[0]
    if not flags & _REPLY_TO_FLAG:
        return b""
    pos = _field_at(raw, flags, _REPLY_TO_FLAG)
    return raw[pos + 1 : pos + 1 + raw[pos]]


def with_reply_to(raw: bytes, value: bytes) -> bytes:
    """Return `raw` with another reply_to in the place of the one it has; everything else stays byte for
    byte.
    """
    pos = _field_at(raw, _FLAGS.unpack_from(raw)[0], _REPLY_TO_FLAG)
    return b"".join((raw[:pos], bytes((len(value),)), value, raw[pos + 1 + raw[pos] :]))


def without_expiration(raw: bytes) -> bytes:
    """Return `raw` without its expiration; everything else stays byte for byte."""
    flags = _FLAGS.unpack_from(raw)[0]
    if not flags & _EXPIRATION_FLAG:
        return raw
    pos = _field_at(raw, flags, _EXPIRATION_FLAG)
    return b"".join((_FLAGS.pack(flags & ~_EXPIRATION_FLAG), raw[2:pos], raw[pos + 1 + raw[pos] :]))


def append_headers(raw: bytes, extra: Sequence[tuple[str, Any]]) -> bytes:
    """Return `raw` with these headers added, each replacing what had its name; everything else stays byte for
    byte.

    `raw` must have been validated. Raises LocalProtocolError for a value no field type can hold.
    """
    added = b"".join([tables.encode_entry(name, value) for name, value in extra])
    return _append(raw, added, [tables.encode_name(name) for name, _ in extra])


def append_encoded(raw: bytes, entries: bytes) -> bytes:
    """Return `raw` with encoded table entries added, of names that it does not have."""
    return _append(raw, entries, ())


def _append(raw: bytes, added: bytes, names: Sequence[bytes]) -> bytes:
    """Add encoded entries; `names` are theirs, with their length octets."""
    flags = _FLAGS.unpack_from(raw)[0]
    at = _headers_at(raw, flags)
    if not flags & _HEADERS_FLAG:
        return b"".join(
            (_FLAGS.pack(flags | _HEADERS_FLAG), raw[2:at], _U32.pack(len(added)), added, raw[at:])
        )
    start = at + 4
    end = start + _U32.unpack_from(raw, at)[0]
    kept = raw[start:end]
    for name in names:
        if name in kept:  # most often not there: then no entry is looked at
            kept = _without(raw, at, {name[1:] for name in names})
            break
    return b"".join((raw[:at], _U32.pack(len(kept) + len(added)), kept, added, raw[end:]))


class NumberAppender:
    """Adds the same headers, but for numbers that differ, to the properties of many messages."""

    __slots__ = ("_names", "_pack", "_prefixes")

    def __init__(self, fixed: Sequence[tuple[str, Any]], numbered: Sequence[str]) -> None:
        """Take names of headers: `fixed` come first, then a 64-bit integer for each of `numbered`, one at
        least.
        """
        names = [name for name, _ in fixed] + list(numbered)
        self._names = [tables.encode_name(name) for name in names]
        # what `encode_entry` gives for an integer is its name, one octet and eight for the number
        self._prefixes = [tables.encode_entry(name, 0)[:-8] for name in numbered]
        self._prefixes[0] = (
            b"".join([tables.encode_entry(name, value) for name, value in fixed]) + self._prefixes[0]
        )
        self._pack = Struct(">" + "".join([f"{len(prefix)}sq" for prefix in self._prefixes])).pack

    def append(self, properties: Iterable[bytes], columns: Sequence[Sequence[int]]) -> list[bytes]:
        """Append as `append_headers`, for each; `columns` has the numbers of all messages, name by name."""
        fields: list[Iterable[Any]] = []
        for prefix, column in zip(self._prefixes, columns, strict=True):
            fields += (repeat(prefix), column)
        names = self._names
        added = map(self._pack, *fields)
        return [_append(raw, entries, names) for raw, entries in zip(properties, added, strict=True)]
