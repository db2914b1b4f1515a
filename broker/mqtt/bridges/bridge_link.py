"""The session of a bridge and its connection to the other broker: what goes there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.engine.session_traffic import Delivery, Matched, Session
from broker.mqtt.bridges.bridge_topics import has_passed, outward, with_bridge
from broker.mqtt.settling.window import OutboundWindow
from broker.properties.templates import as_mqtt_at
from broker.vhosts.hub import Hub
from config import limits
from config.bridge_settings import BridgeTopicSettings
from protocols.mqtt import constants as c
from protocols.mqtt import hot
from protocols.mqtt.events import PublishRun


@dataclass(eq=False, repr=False, slots=True)
class BridgeLink:
    """A `broker.engine.session_traffic.Link` whose client is another broker."""

    _hub: Hub
    session: Session
    _rules: Sequence[BridgeTopicSettings]
    _identifier: str
    _version: int
    _writer: asyncio.StreamWriter
    _packet_bytes_max: int = field(default=c.REMAINING_LENGTH_MAX, init=False)
    window: OutboundWindow = field(init=False)

    def __post_init__(self) -> None:
        self.window = OutboundWindow(limits.MQTT_SESSION_INFLIGHT_MAX)
        self.window.occupy(self.session.unfinished.packet_ids(), self.session.unfinished.unreceived())

    def limit(self, receive_maximum: int, packet_bytes_max: int) -> None:
        """Set what the other broker takes."""
        self.window.limit(min(receive_maximum, limits.MQTT_SESSION_INFLIGHT_MAX))
        self._packet_bytes_max = packet_bytes_max

    @property
    def is_attached(self) -> bool:
        """Whether the session is this connection's."""
        return self.session.link is self

    def room(self) -> int:
        transport = self._writer.transport
        if transport.is_closing() or transport.get_write_buffer_size() > limits.WRITE_BUFFER_BYTES_HIGH:
            return 0
        return self.window.room()

    def take_packet_id(self) -> int:
        return self.window.take_one()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """See `Link`. What does not go there is done."""
        now_ms = self._hub.clock.now_ms()
        skipped = []
        for delivery in deliveries:
            message = delivery.merged.message
            properties = as_mqtt_at(message.template, message.received_at_ms, now_ms)
            encoded = self._encoded(message.template.topic, properties, delivery, message.body)
            if encoded:
                self._write(encoded)
                if delivery.is_repeated:
                    self.window.sent_again((delivery.packet_id,))
            else:
                skipped.append(delivery.packet_id)
        if skipped:
            self.finish(skipped)

    def _encoded(self, topic: str, properties: bytes, delivery: Delivery, body: bytes) -> bytes:
        """Return the packet; b"" for what came from there, or is too large for it."""
        remote = outward(self._rules, topic)
        if remote is None or has_passed(properties, self._identifier):
            return b""
        block = with_bridge(properties, self._identifier)
        packet = hot.encode_publish(
            self._version,
            remote.encode(),
            delivery.qos,
            delivery.retain,
            delivery.is_repeated,
            delivery.packet_id,
            block,
            body,
        )
        return packet if len(packet) <= self._packet_bytes_max else b""

    def release(self, packet_ids: list[int]) -> None:
        self._write(hot.encode_ack_run(c.PUBREL, packet_ids))

    def forget(self, packet_ids: list[int]) -> None:
        self.window.release(packet_ids)

    def pass_on(self, run: PublishRun, matched: Matched) -> None:
        """Send publishes of QoS 0."""
        shape = run.shape
        remote = outward(self._rules, shape.topic)
        if remote is None or has_passed(shape.properties, self._identifier) or not self.room():
            return
        block = with_bridge(shape.properties, self._identifier)
        for body in run.payloads:
            packet = hot.encode_publish(
                self._version, remote.encode(), 0, shape.retain, False, 0, block, body
            )
            if len(packet) <= self._packet_bytes_max:
                self._write(packet)

    def finish(self, packet_ids: list[int]) -> None:
        """Take PUBACK or PUBCOMP of the other broker, or a refusal: these are done."""
        self.session.acknowledge(packet_ids, self._hub.clock.now_ms())
        self.window.release(packet_ids)
        self.session.wake()

    def _write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
        except Exception:
            self._writer.transport.abort()


BRIDGE_USER: Final = "\x1fbridge"
"""The user of the sessions of bridges: no client can log in under that name."""
