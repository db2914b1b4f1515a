"""Bodies of frames and what they hold (AMQP 1.0, parts 2 to 5), as named tuples made from a table.

A field that was left out has its default. `multiple` fields are tuples, empty where nothing is. States,
sources, targets and errors within are named tuples themselves; what none of them is stays a `Described`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error as StructError
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from protocols.amqp10 import types as t
from protocols.amqp10.constants import UINT_MAX
from protocols.amqp10.errors import AmqpError, malformed
from protocols.errors import LocalProtocolError

Fields: TypeAlias = "dict[Any, Any] | None"


class Error(NamedTuple):
    """Why something ended or was rejected (2.8.14)."""

    condition: str
    description: str | None = None
    info: Fields = None


class Open(NamedTuple):
    """Negotiate connection parameters (2.7.1); times are in milliseconds."""

    container_id: str
    hostname: str | None = None
    max_frame_size: int = UINT_MAX
    channel_max: int = 65_535
    idle_time_out: int | None = None
    outgoing_locales: tuple[str, ...] = ()
    incoming_locales: tuple[str, ...] = ()
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: Fields = None


class Begin(NamedTuple):
    """Begin a session on a channel (2.7.2)."""

    remote_channel: int | None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int = UINT_MAX
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: Fields = None


class Attach(NamedTuple):
    """Attach a link to a session (2.7.3); `role` is True for a receiver."""

    name: str
    handle: int
    role: bool
    snd_settle_mode: int = 2
    rcv_settle_mode: int = 0
    source: Any = None
    target: Any = None
    unsettled: dict[Any, Any] | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: Fields = None


class Flow(NamedTuple):
    """Update the state of a session and, with a handle, of a link (2.7.4)."""

    next_incoming_id: int | None
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool = False
    echo: bool = False
    properties: Fields = None


class Transfer(NamedTuple):
    """Transfer a message, or a part of one (2.7.5)."""

    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool = False
    rcv_settle_mode: int | None = None
    state: Any = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


class Disposition(NamedTuple):
    """Tell of a changed state of deliveries (2.7.6); without `last`, of one."""

    role: bool
    first: int
    last: int | None = None
    settled: bool = False
    state: Any = None
    batchable: bool = False


class Detach(NamedTuple):
    """Detach a link from a session (2.7.7)."""

    handle: int
    closed: bool = False
    error: Error | None = None


class End(NamedTuple):
    """End a session (2.7.8)."""

    error: Error | None = None


class Close(NamedTuple):
    """Close a connection (2.7.9)."""

    error: Error | None = None


class Received(NamedTuple):
    """The receiver has so much of a delivery (3.4.1)."""

    section_number: int
    section_offset: int


class Accepted(NamedTuple):
    """The message was taken (3.4.2)."""

    def __eq__(self, other: object) -> bool:
        """Return whether the other is one, too: tuples of no fields are all equal."""
        return type(other) is Accepted

    def __ne__(self, other: object) -> bool:
        return type(other) is not Accepted

    def __hash__(self) -> int:
        return hash(Accepted)


class Rejected(NamedTuple):
    """The message is invalid and was not taken (3.4.3)."""

    error: Error | None = None


class Released(NamedTuple):
    """The message was not, and will not be, acted upon (3.4.4)."""

    def __eq__(self, other: object) -> bool:
        """Return whether the other is one, too: tuples of no fields are all equal."""
        return type(other) is Released

    def __ne__(self, other: object) -> bool:
        return type(other) is not Released

    def __hash__(self) -> int:
        return hash(Released)


class Modified(NamedTuple):
    """The message was not acted upon, and is to be changed (3.4.5)."""

    delivery_failed: bool = False
    undeliverable_here: bool = False
    message_annotations: Fields = None


class Source(NamedTuple):
    """Where a link takes messages from (3.5.3)."""

    address: Any = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Fields = None
    distribution_mode: str | None = None
    filter: dict[Any, Any] | None = None
    default_outcome: Any = None
    outcomes: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()


class Target(NamedTuple):
    """Where a link brings messages to (3.5.4)."""

    address: Any = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Fields = None
    capabilities: tuple[str, ...] = ()


class DeleteOnClose(NamedTuple):
    """A dynamic node lives as long as the link that made it (3.5.10)."""


class DeleteOnNoLinks(NamedTuple):
    """A dynamic node lives as long as a link has it (3.5.11)."""


class DeleteOnNoMessages(NamedTuple):
    """A dynamic node lives as long as it has messages, and its link (3.5.12)."""


class DeleteOnNoLinksOrMessages(NamedTuple):
    """A dynamic node lives as long as it has messages, or a link (3.5.13)."""


class Coordinator(NamedTuple):
    """The target of a link that transactions are declared on (4.5.1)."""

    capabilities: tuple[str, ...] = ()


class Declare(NamedTuple):
    """Begin a transaction (4.5.2)."""

    global_id: Any = None


class Discharge(NamedTuple):
    """End a transaction (4.5.3); with `fail`, undo what was done in it."""

    txn_id: bytes
    fail: bool = False


class Declared(NamedTuple):
    """The transaction that was asked for is there (4.5.5)."""

    txn_id: bytes


class TransactionalState(NamedTuple):
    """The state of a delivery that belongs to a transaction (4.5.8)."""

    txn_id: bytes
    outcome: Any = None


class SaslMechanisms(NamedTuple):
    """The mechanisms that the server has (5.3.3.1)."""

    sasl_server_mechanisms: tuple[str, ...]


class SaslInit(NamedTuple):
    """Choose a mechanism (5.3.3.2)."""

    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None


class SaslChallenge(NamedTuple):
    """Ask the client for more (5.3.3.3)."""

    challenge: bytes


class SaslResponse(NamedTuple):
    """Answer a challenge (5.3.3.4)."""

    response: bytes


class SaslOutcome(NamedTuple):
    """Tell how the authentication ended (5.3.3.5)."""

    code: int
    additional_data: bytes | None = None


class Header(NamedTuple):
    """How a message is to be delivered (3.2.1)."""

    durable: bool = False
    priority: int = 4
    ttl: int | None = None
    first_acquirer: bool = False
    delivery_count: int = 0


class Properties(NamedTuple):
    """The properties of a message that stay as they are (3.2.4)."""

    message_id: Any = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: Any = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


# descriptor's code, its name, the type of each field; a field without a default is mandatory, save with a `?`
_TABLE: Final[tuple[tuple[type[Any], int, str, str], ...]] = (
    (
        Open,
        0x10,
        "open",
        "string string uint ushort uint symbols symbols symbols symbols map",
    ),
    (Begin, 0x11, "begin", "ushort? uint uint uint uint symbols symbols map"),
    (
        Attach,
        0x12,
        "attach",
        "string uint boolean ubyte ubyte described described map boolean uint ulong symbols symbols map",
    ),
    (Flow, 0x13, "flow", "uint? uint uint uint uint uint uint uint boolean boolean map"),
    (
        Transfer,
        0x14,
        "transfer",
        "uint uint binary uint boolean boolean ubyte described boolean boolean boolean",
    ),
    (Disposition, 0x15, "disposition", "boolean uint uint boolean described boolean"),
    (Detach, 0x16, "detach", "uint boolean error"),
    (End, 0x17, "end", "error"),
    (Close, 0x18, "close", "error"),
    (Error, 0x1D, "error", "symbol string map"),
    (Received, 0x23, "received", "uint ulong"),
    (Accepted, 0x24, "accepted", ""),
    (Rejected, 0x25, "rejected", "error"),
    (Released, 0x26, "released", ""),
    (Modified, 0x27, "modified", "boolean boolean map"),
    (
        Source,
        0x28,
        "source",
        "any uint symbol uint boolean map symbol map described symbols symbols",
    ),
    (Target, 0x29, "target", "any uint symbol uint boolean map symbols"),
    (DeleteOnClose, 0x2B, "delete-on-close", ""),
    (DeleteOnNoLinks, 0x2C, "delete-on-no-links", ""),
    (DeleteOnNoMessages, 0x2D, "delete-on-no-messages", ""),
    (DeleteOnNoLinksOrMessages, 0x2E, "delete-on-no-links-or-messages", ""),
    (Coordinator, 0x30, "coordinator", "symbols"),
    (Declare, 0x31, "declare", "any"),
    (Discharge, 0x32, "discharge", "binary boolean"),
    (Declared, 0x33, "declared", "binary"),
    (TransactionalState, 0x34, "transactional-state", "binary described"),
    (SaslMechanisms, 0x40, "sasl-mechanisms", "symbols"),
    (SaslInit, 0x41, "sasl-init", "symbol binary string"),
    (SaslChallenge, 0x42, "sasl-challenge", "binary"),
    (SaslResponse, 0x43, "sasl-response", "binary"),
    (SaslOutcome, 0x44, "sasl-outcome", "ubyte binary"),
    (Header, 0x70, "header", "boolean ubyte uint boolean uint"),
    (
        Properties,
        0x73,
        "properties",
        "message-id binary any string any message-id symbol symbol timestamp timestamp string uint string",
    ),
)

_MESSAGE_ID_TYPES: Final = (t.ULong, UUID, bytes, str)

# the Python types of a decoded field
_DECODED: Final[dict[str, tuple[type[Any], ...]]] = {
    "boolean": (bool,),
    "ubyte": (t.UByte,),
    "ushort": (t.UShort,),
    "uint": (t.UInt,),
    "ulong": (t.ULong,),
    "timestamp": (t.Timestamp,),
    "binary": (bytes,),
    "string": (str,),
    "symbol": (t.Symbol,),
    "map": (dict,),
    "message-id": _MESSAGE_ID_TYPES,
}


def _encode_symbols(values: tuple[str, ...]) -> bytes:
    return t.encode_array(t.symbols(*values))


def _encode_any(value: Any) -> bytes:
    return encode(value) if type(value) in _LAYOUTS else t.encode_value(value)


def _encode_map(value: dict[Any, Any]) -> bytes:
    return t.encode_map({key: _plain(item) for key, item in value.items()})


def _plain(value: Any) -> Any:
    """Return a value of a map with our named tuples as described lists."""
    return as_described(value) if type(value) in _LAYOUTS else value


_ENCODERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "boolean": lambda value: b"\x41" if value else b"\x42",
    "ubyte": t.encode_ubyte,
    "ushort": t.encode_ushort,
    "uint": t.encode_uint,
    "ulong": t.encode_ulong,
    "timestamp": lambda value: t.encode_value(t.Timestamp(value)),
    "binary": t.encode_binary,
    "string": t.encode_string,
    "symbol": t.encode_symbol,
    "symbols": _encode_symbols,
    "map": _encode_map,
    "error": _encode_any,
    "described": _encode_any,
    "message-id": t.encode_value,
    "any": t.encode_value,
}


class _Field(NamedTuple):
    name: str
    kind: str
    is_mandatory: bool
    default: Any
    types: tuple[type[Any], ...] | None
    encode: Callable[[Any], bytes]


class _Layout(NamedTuple):
    cls: type[Any]
    name: str
    head: bytes
    fields: tuple[_Field, ...]


def _layout(cls: type[Any], code: int, name: str, kinds: str) -> _Layout:
    fields = []
    for field, kind in zip(cls._fields, kinds.split(), strict=True):
        is_mandatory = field not in cls._field_defaults and not kind.endswith("?")
        kind = kind.rstrip("?")
        default = cls._field_defaults.get(field)
        fields.append(_Field(field, kind, is_mandatory, default, _DECODED.get(kind), _ENCODERS[kind]))
    return _Layout(cls, name, b"\x00\x53" + bytes((code,)), tuple(fields))


_LAYOUTS: Final[dict[type[Any], _Layout]] = {row[0]: _layout(*row) for row in _TABLE}
_BY_DESCRIPTOR: Final[dict[Any, _Layout]] = {
    **{code: _LAYOUTS[cls] for cls, code, _, _ in _TABLE},
    **{f"amqp:{name}:list": _LAYOUTS[cls] for cls, _, name, _ in _TABLE},
}
CODES: Final[dict[type[Any], int]] = {cls: code for cls, code, _, _ in _TABLE}


def decode(data: bytes, pos: int, end: int) -> tuple[Any, int]:
    """Decode the performative (or any other of these) at `pos`; gives also the position after it.

    Raises AmqpError: decode-error for what is malformed, invalid-field for a mandatory field left out.
    """
    value, pos = t.decode_value(data, pos, end)
    if type(value) is not t.Described:
        raise malformed("a value without a descriptor is no performative")
    result = compose(value)
    if type(result) is t.Described:
        raise malformed(f"no performative has the descriptor {_shown(value.descriptor)}")
    return result, pos


def _shown(descriptor: Any) -> str:
    if isinstance(descriptor, int):
        return f"0x{int(descriptor):x}"
    return str(descriptor)[:64]


def compose(value: t.Described) -> Any:
    """Make the named tuple of a described list; what has another descriptor comes back as it is."""
    descriptor = value.descriptor
    if type(descriptor) not in (t.ULong, t.Symbol):
        return value
    layout = _BY_DESCRIPTOR.get(descriptor)
    if layout is None:
        return value
    items = value.value
    if type(items) is not list:
        raise malformed(f"{layout.name} is no list")
    if len(items) > len(layout.fields):
        raise malformed(f"{layout.name} has {len(items)} fields")
    return layout.cls._make([_field(layout, field, items, at) for at, field in enumerate(layout.fields)])


def _field(layout: _Layout, field: _Field, items: list[Any], at: int) -> Any:
    value = items[at] if at < len(items) else None
    if value is None:
        if field.is_mandatory:
            raise AmqpError("amqp:invalid-field", f"{layout.name} needs {_wire_name(field.name)}")
        return field.default
    if field.types is not None:
        if type(value) in field.types:
            return value
    elif field.kind == "symbols":
        if type(value) is t.Symbol:
            return (value,)
        if type(value) is t.Array and (value.kind == "symbol" or not value) and value.descriptor is None:
            return tuple(value)
    elif field.kind == "any":
        return value
    elif type(value) is t.Described:
        composed = compose(value)
        if field.kind == "described" or type(composed) is Error:
            return composed
    raise malformed(f"{_wire_name(field.name)} of {layout.name} has a wrong type")


def _wire_name(name: str) -> str:
    return name.replace("_", "-")


def _encoded_fields(layout: _Layout, value: Any) -> list[bytes]:
    fields: list[bytes] = []
    kept = 0  # fields up to the last that is there
    for field, item in zip(layout.fields, value, strict=True):
        # a default that is told or not means the same, and None is no value
        if item is None or (item == field.default and not field.is_mandatory):
            fields.append(b"\x40")
        else:
            try:
                fields.append(field.encode(item))
            except (StructError, TypeError, AttributeError, OverflowError):
                raise LocalProtocolError(f"{field.name} of {layout.name} cannot be {item!r}") from None
            kept = len(fields)
    return fields[:kept]


def encode(value: Any) -> bytes:
    """Encode a performative, or any other of these, with its descriptor; a Described goes as it is.

    Raises LocalProtocolError for a field that its type has no room for.
    """
    layout = _LAYOUTS.get(type(value))
    if layout is None:
        return t.encode_value(value)
    return layout.head + t.encode_encoded_list(_encoded_fields(layout, value))


def as_described(value: Any) -> t.Described:
    """Return one of these named tuples as the described list that it goes as, to be put into a map."""
    described: t.Described = t.decode_whole(encode(value))
    return described
