"""One MQTT client: connect, subscriptions, acknowledgements, will."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final

import structlog

from broker import access
from broker.frontend import Frontend
from broker.hub import Hub
from broker.mqtt import publishing, subscribing
from broker.mqtt.delivery import MqttConsumer
from broker.mqtt.outbound import Outbound
from broker.mqtt.will import Will
from broker.pubsub import Subscription
from broker.transport import Transport
from config import limits
from protocols.mqtt import constants as c
from protocols.mqtt import events as ev
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.properties import Properties
from queue_manager.address import PREFIX
from queue_manager.consumer import CreditPool
from queue_manager.model import Entry

_log: Final = structlog.get_logger("sluicemq.mqtt")


class _Waiter:
    """Sends PUBACK (or PUBREC) for publishes that became durable."""

    __slots__ = ("_send", "_transport")

    def __init__(self, send: Callable[[list[int]], None], transport: Transport) -> None:
        self._send = send
        self._transport = transport

    def committed(self, tokens: list[int]) -> None:
        """See `queue_manager.journal.Waiter`."""
        self._transport.guard(self._send, tokens)
        self._transport.want_flush()


class MqttFrontend(Frontend):
    """Answers an MQTT client. Its session ends with its connection (told by session expiry 0)."""

    connection: MqttConnection

    def __init__(self, hub: Hub, transport: Transport) -> None:
        connection = MqttConnection(hub.clock.monotonic())
        super().__init__(hub, transport, connection)
        self.client_id = ""
        self.has_assigned_id = False
        self.outbound = Outbound(self)
        self.pool = CreditPool(65_535)
        self.subscriptions: dict[str, Subscription] = {}
        self.consumers: dict[str, MqttConsumer] = {}
        self.puback_waiter = _Waiter(connection.send_puback_run, transport)
        self.pubrec_waiter = _Waiter(connection.send_pubrec_run, transport)
        self.paused = False
        self._will: Will | None = None
        self._slow_noted = False
        self._unretained_noted = False
        self._end_logged = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.ConnectReceived: self._on_connect,
            ev.AckRun: self._on_acks,
            ev.SubscribeReceived: self._on_subscribe,
            ev.UnsubscribeReceived: self._on_unsubscribe,
            ev.DisconnectReceived: self._on_disconnect,
            ev.ConnectionLost: self._on_lost,
        }

    def handle(self, events: list[Any]) -> None:
        """See `Frontend.handle`."""
        for event in events:
            if type(event) is ev.PublishRun:
                target = event.shape.context
                if target is None:
                    target = event.shape.context = publishing.resolve(event.shape)
                target.publish(self.hub, self, self.connection.protocol_version, event)
            else:
                self._handlers[type(event)](event)

    def own_group(self) -> str:
        """The group this client is by itself; '@' stands before a pattern in group IDs."""
        return self.client_id.replace("%", "%25").replace("@", "%40").replace("\x1f", "%1F")

    def pause(self) -> None:
        """See `Frontend.pause`."""
        self.paused = True
        for consumer in self.consumers.values():
            consumer.consumer.paused = True

    def resume(self) -> None:
        """See `Frontend.resume`."""
        if self.connection.closed:
            return
        self.paused = False
        self._slow_noted = False
        for consumer in self.consumers.values():
            consumer.consumer.paused = False
            self.hub.shard.manager.wake(consumer.consumer)

    def gone(self) -> None:
        """See `Frontend.gone`."""
        now_ms = self.hub.clock.now_ms()
        if self.hub.mqtt_clients.get(self.client_id) is self:
            del self.hub.mqtt_clients[self.client_id]
        for subscription in self.subscriptions.values():
            self.hub.pubsub.unsubscribe(subscription)
        self.subscriptions.clear()
        consumers = list(self.consumers.values())
        self.consumers.clear()
        for consumer in consumers:
            consumer.consumer.paused = True
        for consumer in consumers:
            if not consumer.consumer.group.queue.deleted:
                self.hub.shard.manager.unsubscribe(consumer.consumer, now_ms)
        if self._will is not None:
            will = self._will
            self._will = None
            will.publish(self.hub)

    def shut_down(self) -> None:
        """See `Frontend.shut_down`."""
        self._end_logged = True
        self.connection.disconnect(c.SERVER_SHUTTING_DOWN, "the broker is shutting down")
        self.transport.want_flush()

    def fail_storage(self) -> None:
        """See `Frontend.fail_storage`."""
        self._end_logged = True
        self.connection.disconnect(c.SERVER_SHUTTING_DOWN, "the broker's store failed")
        self.pause()
        self.transport.want_flush()

    def fail_internal(self) -> None:
        """See `Frontend.fail_internal`."""
        self._end_logged = True
        self.connection.disconnect(c.UNSPECIFIED_ERROR, "internal error")
        self.pause()
        self.transport.want_flush()

    def disconnect(self, reason_code: int, reason: str) -> None:
        """End the connection from this side; one log line says who and why."""
        self._end_logged = True
        _log.warning(
            "mqtt.disconnected",
            peer=self.transport.peer,
            client_id=self.client_id,
            code=f"0x{reason_code:02x}",
            reason=reason,
        )
        self.connection.disconnect(reason_code, reason)
        self.pause()
        self.transport.want_flush()

    def note_refused(self, topic: str, reason: str, count: int = 1) -> None:
        """Log publishes that were not taken."""
        queue = topic.split("/", 2)[1] if topic.startswith(PREFIX) else topic
        self.hub.refusals.note(
            queue,
            self.hub.clock.now_ms(),
            count,
            peer=self.transport.peer,
            client_id=self.client_id,
            topic=topic,
            reason=reason,
        )

    def note_unretained(self, topic: str, reason: str) -> None:
        """Log, once for this connection, that the retain flag of a publish had no effect."""
        if not self._unretained_noted:
            self._unretained_noted = True
            _log.warning(
                "mqtt.retain_refused",
                peer=self.transport.peer,
                client_id=self.client_id,
                topic=topic,
                reason=reason,
            )

    def note_slow(self) -> None:
        """Log, once per stall, that this client loses messages."""
        if not self._slow_noted:
            self._slow_noted = True
            _log.warning("mqtt.slow_client", peer=self.transport.peer, client_id=self.client_id)

    def settle_unsendable(self, count: int, entries: list[Entry]) -> None:
        """Messages larger than the client takes. Claims among them fail, or they would come back for ever."""
        self.hub.counters.dropped_too_large += count
        if entries:
            _log.warning("mqtt.message_too_large", client_id=self.client_id, count=count)
            self.hub.shard.manager.reject(entries, self.hub.clock.now_ms())

    def consumer_cancelled(self, consumer: MqttConsumer, reason: str) -> None:
        """The queue or the group of a subscription is gone.

        MQTT has no word for the end of one subscription, and a client that takes itself for subscribed would
        wait for ever: so it is disconnected, subscribes anew, and sees by the SUBACK where it is.
        """
        self.consumers.pop(consumer.filter, None)
        self.outbound.forget_ended()
        if self.connection.closed:
            return
        self.disconnect(c.ADMINISTRATIVE_ACTION, f"the subscription {consumer.filter!r} ended: {reason}")

    def drop_consumer(self, consumer: MqttConsumer) -> None:
        """End a `$queue` subscription; its claims return."""
        self.hub.shard.manager.unsubscribe(consumer.consumer, self.hub.clock.now_ms())
        self.outbound.forget_ended()

    # connecting

    def _on_connect(self, event: ev.ConnectReceived) -> None:
        packet = event.packet
        connection = self.connection
        refusal = access.check_mqtt(self.transport.peer, packet.username, packet.password)
        if refusal:
            wrong = refusal == access.WRONG_CREDENTIALS
            self._refuse(
                packet.client_id, c.BAD_USER_NAME_OR_PASSWORD if wrong else c.NOT_AUTHORIZED, refusal
            )
            return
        is_5 = connection.protocol_version == c.MQTT_5
        if not is_5 and not packet.clean_start:
            reason = "sessions that outlive a connection are not supported by this version: set clean session"
            self._refuse(packet.client_id, c.SERVER_UNAVAILABLE, reason)
            return
        properties = Properties()
        self.client_id = packet.client_id
        if not self.client_id:
            self.has_assigned_id = True
            self.client_id = f"auto-{secrets.token_urlsafe(12)}"
            properties.assigned_client_identifier = self.client_id
        if is_5:
            if packet.properties.session_expiry_interval_s:
                properties.session_expiry_interval_s = 0
                properties.reason_string = "this version ends every session with its connection"
            self.pool.credit_max = connection.client_receive_maximum
            self.outbound.window.maximum = connection.client_receive_maximum
        if packet.will is not None:
            self._will = Will(packet.will, connection.protocol_version)
        other = self.hub.mqtt_clients.get(self.client_id)
        if other is not None:
            other.disconnect(c.SESSION_TAKEN_OVER, "another connection uses this client identifier")
            other.transport.flush()
        self.hub.mqtt_clients[self.client_id] = self
        self.handle(connection.accept(False, properties))

    def _refuse(self, client_id: str, reason_code: int, reason: str) -> None:
        """Turn the client away at its CONNECT; one log line says who and why."""
        self._end_logged = True
        _log.warning("mqtt.connect_refused", peer=self.transport.peer, client_id=client_id, reason=reason)
        self.connection.refuse(reason_code, reason)

    def _on_disconnect(self, event: ev.DisconnectReceived) -> None:
        if event.reason_code != c.DISCONNECT_WITH_WILL:
            self._will = None

    def _on_lost(self, event: ev.ConnectionLost) -> None:
        if not event.by_peer and not self._end_logged:
            _log.warning(
                "mqtt.connection_closed",
                peer=self.transport.peer,
                client_id=self.client_id,
                code=f"0x{event.reason_code:02x}",
                reason=event.reason,
            )

    # acknowledgements

    def _on_acks(self, event: ev.AckRun) -> None:
        kind = event.packet_type
        ids = event.packet_ids
        failed = event.reason_code >= c.UNSPECIFIED_ERROR
        if kind == c.PUBREL:
            self.connection.send_pubcomp_run(ids)
        elif kind == c.PUBREC and not failed:
            in_use = self.outbound.window.in_use
            if in_use.issuperset(ids):
                self.connection.send_pubrel_run(ids)
                return
            for packet_id in ids:
                known = packet_id in in_use
                self.connection.send_pubrel(packet_id, c.SUCCESS if known else c.PACKET_IDENTIFIER_NOT_FOUND)
        else:
            entries = self.outbound.finished(ids)
            if entries:
                self._settle(entries, failed)

    def _settle(self, entries: list[Entry], failed: bool) -> None:
        manager = self.hub.shard.manager
        now_ms = self.hub.clock.now_ms()
        late = manager.requeue(entries, now_ms) if failed else manager.ack(entries, now_ms)
        self.hub.counters.late_settles += late

    # subscribing

    def _on_subscribe(self, event: ev.SubscribeReceived) -> None:
        codes = []
        reasons = []
        after: list[Callable[[], None]] = []
        for request in event.filters:
            if len(self.subscriptions) + len(self.consumers) >= limits.MQTT_SUBSCRIPTIONS_PER_SESSION_MAX:
                codes.append(c.QUOTA_EXCEEDED)
                reasons.append("too many subscriptions")
                continue
            code, reason = subscribing.subscribe(self, event, request, after)
            codes.append(code)
            if reason:
                reasons.append(f"{request.filter}: {reason}")
                _log.warning(
                    "mqtt.subscribe_refused",
                    peer=self.transport.peer,
                    client_id=self.client_id,
                    filter=request.filter,
                    reason=reason,
                )
        properties = Properties(reason_string="; ".join(reasons)) if reasons else None
        self.connection.send_suback(event.packet_id, codes, properties)
        for call in after:  # retained messages come behind the SUBACK
            call()

    def _on_unsubscribe(self, event: ev.UnsubscribeReceived) -> None:
        codes = []
        for topic_filter in event.filters:
            consumer = self.consumers.pop(topic_filter, None)
            if consumer is not None:
                self.drop_consumer(consumer)
            subscription = self.subscriptions.pop(topic_filter, None)
            if subscription is not None:
                self.hub.pubsub.unsubscribe(subscription)
            found = consumer is not None or subscription is not None
            codes.append(c.SUCCESS if found else c.NO_SUBSCRIPTION_EXISTED)
        self.connection.send_unsuback(event.packet_id, codes)
