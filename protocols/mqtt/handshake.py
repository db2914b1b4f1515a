"""CONNECT and CONNACK: their codec and the rules before a connection is live. Sections 3.1 and 3.2."""

from typing import Final

from protocols.errors import LocalProtocolError, ProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt.packets import ConnAck, Connect, Will
from protocols.mqtt.properties import (
    Properties,
    decode_sized_properties,
    encode_sized_properties,
)
from protocols.mqtt.topic_filters import validate_topic_name
from protocols.mqtt.wire import (
    decode_binary,
    decode_text,
    decode_u16,
    encode_binary,
    encode_text,
)

_NAME: Final = b"\x00\x04MQTT"
_NAME_3_1: Final = b"\x00\x06MQIsdp"
_LEVEL_3_1: Final = 3
_BRIDGE_BIT: Final = 0x80


def answer_version(body: bytes) -> int:
    """Return in which version's form to answer a CONNECT with this body: 4, 5, or 0 when it is no CONNECT at
    all.

    MQTT 3.1 and 3.1.1 look alike on the wire. Levels we do not speak are answered in the nearest form the
    peer can read: the bridge levels 0x83 and 0x84 as 3.1.1, above 5 as 5.
    """
    if body.startswith(_NAME) and len(body) > len(_NAME):
        return c.MQTT_5 if body[len(_NAME)] & 0x7F >= c.MQTT_5 else c.MQTT_3_1_1
    return c.MQTT_3_1_1 if body.startswith(_NAME_3_1) else 0


def decode_connect(body: bytes) -> Connect:
    """Decode a CONNECT packet from its body, of either version; one of MQTT 3.1 is a client of 3.1.1 from
    then on.

    Raises ProtocolError: 0x84 for a protocol name [MQTT-3.1.2-1] or level [MQTT-3.1.2-2] we do not speak,
    0x85 for a client identifier that must be refused, and 0x81, 0x82 or 0x90 for what is wrong inside.
    """
    version, position = _decode_version(body)
    flags = body[position + 1]
    _check_flags(flags, version)
    keep_alive_s, position = decode_u16(body, position + 2)
    properties, position = decode_sized_properties(body, position, c.CONNECT, version)
    _check_authentication(properties)
    client_id, position = decode_text(body, position)
    clean_start = bool(flags & c.CONNECT_FLAG_CLEAN_START)
    if not client_id and body.startswith(_NAME_3_1):  # MQTT 3.1, section 3.1
        raise ProtocolError(c.CLIENT_IDENTIFIER_NOT_VALID, "MQTT 3.1 has no empty client identifiers")
    if version == c.MQTT_3_1_1 and not client_id and not clean_start:
        # [MQTT-3.1.3-8] of 3.1.1
        raise ProtocolError(c.CLIENT_IDENTIFIER_NOT_VALID, "an empty client identifier wants a clean session")
    will = None
    if flags & c.CONNECT_FLAG_WILL:
        will, position = _decode_will(body, position, flags, version)
    username = password = None
    if flags & c.CONNECT_FLAG_USERNAME:
        username, position = decode_text(body, position)
    if flags & c.CONNECT_FLAG_PASSWORD:
        password, position = decode_binary(body, position)
    if position != len(body):
        raise ProtocolError(c.MALFORMED_PACKET, "bytes behind the end of CONNECT")
    return Connect(
        version,
        client_id,
        clean_start=clean_start,
        keep_alive_s=keep_alive_s,
        username=username,
        password=password,
        will=will,
        properties=properties,
    )


def _decode_version(body: bytes) -> tuple[int, int]:
    """Decode the version to speak, and where the protocol level stands."""
    name = _NAME_3_1 if body.startswith(_NAME_3_1) else _NAME
    if not body.startswith(name):
        raise ProtocolError(c.UNSUPPORTED_PROTOCOL_VERSION, "protocol name is not MQTT")
    position = len(name)
    if len(body) < position + 4:
        raise ProtocolError(c.MALFORMED_PACKET, "CONNECT cut short")
    level = body[position]
    if name is _NAME_3_1 and level == _LEVEL_3_1:
        return c.MQTT_3_1_1, position
    if name is _NAME_3_1 or level not in (c.MQTT_3_1_1, c.MQTT_5):
        raise ProtocolError(c.UNSUPPORTED_PROTOCOL_VERSION, f"protocol level {level} is not supported")
    return level, position


