"""The MQTT 5 property block, section 2.2.2, driven by one table."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Any, Final

from config import limits
from protocols.errors import LocalProtocolError, ProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt.wire import (
    decode_binary,
    decode_text,
    decode_varint,
    encode_binary,
    encode_text,
    encode_varint,
)

_BOOL: Final = 1  # a byte that may only be 0 or 1
_U16: Final = 2
_U32: Final = 3
_VARINT: Final = 4
_TEXT: Final = 5
_BINARY: Final = 6
_PAIR: Final = 7

USER_PROPERTY: Final = 0x26
SUBSCRIPTION_IDENTIFIER: Final = 0x0B
MESSAGE_EXPIRY_INTERVAL: Final = 0x02
TOPIC_ALIAS: Final = 0x23
_USER_PROPERTY: Final = bytes((USER_PROPERTY,))

_u16 = Struct(">H")
_u32 = Struct(">I")

_EVERYWHERE: Final = (
    c.CONNECT,
    c.CONNACK,
    c.PUBLISH,
    c.PUBACK,
    c.PUBREC,
    c.PUBREL,
    c.PUBCOMP,
    c.SUBSCRIBE,
    c.SUBACK,
    c.UNSUBSCRIBE,
    c.UNSUBACK,
    c.DISCONNECT,
    c.AUTH,
    c.WILL,
)
_ANSWERS: Final = (
    c.CONNACK,
    c.PUBACK,
    c.PUBREC,
    c.PUBREL,
    c.PUBCOMP,
    c.SUBACK,
    c.UNSUBACK,
    c.DISCONNECT,
    c.AUTH,
)
_MESSAGE: Final = (c.PUBLISH, c.WILL)
_AUTHENTICATION: Final = (c.CONNECT, c.CONNACK, c.AUTH)

# identifier: (attribute, wire type, packets that may carry it), table 2-4
PROPERTIES: Final[dict[int, tuple[str, int, tuple[int, ...]]]] = {
    0x01: ("payload_format_indicator", _BOOL, _MESSAGE),
    0x02: ("message_expiry_interval_s", _U32, _MESSAGE),
    0x03: ("content_type", _TEXT, _MESSAGE),
    0x08: ("response_topic", _TEXT, _MESSAGE),
    0x09: ("correlation_data", _BINARY, _MESSAGE),
    SUBSCRIPTION_IDENTIFIER: ("subscription_identifiers", _VARINT, (c.PUBLISH, c.SUBSCRIBE)),
    0x11: ("session_expiry_interval_s", _U32, (c.CONNECT, c.CONNACK, c.DISCONNECT)),
    0x12: ("assigned_client_identifier", _TEXT, (c.CONNACK,)),
    0x13: ("server_keep_alive_s", _U16, (c.CONNACK,)),
    0x15: ("authentication_method", _TEXT, _AUTHENTICATION),
    0x16: ("authentication_data", _BINARY, _AUTHENTICATION),
    0x17: ("request_problem_information", _BOOL, (c.CONNECT,)),
    0x18: ("will_delay_interval_s", _U32, (c.WILL,)),
    0x19: ("request_response_information", _BOOL, (c.CONNECT,)),
    0x1A: ("response_information", _TEXT, (c.CONNACK,)),
    0x1C: ("server_reference", _TEXT, (c.CONNACK, c.DISCONNECT)),
    0x1F: ("reason_string", _TEXT, _ANSWERS),
    0x21: ("receive_maximum", _U16, (c.CONNECT, c.CONNACK)),
    0x22: ("topic_alias_maximum", _U16, (c.CONNECT, c.CONNACK)),
    TOPIC_ALIAS: ("topic_alias", _U16, (c.PUBLISH,)),
    0x24: ("maximum_qos", _BOOL, (c.CONNACK,)),
    0x25: ("retain_available", _BOOL, (c.CONNACK,)),
    USER_PROPERTY: ("user_properties", _PAIR, _EVERYWHERE),
    0x27: ("maximum_packet_size_bytes", _U32, (c.CONNECT, c.CONNACK)),
    0x28: ("wildcard_subscription_available", _BOOL, (c.CONNACK,)),
    0x29: ("subscription_identifier_available", _BOOL, (c.CONNACK,)),
    0x2A: ("shared_subscription_available", _BOOL, (c.CONNACK,)),
}

# Zero is a protocol error for these: sections 3.1.2.11.3, 3.1.2.11.4, 3.3.2.3.8.
_NEVER_ZERO: Final = frozenset({SUBSCRIPTION_IDENTIFIER, 0x21, 0x27})


@dataclass(slots=True, repr=False)
class Properties:
    """The properties of one packet. None means absent; the two lists keep order and duplicates.

    `subscription_identifiers` holds at most one in SUBSCRIBE, any number in a PUBLISH from the server.
    """

    payload_format_indicator: int | None = None
    message_expiry_interval_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: list[int] = field(default_factory=list)
    session_expiry_interval_s: int | None = None
    assigned_client_identifier: str | None = None
    server_keep_alive_s: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_interval_s: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: list[tuple[str, str]] = field(default_factory=list)
    maximum_packet_size_bytes: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifier_available: int | None = None
    shared_subscription_available: int | None = None

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
        _, position = _DECODERS[entry[1]](block, position)
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
        name, wire_type, _ = entry
        value, position = _DECODERS[wire_type](block, position)
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
    for identifier, (name, wire_type, packets) in PROPERTIES.items():
        value = getattr(properties, name)
        if value is None or value == []:
            continue
        if packet_type not in packets:
            raise LocalProtocolError(f"{name} not allowed in packet type {packet_type}")
        encode = _ENCODERS[wire_type]
        for one in value if isinstance(value, list) else (value,):
            parts.append(bytes((identifier,)))
            parts.append(encode(one))
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


def _decode_byte(block: bytes, position: int) -> tuple[int, int]:
    if position >= len(block):
        raise ProtocolError(c.MALFORMED_PACKET, "property cut short")
    return block[position], position + 1


def _decode_bool(block: bytes, position: int) -> tuple[int, int]:
    value, position = _decode_byte(block, position)
    if value > 1:
        raise ProtocolError(c.PROTOCOL_ERROR, "property must be 0 or 1")
    return value, position


def _decode_u16(block: bytes, position: int) -> tuple[int, int]:
    if position + 2 > len(block):
        raise ProtocolError(c.MALFORMED_PACKET, "property cut short")
    return int(_u16.unpack_from(block, position)[0]), position + 2


def _decode_u32(block: bytes, position: int) -> tuple[int, int]:
    if position + 4 > len(block):
        raise ProtocolError(c.MALFORMED_PACKET, "property cut short")
    return int(_u32.unpack_from(block, position)[0]), position + 4


def _decode_pair(block: bytes, position: int) -> tuple[tuple[str, str], int]:
    name, position = decode_text(block, position)
    value, position = decode_text(block, position)
    return (name, value), position


def _encode_byte(value: int) -> bytes:
    return bytes((value,))


def _encode_pair(pair: tuple[str, str]) -> bytes:
    return encode_text(pair[0]) + encode_text(pair[1])


_DECODERS: Final[tuple[Callable[[bytes, int], tuple[Any, int]], ...]] = (
    _decode_byte,
    _decode_bool,
    _decode_u16,
    _decode_u32,
    decode_varint,
    decode_text,
    decode_binary,
    _decode_pair,
)
_ENCODERS: Final[tuple[Callable[[Any], bytes], ...]] = (
    _encode_byte,
    _encode_byte,
    _u16.pack,
    _u32.pack,
    encode_varint,
    encode_text,
    encode_binary,
    _encode_pair,
)
