"""One bridge: connects to the other broker, and again; what comes in, and what the other broker says."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

import structlog

from broker.access.login import Identity
from broker.access.users import itself
from broker.engine.session_traffic import NEVER_S, Session, SubscriptionOptions
from broker.hub import Hub
from broker.mqtt import publishing
from broker.mqtt.bridges.link import BRIDGE_USER, BridgeLink
from broker.mqtt.bridges.path import has_passed, with_bridge
from broker.mqtt.bridges.publisher import Answer, BridgePublisher
from broker.mqtt.bridges.topics import inward, local_filter, remote_filter
from broker.mqtt.pubsub import PubSub
from config import limits
from config.bridge_settings import BridgeSettings
from protocols.errors import ProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt import hot, packets
from protocols.mqtt.codec import decode_packet, encode_packet
from protocols.mqtt.events import PublishRun, PublishShape
from protocols.mqtt.properties import Properties, encode_properties
from protocols.mqtt.publishes import frame_at
from protocols.mqtt.topics import validate_topic_name

_log: Final = structlog.get_logger("sluicemq.bridge")

_PINGREQ: Final = b"\xc0\x00"
_READ_BYTES: Final = 256 * 1024


class BridgeLost(Exception):
    """The connection to the other broker ended, or did not come about."""


class Bridge:
    """Runs as a task of the broker, whether the other broker is there or not."""

    def __init__(self, hub: Hub, pubsub: PubSub, settings: BridgeSettings) -> None:
        self._hub = hub
        self._pubsub = pubsub
        self._settings = settings
        self._identity: Identity = itself().enter("*")
        self._session = self._prepared()

    def _prepared(self) -> Session:
        """The session, subscribed to what goes out and to nothing else."""
        sessions = self._hub.client.sessions
        name = session_name(self._settings.name)
        session = sessions.find(name) or sessions.begin(name, BRIDGE_USER, NEVER_S)
        wanted = {local_filter(rule): rule.qos for rule in self._settings.out_topics}
        for known in list(session.subscriptions):
            if known not in wanted:
                sessions.unsubscribe(session, known)
        for topic_filter, qos in wanted.items():
            options = SubscriptionOptions(qos, True, True, 2, 0, b"")
            sessions.subscribe(session, topic_filter, options, is_logged=True)
        sessions.leave(session)
        return session

    async def run(self) -> None:
        """Keep the connection up, until the broker stops."""
        delay_s = limits.BRIDGE_RETRY_S_MIN
        while True:
            began = self._hub.clock.monotonic()
            try:
                await self._serve()
            except (OSError, BridgeLost, ProtocolError, TimeoutError) as error:
                reason = str(error) or type(error).__name__
                _log.warning("bridge.lost", bridge=self._settings.name, reason=reason, retry_s=delay_s)
            except Exception:
                _log.exception("bridge.internal_error", bridge=self._settings.name)
            if self._hub.clock.monotonic() - began > limits.BRIDGE_RETRY_S_MAX:
                delay_s = limits.BRIDGE_RETRY_S_MIN
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, limits.BRIDGE_RETRY_S_MAX)

    async def _serve(self) -> None:
        """Connect, and serve the connection until it ends; raises what ended it."""
        settings = self._settings
        async with asyncio.timeout(limits.BRIDGE_CONNECT_TIMEOUT_S):
            context = ssl.create_default_context(cafile=settings.ca_file) if settings.tls else None
            reader, writer = await asyncio.open_connection(settings.host, settings.port, ssl=context)
        connection = _Connection(self._hub, self._session, settings, writer)
        try:
            writer.write(encode_packet(self._connect(), c.MQTT_5))
            buffer = b""
            while True:
                async with asyncio.timeout(limits.BRIDGE_SILENCE_S):
                    data = await reader.read(_READ_BYTES)
                if not data:
                    raise BridgeLost("the other broker closed the connection")
                buffer = self._take(connection, buffer + data)
                self._hub.settle_turn()
                await writer.drain()
        finally:
            connection.end()
            writer.close()
            self._hub.settle_turn()

    def _connect(self) -> packets.Connect:
        settings = self._settings
        return packets.Connect(
            c.MQTT_5,
            settings.identifier,
            clean_start=False,
            keep_alive_s=limits.BRIDGE_KEEP_ALIVE_S,
            username=settings.username,
            password=None if settings.password is None else settings.password.encode(),
            will=None,
            properties=Properties(session_expiry_interval_s=NEVER_S),
        )

    def _take(self, connection: _Connection, data: bytes) -> bytes:
        """Act on all packets that are complete; gives the rest."""
        position = 0
        while position < len(data):
            body, stop = frame_at(data, position, len(data), c.REMAINING_LENGTH_MAX + 5)
            if stop > len(data):
                break
            packet = decode_packet(data[position], data[body:stop], c.MQTT_5)
            if isinstance(packet, packets.ConnAck):
                publisher = BridgePublisher(
                    self._hub,
                    self._pubsub,
                    self._identity,
                    self._session,
                    self._settings.name,
                    connection.write,
                )
                connection.begin(packet, publisher)
            else:
                connection.handle(packet)
            position = stop
        return data[position:]


class _Connection:
    """One connection to the other broker."""

    def __init__(
        self, hub: Hub, session: Session, settings: BridgeSettings, writer: asyncio.StreamWriter
    ) -> None:
        self._hub = hub
        self._session = session
        self._settings = settings
        self._writer = writer
        self._link = BridgeLink(
            hub, session, settings.out_topics, settings.identifier, writer, writer.transport.abort
        )
        self._publisher: BridgePublisher | None = None
        self._targets: dict[tuple[int, str, bytes], tuple[PublishShape, publishing.Target]] = {}
        self._pinger: asyncio.TimerHandle | None = None

    def write(self, data: bytes) -> None:
        """Send a packet."""
        if not self._writer.is_closing():
            self._writer.write(data)

    def begin(self, answer: packets.ConnAck, publisher: BridgePublisher) -> None:
        """The other broker lets us in: go on where we were."""
        if answer.reason_code:
            reason = answer.properties.reason_string or ""
            raise BridgeLost(f"refused with 0x{answer.reason_code:02x} {reason}".rstrip())
        self._publisher = publisher
        session = self._session
        if not answer.session_present:
            # it has forgotten what it sent: its packet identifiers are free
            received = session.received
            received.complete(list(received.packet_ids()), Answer(lambda tokens: None))
        properties = answer.properties
        self._link.limit(
            properties.receive_maximum or 65_535,
            properties.maximum_packet_size_bytes or c.REMAINING_LENGTH_MAX,
        )
        requests = [
            packets.SubscriptionRequest(remote_filter(rule), rule.qos, True, True, 1)
            for rule in self._settings.in_topics
        ]
        if requests:
            self.write(encode_packet(packets.Subscribe(65_535, requests), c.MQTT_5))
        session.attach(self._link)
        self._ping()
        _log.info("bridge.connected", bridge=self._settings.name, address=self._settings.address)

    def end(self) -> None:
        """The connection is gone: what goes out waits."""
        if self._pinger is not None:
            self._pinger.cancel()
        if self._link.is_attached:
            self._hub.client.sessions.leave(self._session)

    def handle(self, packet: packets.Packet) -> None:
        """Act on what the other broker says."""
        if self._publisher is None:
            raise BridgeLost("the other broker speaks before its CONNACK")
        if isinstance(packet, packets.Publish):
            self._on_publish(packet, self._publisher)
        elif isinstance(packet, packets.PubAck | packets.PubComp):
            self._link.finish([packet.packet_id])
        elif isinstance(packet, packets.PubRec):
            self._on_pubrec(packet)
        elif isinstance(packet, packets.PubRel):
            if not self._session.received.complete([packet.packet_id], Answer(self._complete)):
                self._complete([packet.packet_id])
        elif isinstance(packet, packets.SubAck):
            for rule, code in zip(self._settings.in_topics, packet.reason_codes, strict=False):
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
            self.write(hot.encode_pubrel_run(ids))

    def _complete(self, packet_ids: list[int]) -> None:
        self.write(hot.encode_pubcomp_run(packet_ids))

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
            shape = PublishShape(first_byte, topic, topic.encode(), passed)
            known = shape, publishing.target_of(shape, publisher.identity)
            if len(self._targets) >= limits.MQTT_SHAPES_PER_CONNECTION_MAX:
                self._targets.clear()
            self._targets[key] = known
        shape, target = known
        target.publish(publisher, PublishRun(shape, 1, ids, [packet.payload], b"", 0, 0, 0))

    def _ping(self) -> None:
        self.write(_PINGREQ)
        self._pinger = self._hub.loop.call_later(limits.BRIDGE_KEEP_ALIVE_S / 2, self._ping)


def session_name(bridge: str) -> str:
    """The client identifier of a bridge's session here."""
    return f"$bridge/{bridge}"


def start_bridges(hub: Hub, pubsub: PubSub) -> None:
    """Have the configured bridges run; the sessions of others end."""
    settings = hub.settings.mqtt.bridges
    sessions = hub.client.sessions
    names = {session_name(each.name) for each in settings}
    for session in sessions.of_user(BRIDGE_USER):
        if session.client_id not in names:
            sessions.end(session)
    for each in settings:
        hub.spawn(Bridge(hub, pubsub, each).run())
