"""The MQTT 5 property block, section 2.2.2, driven by one table."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, replace
from struct import Struct
from typing import Any, Final, NamedTuple

from config import limits
from protocols.errors import LocalProtocolError, ProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt.wire import (
    decode_binary,
    decode_text,
    decode_u16,
    decode_varint,
    encode_binary,
    encode_text,
    encode_varint,
)

USER_PROPERTY: Final = 0x26
SUBSCRIPTION_IDENTIFIER: Final = 0x0B
MESSAGE_EXPIRY_INTERVAL: Final = 0x02
TOPIC_ALIAS: Final = 0x23
_USER_PROPERTY: Final = bytes((USER_PROPERTY,))

# Zero is a protocol error for these: sections 3.1.2.11.3, 3.1.2.11.4, 3.3.2.3.8.
_NEVER_ZERO: Final = frozenset({SUBSCRIPTION_IDENTIFIER, 0x21, 0x27})


def _decode_bool(block: bytes, position: int) -> tuple[int, int]:
    if position >= len(block):
        raise ProtocolError(c.MALFORMED_PACKET, "property cut short")
    if block[position] > 1:
        raise ProtocolError(c.PROTOCOL_ERROR, "property must be 0 or 1")
    return block[position], position + 1


def _decode_u32(block: bytes, position: int) -> tuple[int, int]:
    if position + 4 > len(block):
        raise ProtocolError(c.MALFORMED_PACKET, "property cut short")
    return int.from_bytes(block[position : position + 4], "big"), position + 4


def _decode_pair(block: bytes, position: int) -> tuple[tuple[str, str], int]:
    name, position = decode_text(block, position)
    value, position = decode_text(block, position)
    return (name, value), position


def _encode_pair(pair: tuple[str, str]) -> bytes:
    return encode_text(pair[0]) + encode_text(pair[1])


class _Type(NamedTuple):
    """How values of a property's type are read, at a place in a block, and written."""

    decode: Callable[[bytes, int], tuple[Any, int]]
    encode: Callable[[Any], bytes]


_BOOL: Final = _Type(_decode_bool, Struct("B").pack)  # a byte that may only be 0 or 1
_U16: Final = _Type(decode_u16, Struct(">H").pack)
_U32: Final = _Type(_decode_u32, Struct(">I").pack)
_VARINT: Final = _Type(decode_varint, encode_varint)
_TEXT: Final = _Type(decode_text, encode_text)
_BINARY: Final = _Type(decode_binary, encode_binary)
_PAIR: Final = _Type(_decode_pair, _encode_pair)

_EVERYWHERE: Final = frozenset(range(c.WILL, c.AUTH + 1)) - {c.PINGREQ, c.PINGRESP}
_ANSWERS: Final = _EVERYWHERE - {c.WILL, c.CONNECT, c.PUBLISH, c.SUBSCRIBE, c.UNSUBSCRIBE}
_MESSAGE: Final = frozenset((c.PUBLISH, c.WILL))
_AUTHENTICATION: Final = frozenset((c.CONNECT, c.CONNACK, c.AUTH))


def _one(identifier: int, kind: _Type, packets: Collection[int]) -> Any:
    """Make a property by its identifier, type, and the packets that may carry it, table 2-4."""
    return field(default=None, metadata={"entry": (identifier, kind, packets)})


def _many(identifier: int, kind: _Type, packets: Collection[int]) -> Any:
    """Make one that may be given several times."""
    return field(default_factory=list, metadata={"entry": (identifier, kind, packets)})


