"""Every control packet to bytes and back, both directions, both versions.

`MqttConnection` decodes publishes and acknowledgements by itself, many at a time; whatever comes alone, and
everything a client or a test wants, goes through here.
"""

from collections.abc import Callable
from typing import Any, Final

from protocols.errors import LocalProtocolError, ProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt.handshake import (
    check_response_topic,
    decode_connack,
    decode_connect,
    encode_connack,
    encode_connect,
)
from protocols.mqtt.packets import (
    Auth,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PublishAnswer,
    PubRec,
    PubRel,
)
from protocols.mqtt.properties import (
    Properties,
    decode_sized_properties,
    encode_properties,
    encode_sized_properties,
)
from protocols.mqtt.subscriptions import (
    decode_suback,
    decode_subscribe,
    decode_unsuback,
    decode_unsubscribe,
    encode_suback,
    encode_subscribe,
    encode_unsuback,
    encode_unsubscribe,
)
from protocols.mqtt.topic_filters import validate_topic_name
from protocols.mqtt.wire import check_end, decode_packet_id, decode_text, encode_text, encode_varint


def decode_packet(first_byte: int, body: bytes, version: int) -> Packet:
    """Decode a control packet from the first byte of its fixed header and its body (what follows the length).

    `version` is 4 or 5; a CONNECT brings its own. Raises ProtocolError with an MQTT 5 reason code in either
    version.
    """
    packet_type = first_byte >> 4
    check_flags(first_byte)
    if packet_type == c.CONNECT:
        return decode_connect(body)
    if packet_type == c.PUBLISH:
        return _decode_publish(first_byte, body, version)
    decode = _DECODERS.get(packet_type)
    if decode is None or (packet_type == c.AUTH and version != c.MQTT_5):
        raise ProtocolError(c.MALFORMED_PACKET, f"reserved packet type {packet_type}")
    return decode(body, version)


def check_flags(first_byte: int) -> None:
    """Raise ProtocolError 0x81 for flags the packet type does not allow [MQTT-2.1.3-1], [MQTT-3.3.1-4]."""
    packet_type = first_byte >> 4
    flags = first_byte & 15
    if packet_type == c.PUBLISH:
        if flags & 6 == 6:
            raise ProtocolError(c.MALFORMED_PACKET, "QoS 3")
        if flags & 14 == 8:
            raise ProtocolError(c.MALFORMED_PACKET, "DUP at QoS 0")  # [MQTT-3.3.1-2]
    elif flags != c.FLAGS_BY_TYPE[packet_type]:
        raise ProtocolError(c.MALFORMED_PACKET, f"flags {flags} not allowed in {c.PACKET_NAMES[packet_type]}")


def encode_packet(packet: Packet, version: int) -> bytes:
    """Encode the whole packet. Raises LocalProtocolError for what this version or MQTT itself cannot say."""
    packet_type = packet.packet_type
    if isinstance(packet, Publish):
        flags = packet.dup << 3 | packet.qos << 1 | packet.retain
        body = _encode_publish(packet, version)
    else:
        flags = c.FLAGS_BY_TYPE[packet_type]
        body = _ENCODERS[packet_type](packet, version)
    return bytes((packet_type << 4 | flags,)) + encode_varint(len(body)) + body


def _decode_publish(first_byte: int, body: bytes, version: int) -> Publish:
    topic, position = decode_text(body, 0)
    qos = first_byte >> 1 & 3
    packet_id = 0
    if qos:
        packet_id, position = decode_packet_id(body, position)
    properties, position = decode_sized_properties(body, position, c.PUBLISH, version)
    check_response_topic(properties)
    if topic:
        validate_topic_name(topic)
    elif properties.topic_alias is None:
        raise ProtocolError(c.PROTOCOL_ERROR, "topic name is empty")  # section 3.3.2.1
    return Publish(
        topic,
        body[position:],
        qos=qos,
        retain=bool(first_byte & 1),
        dup=bool(first_byte & 8),
        packet_id=packet_id,
        properties=properties,
    )


def _encode_publish(packet: Publish, version: int) -> bytes:
    if bool(packet.qos) != bool(packet.packet_id):
        raise LocalProtocolError("a packet identifier belongs to QoS 1 and 2, and only there")
    parts = [encode_text(packet.topic)]
    if packet.qos:
        parts.append(packet.packet_id.to_bytes(2, "big"))
    parts += [encode_sized_properties(packet.properties, c.PUBLISH, version), packet.payload]
    return b"".join(parts)