def encode_connect(packet: Connect, version: int) -> bytes:
    """Encode the body of a CONNECT packet, which says itself what version it is of."""
    version = packet.protocol_version
    will = packet.will
    flags = c.CONNECT_FLAG_CLEAN_START if packet.clean_start else 0
    if will is not None:
        flags |= c.CONNECT_FLAG_WILL | will.qos << 3 | (c.CONNECT_FLAG_WILL_RETAIN if will.retain else 0)
    if packet.username is not None:
        flags |= c.CONNECT_FLAG_USERNAME
    if packet.password is not None:
        flags |= c.CONNECT_FLAG_PASSWORD
    level = version | _BRIDGE_BIT if packet.is_bridge else version
    parts = [
        _NAME,
        bytes((level, flags)),
        packet.keep_alive_s.to_bytes(2, "big"),
        encode_sized_properties(packet.properties, c.CONNECT, version),
        encode_text(packet.client_id),
    ]
    if will is not None:
        parts.append(encode_sized_properties(will.properties, c.WILL, version))
        parts += [encode_text(will.topic), encode_binary(will.payload)]
    if packet.username is not None:
        parts.append(encode_text(packet.username))
    if packet.password is not None:
        parts.append(encode_binary(packet.password))
    return b"".join(parts)


def decode_connack(body: bytes, version: int) -> ConnAck:
    """Decode a CONNACK packet from its body. Raises ProtocolError 0x81 or 0x82."""
    if len(body) < 2 or body[0] > 1:
        raise ProtocolError(c.MALFORMED_PACKET, "CONNACK malformed")
    properties, position = decode_sized_properties(body, 2, c.CONNACK, version)
    if position != len(body):
        raise ProtocolError(c.MALFORMED_PACKET, "bytes behind the end of CONNACK")
    if body[0] and body[1]:
        raise ProtocolError(c.PROTOCOL_ERROR, "CONNACK refuses and has a session")  # [MQTT-3.2.2-6]
    return ConnAck(bool(body[0]), body[1], properties)


def encode_connack(packet: ConnAck, version: int) -> bytes:
    """Encode the body of a CONNACK packet; for 3.1.1 a reason code becomes its nearest return code."""
    if packet.session_present and packet.reason_code:
        raise LocalProtocolError("a refusal has no session")
    if version == c.MQTT_5:
        head = bytes((packet.session_present, packet.reason_code))
        return head + encode_sized_properties(packet.properties, c.CONNACK, version)
    return bytes((packet.session_present, return_code(packet.reason_code)))


def return_code(reason_code: int) -> int:
    """Return the 3.1.1 CONNACK return code for a reason code; return codes themselves stay as they are."""
    if reason_code < c.UNSPECIFIED_ERROR:
        return reason_code
    return c.RETURN_CODE_BY_REASON.get(reason_code, c.RETURN_CODE_OTHERWISE)


def is_told_in_3_1_1(reason_code: int) -> bool:
    """Return whether a CONNECT that could not be decoded is answered before the end, in 3.1.1: only where a
    return code says just that.
    """
    return reason_code in (c.UNSUPPORTED_PROTOCOL_VERSION, c.CLIENT_IDENTIFIER_NOT_VALID)


def connack_reason(reason_code: int) -> int:
    """Return the reason code CONNACK may carry for a cause known by another one, section 3.2.2.2."""
    if reason_code in c.CONNACK_REASONS:
        return reason_code
    return c.SERVER_UNAVAILABLE if reason_code == c.SERVER_SHUTTING_DOWN else c.UNSPECIFIED_ERROR


def _check_flags(flags: int, version: int) -> None:
    if flags & c.CONNECT_FLAG_RESERVED:
        raise ProtocolError(c.MALFORMED_PACKET, "reserved connect flag set")  # [MQTT-3.1.2-3]
    if not flags & c.CONNECT_FLAG_WILL and flags & 0x38:
        # [MQTT-3.1.2-11], [MQTT-3.1.2-13]
        raise ProtocolError(c.MALFORMED_PACKET, "will QoS or will retain without a will")
    if flags & 0x18 == 0x18:
        raise ProtocolError(c.MALFORMED_PACKET, "will QoS 3")  # [MQTT-3.1.2-12]
    if version == c.MQTT_3_1_1 and flags & c.CONNECT_FLAG_PASSWORD and not flags & c.CONNECT_FLAG_USERNAME:
        raise ProtocolError(c.MALFORMED_PACKET, "password without user name")  # [MQTT-3.1.2-22] of 3.1.1


def _check_authentication(properties: Properties) -> None:
    if properties.authentication_method is None and properties.authentication_data is not None:
        # section 3.1.2.11.10
        raise ProtocolError(c.PROTOCOL_ERROR, "authentication data without a method")


def _decode_will(body: bytes, position: int, flags: int, version: int) -> tuple[Will, int]:
    properties, position = decode_sized_properties(body, position, c.WILL, version)
    check_response_topic(properties)
    topic, position = decode_text(body, position)
    validate_topic_name(topic)
    payload, position = decode_binary(body, position)
    return Will(
        topic, payload, flags >> 3 & 3, bool(flags & c.CONNECT_FLAG_WILL_RETAIN), properties
    ), position


def check_response_topic(properties: Properties) -> None:
    """Raise ProtocolError 0x82 when a response topic holds a wildcard or nothing [MQTT-3.3.2-14]."""
    topic = properties.response_topic
    if topic is None:
        return
    if not topic or "+" in topic or "#" in topic:
        raise ProtocolError(c.PROTOCOL_ERROR, "response topic is not a topic name")
