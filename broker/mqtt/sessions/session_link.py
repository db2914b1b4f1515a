"""One client's connection to its session: what goes out of the session, and what the client says of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from broker.clients.when_durable import WhenDurable
from broker.engine.session_traffic import Delivery, Matched, Session, SubscriptionOptions
from broker.mqtt.connection.mqtt_client import MqttClient
from broker.mqtt.settling.outbound import Outbound
from broker.mqtt.topology.subscription import Subscription, encode_identifier
from broker.properties.templates import as_mqtt_at
from config import limits
from protocols.mqtt import constants as c
from protocols.mqtt.events import AckRun, PublishRun


class SessionLink:
    """A `broker.engine.session_traffic.Link`."""

    __slots__ = ("_client", "_completed", "_counters", "_outbound", "_plain", "_sessions", "session")

    def __init__(self, client: MqttClient, outbound: Outbound, session: Session) -> None:
        self.session = session
        self._client = client
        self._counters = client.hub.counters
        self._sessions = client.core.sessions
        self._outbound = outbound
        self._completed = WhenDurable(client.connection.send_pubcomp_run, client.transport)
        self._plain: dict[Matched, Subscription] = {}

    def attach(self) -> None:
        """Let the session go on where it was: the client is let in."""
        unfinished = self.session.unfinished
        self._outbound.window.occupy(unfinished.packet_ids(), unfinished.unreceived())
        self.session.attach(self)

    @property
    def is_attached(self) -> bool:
        """Whether the session is this connection's, and not another's by now."""
        return self.session.link is self

    # what the session sends

    def room(self) -> int:
        client = self._client
        if client.connection.closed or client.transport.paused:
            return 0
        window = self._outbound.window
        # what waits for the window must not keep back what holds it
        return window.unsent_count if self._outbound.is_waiting else window.room()

    def take_packet_id(self) -> int:
        return self._outbound.window.take_one()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        self._client.transport.guard(self._deliver, deliveries)

    def release(self, packet_ids: list[int]) -> None:
        self._client.connection.send_pubrel_run(packet_ids)
        self._client.transport.want_flush()

    def forget(self, packet_ids: list[int]) -> None:
        self._outbound.free_up(packet_ids)

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        connection = self._client.connection
        if connection.closed:
            return
        now_ms = self._client.clock.now_ms()
        for _, group in groupby(deliveries, _likeness):
            alike = list(group)
            first = alike[0]
            message = first.merged.message
            if not self._outbound.may_read(message.template.topic):
                self._finish([d.packet_id for d in alike])
                continue
            properties = b""
            if connection.protocol_version == c.MQTT_5:
                properties = as_mqtt_at(message.template, message.received_at_ms, now_ms)
                for identifier in first.identifiers:
                    properties += encode_identifier(identifier)
            topic = message.template.topic.encode()
            packet_ids = [d.packet_id for d in alike]
            bodies = [d.merged.message.body for d in alike]
            if not self._outbound.encode(
                topic, first.qos, first.retain, first.is_repeated, properties, packet_ids, bodies
            ):
                self._skip_too_large(packet_ids)
            elif first.is_repeated:
                self._outbound.window.sent_again(packet_ids)
        self._client.transport.want_flush()

    def _skip_too_large(self, packet_ids: list[int]) -> None:
        """Finish too large ones as if they had been sent and acknowledged [MQTT-3.1.2-25]."""
        self._counters.drop_too_large(len(packet_ids))
        self._finish(packet_ids)

    def _finish(self, packet_ids: list[int]) -> None:
        self.session.acknowledge(packet_ids, self._client.clock.now_ms())
        self._outbound.free_up(packet_ids)

    def pass_on(self, run: PublishRun, matched: Matched) -> None:
        """Send publishes of QoS 0, which are kept for nobody, as the subscriptions together want them."""
        if not self._outbound.may_read(run.shape.topic):
            return
        plain = self._plain.get(matched)
        if plain is None:
            if len(self._plain) >= limits.SESSION_TOPICS_MATCHED_MAX:
                self._plain.clear()
            plain = self._plain[matched] = self._together(matched)
        self._outbound.rewrite(run, plain)

    def _together(self, matched: Matched) -> Subscription:
        options = [each.options for each in (*matched.logged, *matched.beside)]
        return Subscription(
            self._outbound,
            matched.logged[0].filter,
            max(each.qos for each in options),
            retain_as_published=any(each.retain_as_published for each in options),
            identifiers=b"".join(encode_identifier(each.identifier or None) for each in options),
        )

    # what the client is subscribed to

    def subscribe(self, topic_filter: str, options: SubscriptionOptions, *, is_logged: bool) -> bool:
        """Have the session subscribed to a filter; whether it was not."""
        self._plain.clear()
        return self._sessions.subscribe(self.session, topic_filter, options, is_logged=is_logged)

    def unsubscribe(self, topic_filter: str) -> bool:
        """Have the session subscribed to a filter no more; whether it was."""
        self._plain.clear()
        return self._sessions.unsubscribe(self.session, topic_filter)

    # what the client says

    def on_acks(self, event: AckRun) -> None:
        """Take answers as `Outbound.on_acks`, which gets what is not of the session."""
        session = self.session
        kind = event.packet_type
        ids = event.packet_ids
        if not self.is_attached:
            return
        if kind == c.PUBREL:
            if session.received.complete(ids, self._completed):
                return
        elif kind == c.PUBREC and event.reason_code < c.UNSPECIFIED_ERROR:
            known = set(session.receive(ids, self._client.clock.now_ms()))
            if known:
                ids = [packet_id for packet_id in ids if packet_id not in known]
                if not ids:
                    return
                event = AckRun(kind, ids, event.reason_code)
        else:
            session.acknowledge(ids, self._client.clock.now_ms())
        self._outbound.on_acks(event)
        session.wake()
        self._outbound.note_room()  # of share groups: a member whose session is behind is passed over


def _likeness(delivery: Delivery) -> tuple[int, int, int, bool, bool, int]:
    """Return what deliveries that can be encoded together have in common."""
    message = delivery.merged.message
    template = message.template
    return (
        id(template),
        len(message.body),
        delivery.qos,
        delivery.retain,
        delivery.is_repeated,
        # the remaining expiry is each one's own, and so may be the identifiers
        message.message_id if template.expires_at_ms or delivery.identifiers else 0,
    )