def _decode_tail(body: bytes, position: int, packet_type: int) -> tuple[int, Properties]:
    """Decode reason code and properties at a packet's end, both of which MQTT 5 may leave out."""
    if position == len(body):
        return 0, Properties()
    reason_code = body[position]
    if reason_code not in c.REASON_CODES_BY_TYPE[packet_type]:
        raise ProtocolError(
            c.PROTOCOL_ERROR, f"reason code 0x{reason_code:02x} not allowed in {c.PACKET_NAMES[packet_type]}"
        )
    position += 1
    if position == len(body):
        return reason_code, Properties()
    properties, position = decode_sized_properties(body, position, packet_type, c.MQTT_5)
    check_end(body, position)
    return reason_code, properties


def _encode_tail(reason_code: int, properties: Properties, packet_type: int) -> bytes:
    """Encode the shortest form of reason code and properties."""
    block = encode_properties(properties, packet_type)
    if block:
        return bytes((reason_code,)) + encode_varint(len(block)) + block
    return bytes((reason_code,)) if reason_code else b""


def _answer_decoder(kind: type[PublishAnswer]) -> Callable[[bytes, int], PublishAnswer]:
    def decode(body: bytes, version: int) -> PublishAnswer:
        packet_id, position = decode_packet_id(body, 0)
        if version != c.MQTT_5:
            check_end(body, position)
            return kind(packet_id)
        reason_code, properties = _decode_tail(body, position, kind.packet_type)
        return kind(packet_id, reason_code, properties)

    return decode


def _encode_answer(packet: PublishAnswer, version: int) -> bytes:
    packet_id = packet.packet_id.to_bytes(2, "big")
    if version != c.MQTT_5:
        return packet_id
    return packet_id + _encode_tail(packet.reason_code, packet.properties, packet.packet_type)


def _empty_decoder(kind: type[PingReq | PingResp]) -> Callable[[bytes, int], Packet]:
    def decode(body: bytes, version: int) -> Packet:
        check_end(body, 0)
        return kind()

    return decode


def _decode_disconnect(body: bytes, version: int) -> Disconnect:
    if version != c.MQTT_5:
        check_end(body, 0)
        return Disconnect()
    return Disconnect(*_decode_tail(body, 0, c.DISCONNECT))


def _encode_disconnect(packet: Disconnect, version: int) -> bytes:
    if version != c.MQTT_5:
        return b""
    return _encode_tail(packet.reason_code, packet.properties, c.DISCONNECT)


def _decode_auth(body: bytes, version: int) -> Auth:
    return Auth(*_decode_tail(body, 0, c.AUTH))


def _encode_auth(packet: Auth, version: int) -> bytes:
    if version != c.MQTT_5:
        raise LocalProtocolError("3.1.1 has no AUTH")
    return _encode_tail(packet.reason_code, packet.properties, c.AUTH)


def _encode_empty(packet: Packet, version: int) -> bytes:
    return b""


_DECODERS: Final[dict[int, Callable[[bytes, int], Packet]]] = {
    c.CONNACK: decode_connack,
    c.PUBACK: _answer_decoder(PubAck),
    c.PUBREC: _answer_decoder(PubRec),
    c.PUBREL: _answer_decoder(PubRel),
    c.PUBCOMP: _answer_decoder(PubComp),
    c.SUBSCRIBE: decode_subscribe,
    c.SUBACK: decode_suback,
    c.UNSUBSCRIBE: decode_unsubscribe,
    c.UNSUBACK: decode_unsuback,
    c.PINGREQ: _empty_decoder(PingReq),
    c.PINGRESP: _empty_decoder(PingResp),
    c.DISCONNECT: _decode_disconnect,
    c.AUTH: _decode_auth,
}
_ENCODERS: Final[dict[int, Callable[[Any, int], bytes]]] = {
    c.CONNECT: encode_connect,
    c.CONNACK: encode_connack,
    c.PUBACK: _encode_answer,
    c.PUBREC: _encode_answer,
    c.PUBREL: _encode_answer,
    c.PUBCOMP: _encode_answer,
    c.SUBSCRIBE: encode_subscribe,
    c.SUBACK: encode_suback,
    c.UNSUBSCRIBE: encode_unsubscribe,
    c.UNSUBACK: encode_unsuback,
    c.PINGREQ: _encode_empty,
    c.PINGRESP: _encode_empty,
    c.DISCONNECT: _encode_disconnect,
    c.AUTH: _encode_auth,
}
