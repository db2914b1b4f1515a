"""SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK bodies. Sections 3.8 to 3.11."""

from config import limits
from protocols.errors import ProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt.packets import SubAck, Subscribe, SubscriptionRequest, UnsubAck, Unsubscribe
from protocols.mqtt.properties import Properties, decode_sized_properties, encode_sized_properties
from protocols.mqtt.topic_filters import split_shared, validate_topic_filter
from protocols.mqtt.wire import check_end, decode_packet_id, decode_text, encode_text


def _decode_head(body: bytes, packet_type: int, version: int) -> tuple[int, Properties, int]:
    """Decode the packet identifier and the properties, which all four begin with; gives where they end."""
    packet_id, position = decode_packet_id(body, 0)
    properties, position = decode_sized_properties(body, position, packet_type, version)
    return packet_id, properties, position


def _encode_head(packet: Subscribe | SubAck | Unsubscribe | UnsubAck, version: int) -> bytes:
    properties = encode_sized_properties(packet.properties, packet.packet_type, version)
    return packet.packet_id.to_bytes(2, "big") + properties


def decode_subscribe(body: bytes, version: int) -> Subscribe:
    """Decode a SUBSCRIBE from its body. Raises ProtocolError 0x81, 0x82, 0x8F or 0x97."""
    packet_id, properties, position = _decode_head(body, c.SUBSCRIBE, version)
    requests: list[SubscriptionRequest] = []
    while position < len(body):
        if len(requests) >= limits.MQTT_SUBSCRIPTIONS_PER_SESSION_MAX:
            raise ProtocolError(c.QUOTA_EXCEEDED, "too many topic filters in one SUBSCRIBE")
        topic_filter, position = decode_text(body, position)
        validate_topic_filter(topic_filter)
        if position == len(body):
            raise ProtocolError(c.MALFORMED_PACKET, "topic filter without options")
        requests.append(_decode_options(topic_filter, body[position], version))
        position += 1
    if not requests:
        raise ProtocolError(c.PROTOCOL_ERROR, "SUBSCRIBE without a topic filter")  # [MQTT-3.8.3-2]
    return Subscribe(packet_id, requests, properties)


def _decode_options(topic_filter: str, options: int, version: int) -> SubscriptionRequest:
    if options & (0xC0 if version == c.MQTT_5 else 0xFC):
        raise ProtocolError(c.MALFORMED_PACKET, "reserved subscription option")  # [MQTT-3.8.3-5]
    qos = options & 3
    if qos == 3:
        raise ProtocolError(c.PROTOCOL_ERROR, "subscription with QoS 3")
    no_local = bool(options & 4)
    retain_handling = options >> 4
    if retain_handling == 3:
        raise ProtocolError(c.PROTOCOL_ERROR, "retain handling 3")
    if no_local and split_shared(topic_filter)[0]:
        raise ProtocolError(c.PROTOCOL_ERROR, "no local on a shared subscription")  # [MQTT-3.8.3-4]
    return SubscriptionRequest(topic_filter, qos, no_local, bool(options & 8), retain_handling)


def encode_subscribe(packet: Subscribe, version: int) -> bytes:
    """Encode the body of a SUBSCRIBE; 3.1.1 has the QoS as its only option."""
    parts = [_encode_head(packet, version)]
    for request in packet.requests:
        options = request.qos
        if version == c.MQTT_5:
            options |= request.no_local << 2 | request.retain_as_published << 3 | request.retain_handling << 4
        parts += [encode_text(request.filter), bytes((options,))]
    return b"".join(parts)


def decode_suback(body: bytes, version: int) -> SubAck:
    """Decode a SUBACK from its body. Raises ProtocolError 0x81 or 0x82."""
    packet_id, properties, position = _decode_head(body, c.SUBACK, version)
    return SubAck(packet_id, list(body[position:]), properties)


def encode_suback(packet: SubAck, version: int) -> bytes:
    """Encode the body of a SUBACK; 3.1.1 knows one failure, 0x80."""
    codes = packet.reason_codes
    if version != c.MQTT_5:
        codes = [min(code, c.UNSPECIFIED_ERROR) for code in codes]
    return _encode_head(packet, version) + bytes(codes)


def decode_unsubscribe(body: bytes, version: int) -> Unsubscribe:
    """Decode an UNSUBSCRIBE from its body. Raises ProtocolError 0x81, 0x82, 0x8F or 0x97."""
    packet_id, properties, position = _decode_head(body, c.UNSUBSCRIBE, version)
    filters: list[str] = []
    while position < len(body):
        if len(filters) >= limits.MQTT_SUBSCRIPTIONS_PER_SESSION_MAX:
            raise ProtocolError(c.QUOTA_EXCEEDED, "too many topic filters in one UNSUBSCRIBE")
        topic_filter, position = decode_text(body, position)
        validate_topic_filter(topic_filter)
        filters.append(topic_filter)
    if not filters:
        raise ProtocolError(c.PROTOCOL_ERROR, "UNSUBSCRIBE without a topic filter")  # [MQTT-3.10.3-2]
    return Unsubscribe(packet_id, filters, properties)


def encode_unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    """Encode the body of an UNSUBSCRIBE."""
    return b"".join([_encode_head(packet, version), *map(encode_text, packet.filters)])


def decode_unsuback(body: bytes, version: int) -> UnsubAck:
    """Decode an UNSUBACK from its body. Raises ProtocolError 0x81 or 0x82."""
    packet_id, properties, position = _decode_head(body, c.UNSUBACK, version)
    if version != c.MQTT_5:
        check_end(body, position)
    return UnsubAck(packet_id, list(body[position:]), properties)


def encode_unsuback(packet: UnsubAck, version: int) -> bytes:
    """Encode the body of an UNSUBACK; 3.1.1 carries no reason codes."""
    return _encode_head(packet, version) + (bytes(packet.reason_codes) if version == c.MQTT_5 else b"")