@dataclass(slots=True, repr=False)
class Properties:
    """The properties of one packet. None means absent; the two lists keep order and duplicates.

    `subscription_identifiers` holds at most one in SUBSCRIBE, any number in a PUBLISH from the server.
    """

    payload_format_indicator: int | None = _one(0x01, _BOOL, _MESSAGE)
    message_expiry_interval_s: int | None = _one(0x02, _U32, _MESSAGE)
    content_type: str | None = _one(0x03, _TEXT, _MESSAGE)
    response_topic: str | None = _one(0x08, _TEXT, _MESSAGE)
    correlation_data: bytes | None = _one(0x09, _BINARY, _MESSAGE)
    subscription_identifiers: list[int] = _many(SUBSCRIPTION_IDENTIFIER, _VARINT, (c.PUBLISH, c.SUBSCRIBE))
    session_expiry_interval_s: int | None = _one(0x11, _U32, (c.CONNECT, c.CONNACK, c.DISCONNECT))
    assigned_client_identifier: str | None = _one(0x12, _TEXT, (c.CONNACK,))
    server_keep_alive_s: int | None = _one(0x13, _U16, (c.CONNACK,))
    authentication_method: str | None = _one(0x15, _TEXT, _AUTHENTICATION)
    authentication_data: bytes | None = _one(0x16, _BINARY, _AUTHENTICATION)
    request_problem_information: int | None = _one(0x17, _BOOL, (c.CONNECT,))
    will_delay_interval_s: int | None = _one(0x18, _U32, (c.WILL,))
    request_response_information: int | None = _one(0x19, _BOOL, (c.CONNECT,))
    response_information: str | None = _one(0x1A, _TEXT, (c.CONNACK,))
    server_reference: str | None = _one(0x1C, _TEXT, (c.CONNACK, c.DISCONNECT))
    reason_string: str | None = _one(0x1F, _TEXT, _ANSWERS)
    receive_maximum: int | None = _one(0x21, _U16, (c.CONNECT, c.CONNACK))
    topic_alias_maximum: int | None = _one(0x22, _U16, (c.CONNECT, c.CONNACK))
    topic_alias: int | None = _one(TOPIC_ALIAS, _U16, (c.PUBLISH,))
    maximum_qos: int | None = _one(0x24, _BOOL, (c.CONNACK,))
    retain_available: int | None = _one(0x25, _BOOL, (c.CONNACK,))
    user_properties: list[tuple[str, str]] = _many(USER_PROPERTY, _PAIR, _EVERYWHERE)
    maximum_packet_size_bytes: int | None = _one(0x27, _U32, (c.CONNECT, c.CONNACK))
    wildcard_subscription_available: int | None = _one(0x28, _BOOL, (c.CONNACK,))
    subscription_identifier_available: int | None = _one(0x29, _BOOL, (c.CONNACK,))
    shared_subscription_available: int | None = _one(0x2A, _BOOL, (c.CONNACK,))

    def __repr__(self) -> str:
        present = ((name, getattr(self, name)) for name in self.__slots__)
        inside = ", ".join(f"{name}={value!r}" for name, value in present if value not in (None, []))
        return f"Properties({inside})"

    def without_information(self) -> "Properties":
        """Copy without what only explains: reason string and user properties."""
        return self.copy(reason_string=None, user_properties=[])

    def copy(self, **changes: Any) -> "Properties":
        """Return another object with the same properties but for `changes`; the lists are copied too."""
        lists = {
            "subscription_identifiers": self.subscription_identifiers[:],
            "user_properties": self.user_properties[:],
        }
        return replace(self, **{**lists, **changes})


PROPERTIES: Final[dict[int, tuple[str, _Type, Collection[int]]]] = {
    entry[0]: (each.name, *entry[1:]) for each in fields(Properties) for entry in [each.metadata["entry"]]
}
"""By identifier: attribute, type, and the packets that may carry it."""

NO_PROPERTIES: Final = Properties()
"""To be sent; nothing is ever added to it."""


def expiry_interval_at(block: bytes) -> int:
    """Return where in a property block of a PUBLISH the four bytes of the message expiry interval are; 0:
    nowhere.

    Raises ProtocolError for a block that does not parse.
    """
    position = 0
    while position < len(block):
        identifier, position = decode_varint(block, position)
        if identifier == MESSAGE_EXPIRY_INTERVAL:
            return position
        entry = PROPERTIES.get(identifier)
        if entry is None:
            raise ProtocolError(c.MALFORMED_PACKET, f"property 0x{identifier:02x} is not known")
        _, position = entry[1].decode(block, position)
    return 0


