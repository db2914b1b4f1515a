"""One connection of a bridge: what comes in, and what the other broker says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from broker.clients.when_durable import WhenDurable
from broker.engine.session_traffic import NEVER_S, Session
from broker.mqtt.bridges.bridge_link import BridgeLink
from broker.mqtt.bridges.bridge_publisher import BridgePublisher
from broker.mqtt.bridges.bridge_topics import Dialect, echoing, has_passed, inward, remote_filter, with_bridge
from broker.mqtt.publishing import publish
from broker.vhosts.hub import Hub
from config import limits
from config.bridge_settings import BridgeSettings, BridgeTopicSettings
from protocols.mqtt import constants as c
from protocols.mqtt import hot, packets
from protocols.mqtt.client import PacketReader
from protocols.mqtt.codec import decode_packet, encode_packet
from protocols.mqtt.events import PublishRun, PublishShape
from protocols.mqtt.properties import Properties, encode_properties
from protocols.mqtt.topic_filters import validate_topic_name

_log: Final = structlog.get_logger("sluicemq.bridge")

_PINGREQ: Final = b"\xc0\x00"
_CONNACK_BYTES_3_1_1: Final = 2
_VERSION_REFUSED: Final = (1, c.UNSUPPORTED_PROTOCOL_VERSION)  # 3.1.1, 5
_SUBSCRIBE_ID: Final = 65_535
_UNSUBSCRIBE_ID: Final = 65_534


class BridgeLost(Exception):
    """The connection to the other broker ended, or did not come about."""


class VersionRefused(BridgeLost):
    """The other broker does not know the version of MQTT."""


class BridgeConnection:
    """Says CONNECT at once; `publisher` is what publishes here what comes in."""

    def __init__(
        self,
        hub: Hub,
        session: Session,
        settings: BridgeSettings,
        dialect: Dialect,
        writer: asyncio.StreamWriter,
        make_publisher: Callable[[Callable[[bytes], None]], BridgePublisher],
    ) -> None:
        """`make_publisher` is given what the publisher answers by."""
        self._hub = hub
        self._sessions = hub.client.sessions
        self._session = session
        self._settings = settings
        self._dialect = dialect
        self._writer = writer
        self._link = BridgeLink(
            hub,
            session,
            settings.out_topics,
            settings.identifier,
            dialect.version,
            writer,
        )
        self._publisher = make_publisher(self.write)
        self._reader = PacketReader()
        self._is_in = False
        self._fetched: list[BridgeTopicSettings] = []
        self._targets: dict[tuple[int, str, bytes], tuple[PublishShape, publish.Target]] = {}
        self._pinger: asyncio.TimerHandle | None = None
        self.write(encode_packet(self._connect(), dialect.version))

    def _connect(self) -> packets.Connect:
        settings = self._settings
        return packets.Connect(
            self._dialect.version,
            settings.identifier,
            clean_start=False,
            keep_alive_s=limits.BRIDGE_KEEP_ALIVE_S,
            username=settings.username,
            password=None if settings.password is None else settings.password.encode(),
            properties=Properties(session_expiry_interval_s=NEVER_S),
            is_bridge=self._dialect.is_told,
        )

    def receive(self, data: bytes) -> None:
        """Act on all packets that are complete. Raises BridgeLost and ProtocolError."""
        for first_byte, body in self._reader.feed(data):
            self._handle(self._decoded(first_byte, body))

    def _decoded(self, first_byte: int, body: bytes) -> packets.Packet:
        """Decode a packet; a broker that does not know MQTT 5 refuses it in the form of 3.1.1."""
        is_short = first_byte == c.CONNACK << 4 and len(body) == _CONNACK_BYTES_3_1_1
        return decode_packet(first_byte, body, c.MQTT_3_1_1 if is_short else self._dialect.version)

    def write(self, data: bytes) -> None:
        """Send a packet."""
        if not self._writer.is_closing():
            self._writer.write(data)

    def _begin(self, answer: packets.ConnAck) -> None:
        """Go on where we were: the other broker lets us in."""
        if answer.reason_code in _VERSION_REFUSED:
            raise VersionRefused(f"the other broker does not speak {self._dialect.told}")
        if answer.reason_code:
            reason = answer.properties.reason_string or ""
            raise BridgeLost(f"refused with 0x{answer.reason_code:02x} {reason}".rstrip())
        self._is_in = True
        session = self._session
        if not answer.session_present:
            # it has forgotten what it sent: its packet identifiers are free
            received = session.received
            received.complete(list(received.packet_ids()), WhenDurable(lambda tokens: None))
        properties = answer.properties
        self._link.limit(
            properties.receive_maximum or 65_535,
            properties.maximum_packet_size_bytes or c.REMAINING_LENGTH_MAX,
        )
        self._subscribe()
        session.attach(self._link)
        self._ping()
        settings = self._settings
        _log.info(
            "bridge.connected", bridge=settings.name, address=settings.address, protocol=self._dialect.told
        )

    def _subscribe(self) -> None:
        """Fetch what comes in, but for what would be our own, sent back."""
        settings = self._settings
        version = self._dialect.version
        echoed = [] if self._dialect.keeps_own else echoing(settings.in_topics, settings.out_topics)
        self._fetched = [rule for rule in settings.in_topics if rule not in echoed]
        requests = [
            packets.SubscriptionRequest(remote_filter(rule), rule.qos, True, True, 1)
            for rule in self._fetched
        ]
        if requests:
            self.write(encode_packet(packets.Subscribe(_SUBSCRIBE_ID, requests), version))
        if echoed:
            filters = [remote_filter(rule) for rule in echoed]
            self.write(encode_packet(packets.Unsubscribe(_UNSUBSCRIBE_ID, filters), version))
            reason = "the other broker would send back what goes out under the same topics"
            _log.warning("bridge.not_fetched", bridge=settings.name, filters=filters, reason=reason)

    def end(self) -> None:
        """End the connection: what goes out waits."""
        if self._pinger is not None:
            self._pinger.cancel()
        if self._link.is_attached and self._hub.is_there:
            self._sessions.leave(self._session)

    def _handle(self, packet: packets.Packet) -> None:
        if isinstance(packet, packets.ConnAck):
            self._begin(packet)
            return
        if not self._is_in:
            raise BridgeLost("the other broker speaks before its CONNACK")
        if isinstance(packet, packets.Publish):
            self._on_publish(packet, self._publisher)
        elif isinstance(packet, packets.PubAck | packets.PubComp):
            self._link.finish([packet.packet_id])
        elif isinstance(packet, packets.PubRec):
            self._on_pubrec(packet)
        elif isinstance(packet, packets.PubRel):
            if not self._session.received.complete([packet.packet_id], WhenDurable(self._complete)):
                self._complete([packet.packet_id])
        elif isinstance(packet, packets.SubAck):
            for rule, code in zip(self._fetched, packet.reason_codes, strict=False):
                if code >= c.UNSPECIFIED_ERROR:
                    _log.warning(
                        "bridge.subscribe_refused",
                        bridge=self._settings.name,
                        filter=remote_filter(rule),
                        code=f"0x{code:02x}",
                    )
        elif isinstance(packet, packets.Disconnect):
            raise BridgeLost(f"the other broker says DISCONNECT 0x{packet.reason_code:02x}")

    def _on_pubrec(self, packet: packets.PubRec) -> None:
        ids = [packet.packet_id]
        if packet.reason_code >= c.UNSPECIFIED_ERROR:
            self._link.finish(ids)
        elif not self._session.receive(ids, self._hub.clock.now_ms()):
            self.write(hot.encode_ack_run(c.PUBREL, ids))

    def _complete(self, packet_ids: list[int]) -> None:
        self.write(hot.encode_ack_run(c.PUBCOMP, packet_ids))

    def _on_publish(self, packet: packets.Publish, publisher: BridgePublisher) -> None:
        ids = [packet.packet_id] if packet.qos else []
        if packet.qos == 2 and packet.packet_id in self._session.received.packet_ids():
            publisher.answer(2, ids)
            return
        block = encode_properties(packet.properties, c.PUBLISH)
        topic = inward(self._settings.in_topics, packet.topic)
        if topic is None or has_passed(block, self._settings.identifier):
            publisher.accept(ids, packet.qos)
            return
        first_byte = 0x30 | packet.qos << 1 | packet.retain
        key = first_byte, topic, block
        known = self._targets.get(key)
        if known is None:
            validate_topic_name(topic)
            passed = with_bridge(block, self._settings.identifier)
            shape = PublishShape(first_byte, topic, passed)
            known = shape, publish.target_of(shape, publisher.identity)
            if len(self._targets) >= limits.MQTT_SHAPES_PER_CONNECTION_MAX:
                self._targets.clear()
            self._targets[key] = known
        shape, target = known
        target.publish(publisher, PublishRun(shape, 1, ids, [packet.payload]))

    def _ping(self) -> None:
        self.write(_PINGREQ)
        self._pinger = self._hub.loop.call_later(limits.BRIDGE_KEEP_ALIVE_S / 2, self._ping)
