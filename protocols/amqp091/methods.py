"""Method frames: pamqp's command classes, read strictly and written without pamqp's name rules.

pamqp's `unmarshal` accepts values that are cut off, and its `validate`, called when a command is built and
when it is marshalled, refuses names with a `$`, which every `$queue/...` address has. The classes and field
types are pamqp's; reading and writing by them is done here.
"""

from struct import Struct
from struct import error as StructError
from typing import Any, Final, TypeVar, cast

from pamqp import base, commands

from protocols.amqp091 import tables
from protocols.amqp091.constants import FRAME_END_BYTE, FRAME_METHOD, NOT_IMPLEMENTED, SYNTAX_ERROR
from protocols.errors import LocalProtocolError, ProtocolError

F = TypeVar("F", bound=base.Frame)

_FRAME_AND_INDEX: Final = Struct(">BHII")
_U32: Final = Struct(">I")
_NUMBERS: Final[dict[str, Struct]] = {
    "octet": Struct(">B"),
    "short": Struct(">H"),
    "long": Struct(">I"),
    "longlong": Struct(">Q"),
}

_CLASSES = cast(dict[int, type[base.Frame]], commands.INDEX_MAPPING)

# method index -> (class, ((argument, type), ...))
_LAYOUTS: Final[dict[int, tuple[type[base.Frame], tuple[tuple[str, str], ...]]]] = {
    index: (cls, tuple((argument, cls.amqp_type(argument)) for argument in cls.attributes()))
    for index, cls in _CLASSES.items()
}


class AnyNames(base.Frame):
    """Checks nothing when it is made: names were checked when they came in, and may be any."""

    def validate(self) -> None: ...


_WITH_ANY_NAMES: Final[dict[type, type]] = {}


def unchecked(kind: type[F], **arguments: Any) -> F:
    """Return a method of this class for a broker, whose names may be any."""
    found = _WITH_ANY_NAMES.get(kind)
    if found is None:
        found = _WITH_ANY_NAMES[kind] = type(kind.__name__, (AnyNames, kind), {})
    return cast(F, found(**arguments))


class QueueDeclareOk(AnyNames, commands.Queue.DeclareOk): ...


class BasicReturn(AnyNames, commands.Basic.Return): ...


class BasicDeliver(AnyNames, commands.Basic.Deliver): ...


class BasicGetOk(AnyNames, commands.Basic.GetOk): ...


def is_known(index: int) -> bool:
    """Return whether a method with this index (class id << 16 | method id) exists."""
    return index in _LAYOUTS


def _decode_string(payload: bytes, pos: int, kind: str) -> tuple[str | bytes, int]:
    if kind == "shortstr":
        start = pos + 1
        end = start + payload[pos]
    else:
        start = pos + 4
        end = start + _U32.unpack_from(payload, pos)[0]
    if end > len(payload):
        raise ValueError("string cut off")
    raw = payload[start:end]
    if kind == "longstr":
        return raw, end  # security data: bytes
    return raw.decode(), end


def _decode_arguments(method: base.Frame, layout: tuple[tuple[str, str], ...], payload: bytes) -> None:
    pos = 4
    bit = 0  # position in the current octet of packed bits; 0 starts a new octet
    value: Any
    for argument, kind in layout:
        if kind == "bit":
            if bit == 0:
                pos += 1
            value = bool(payload[pos - 1] >> bit & 1)
            bit = (bit + 1) % 8
        else:
            bit = 0
            number = _NUMBERS.get(kind)
            if number is not None:
                value = number.unpack_from(payload, pos)[0]
                pos += number.size
            elif kind == "table":
                pairs, pos = tables.decode_pairs(payload, pos, len(payload))
                value = dict(pairs)
                if argument == "arguments" and len(value) < len(pairs):
                    # illegal by 4.2.5.5; which of them counts would be a guess
                    raise ProtocolError(SYNTAX_ERROR, f"an argument is there twice: {_twice(pairs)}")
            else:
                value, pos = _decode_string(payload, pos, kind)
        setattr(method, argument, value)
    if pos != len(payload):
        raise ValueError("arguments do not fill the frame")


def _twice(pairs: list[tuple[str, Any]]) -> str:
    names = [name for name, _ in pairs]
    return next(name for name in names if names.count(name) > 1)


def decode_method(payload: bytes) -> base.Frame:
    """Decode the command in a method frame's payload; long strings outside tables stay bytes.

    Raises ProtocolError: 540 for a method that does not exist, 502 for arguments that are cut off, too long,
    malformed, or a short string that is not UTF-8.
    """
    if len(payload) < 4:
        raise ProtocolError(SYNTAX_ERROR, "method frame without a method")
    index = _U32.unpack_from(payload)[0]
    found = _LAYOUTS.get(index)
    if found is None:
        raise ProtocolError(NOT_IMPLEMENTED, "no such method", class_id=index >> 16, method_id=index & 0xFFFF)
    cls, layout = found
    method = cls.__new__(cls)  # not __init__: it validates
    try:
        _decode_arguments(method, layout, payload)
    except (ValueError, IndexError, ArithmeticError, ProtocolError, StructError) as error:
        reason = error.reason if isinstance(error, ProtocolError) else f"malformed {cls.name.lower()}"
        raise ProtocolError(SYNTAX_ERROR, reason, class_id=index >> 16, method_id=index & 0xFFFF) from error
    return method


def encode_method(channel: int, method: base.Frame) -> bytes:
    """Encode the whole frame. Raises LocalProtocolError for an argument the wire cannot hold."""
    parts = [b""]
    bits = -1
    offset = 0
    for argument in method.attributes():
        kind = method.amqp_type(argument)
        value: Any = getattr(method, argument)
        if kind == "bit":
            if bits < 0 or offset == 8:
                if bits >= 0:
                    parts.append(bytes((bits,)))
                bits = offset = 0
            bits |= bool(value) << offset
            offset += 1
            continue
        if bits >= 0:
            parts.append(bytes((bits,)))
            bits = -1
        parts.append(_encode_argument(kind, value))
    if bits >= 0:
        parts.append(bytes((bits,)))
    parts.append(FRAME_END_BYTE)
    size = sum(map(len, parts)) + 3  # method index in, end octet out
    parts[0] = _FRAME_AND_INDEX.pack(FRAME_METHOD, channel, size, method.index)
    return b"".join(parts)


def _encode_argument(kind: str, value: Any) -> bytes:
    number = _NUMBERS.get(kind)
    if number is not None:
        try:
            return number.pack(value or 0)
        except StructError:
            raise LocalProtocolError(f"{value!r} is not a {kind}") from None
    if kind == "shortstr":
        return tables.short_string(value or "")
    if kind == "table":
        return tables.encode_table((value or {}).items())
    raw = value.encode() if isinstance(value, str) else value or b""
    return _U32.pack(len(raw)) + raw
