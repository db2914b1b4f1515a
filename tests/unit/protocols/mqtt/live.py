"""A connection past its handshake, and its events flattened for comparing."""

from typing import Any

from protocols.mqtt import events
from protocols.mqtt.codec import decode_packet, encode_packet
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.packets import Connect, Packet
from protocols.mqtt.publishes import frame_at


def live(version: int, connect: Connect | None = None, **settings: Any) -> MqttConnection:
    """A connection that has just accepted a client; its output is empty."""
    connection = MqttConnection(0.0, **settings)
    packet = connect if connect is not None else Connect(version, "c")
    (event,) = connection.receive(encode_packet(packet, version), 0.0)
    assert isinstance(event, events.ConnectReceived)
    assert connection.accept(False) == []
    connection.output.clear()
    return connection


def flat(found: list[Any]) -> list[Any]:
    """Events as plain tuples, one per packet, whatever runs they came in."""
    plain: list[Any] = []
    for event in found:
        if isinstance(event, events.PublishRun):
            shape = event.shape
            assert event.count == len(event.payloads) >= 1
            packet_ids = event.packet_ids or [0] * event.count
            assert len(packet_ids) == event.count
            for packet_id, payload in zip(packet_ids, event.payloads, strict=True):
                what = (shape.topic, shape.qos, shape.retain, shape.dup, shape.properties)
                plain.append(("publish", *what, packet_id, payload))
        elif isinstance(event, events.AckRun):
            plain += [
                ("ack", event.packet_type, packet_id, event.reason_code) for packet_id in event.packet_ids
            ]
        else:
            values = [getattr(event, name) for name in sorted(type(event).__slots__)]
            plain.append((type(event).__name__, *values))
    return plain


def sent(connection: MqttConnection) -> list[Any]:
    """What the connection has written, decoded; empties its output."""
    wire = b"".join(connection.output)
    connection.output.clear()
    found: list[Packet] = []
    position = 0
    while position < len(wire):
        body, stop = frame_at(wire, position, len(wire), 2**28)
        assert stop <= len(wire)
        found.append(decode_packet(wire[position], wire[body:stop], connection.protocol_version))
        position = stop
    return found
