"""Recognising, by its first bytes, a client that speaks another protocol than the port does."""

from typing import Final

_TLS_HANDSHAKE: Final = b"\x16\x03"  # RFC 8446, 5.1: a record of type handshake, legacy version 3.x
_HTTP_METHODS: Final = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PRI * HTTP/2")
_WEBSOCKET: Final = b"upgrade: websocket"  # RFC 6455, 4.1
_AMQP_VERSION: Final = slice(5, 8)  # of a protocol header, behind AMQP and the protocol ID
_MQTT_CONNECT: Final = b"\x10"
_MQTT_NAMES: Final = (b"\x00\x04MQTT", b"\x00\x06MQIsdp")
_MQTT_NAME_END_MAX: Final = 13  # behind the first byte and at most four of the remaining length


def foreign_protocol(data: bytes) -> str:
    """Name the protocol of a connection that begins with `data`; "" when it is none that is known."""
    if data.startswith(_TLS_HANDSHAKE):
        return "TLS"
    if data.startswith(_HTTP_METHODS):
        return "WebSocket" if _WEBSOCKET in data.lower() else "HTTP"
    if data.startswith(b"AMQP"):
        return "AMQP " + ".".join(str(number) for number in data[_AMQP_VERSION])
    if data.startswith(_MQTT_CONNECT) and any(name in data[:_MQTT_NAME_END_MAX] for name in _MQTT_NAMES):
        return "MQTT"
    return ""