def decode_properties(block: bytes, packet_type: int) -> Properties:
    """Read a property block without its length; `packet_type` may be `constants.WILL`.

    Raises ProtocolError: 0x81 for an identifier the packet may not carry or bytes that do not parse, 0x82
    for a property given twice or with a forbidden value, 0x97 for too many user properties.
    """
    properties = Properties()
    seen: set[int] = set()
    position = 0
    end = len(block)
    while position < end:
        identifier, position = decode_varint(block, position)
        entry = PROPERTIES.get(identifier)
        if entry is None or packet_type not in entry[2]:
            where = c.PACKET_NAMES[packet_type] if packet_type else "a will"
            raise ProtocolError(c.MALFORMED_PACKET, f"property 0x{identifier:02x} not allowed in {where}")
        name, kind, _ = entry
        value, position = kind.decode(block, position)
        if identifier == USER_PROPERTY:
            pairs = properties.user_properties
            if len(pairs) >= limits.MQTT_USER_PROPERTIES_MAX:
                raise ProtocolError(c.QUOTA_EXCEEDED, "too many user properties")
            pairs.append(value)
            continue
        if identifier in _NEVER_ZERO and value == 0:
            raise ProtocolError(c.PROTOCOL_ERROR, f"{name} must not be 0")
        if identifier == SUBSCRIPTION_IDENTIFIER:
            identifiers = properties.subscription_identifiers
            if identifiers and packet_type == c.SUBSCRIBE:
                raise ProtocolError(c.PROTOCOL_ERROR, "more than one subscription identifier")
            if len(identifiers) >= limits.MQTT_USER_PROPERTIES_MAX:
                raise ProtocolError(c.QUOTA_EXCEEDED, "too many subscription identifiers")
            identifiers.append(value)
            continue
        if identifier in seen:
            raise ProtocolError(c.PROTOCOL_ERROR, f"{name} given twice")
        seen.add(identifier)
        setattr(properties, name, value)
    return properties


def encode_properties(properties: Properties, packet_type: int) -> bytes:
    """Encode the property block without its length, identifiers ascending.

    Raises LocalProtocolError for a property the packet may not carry.
    """
    parts: list[bytes] = []
    for identifier, (name, kind, packets) in PROPERTIES.items():
        value = getattr(properties, name)
        if value is None or value == []:
            continue
        if packet_type not in packets:
            raise LocalProtocolError(f"{name} not allowed in packet type {packet_type}")
        for one in value if isinstance(value, list) else (value,):
            parts.append(bytes((identifier,)))
            parts.append(kind.encode(one))
    return b"".join(parts)


def encode_user_property(name: bytes, value: bytes) -> bytes:
    """Encode a user property as it stands in a property block, without looking at what it holds."""
    return b"".join(
        (_USER_PROPERTY, len(name).to_bytes(2, "big"), name, len(value).to_bytes(2, "big"), value)
    )


def encode_sized_properties(properties: Properties, packet_type: int, version: int) -> bytes:
    """Encode the property block with its length before it, as most packets carry it; b"" in 3.1.1."""
    if version != c.MQTT_5:
        return b""
    block = encode_properties(properties, packet_type)
    return encode_varint(len(block)) + block


def decode_sized_properties(
    body: bytes, position: int, packet_type: int, version: int
) -> tuple[Properties, int]:
    """Read length and property block at `position`, which 3.1.1 has not; gives the properties and the
    position after them.
    """
    if version != c.MQTT_5:
        return Properties(), position
    size, position = decode_varint(body, position)
    end = position + size
    if end > len(body):
        raise ProtocolError(c.MALFORMED_PACKET, "property length beyond the packet")
    return decode_properties(body[position:end], packet_type), end
