"""One MQTT client: put together from its parts, which take its events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker.connections.connection_views import Description
from broker.connections.registry import Goodbye
from broker.mqtt import native
from broker.mqtt.admission import Admission
from broker.mqtt.connection.mqtt_client import MqttClient, Rate
from broker.mqtt.consuming.subscribe import Subscriptions
from broker.mqtt.each_topic import EachTopic
from broker.mqtt.lone_packets import LonePackets
from broker.mqtt.publishing import publish
from broker.mqtt.sessions.session_link import SessionLink
from broker.mqtt.settling.outbound import Outbound
from broker.mqtt.settling.publish_answers import ClientPublisher
from broker.mqtt.shared_parts import Shared
from broker.network.frontend_base import Frontend
from broker.network.transport import Transport
from broker.vhosts.hub import Hub
from protocols.mqtt import constants as c
from protocols.mqtt import events as ev
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.properties import Properties

_GOODBYES: Final = {
    Goodbye.DISMISSED: c.ADMINISTRATIVE_ACTION,
    Goodbye.SHUTTING_DOWN: c.SERVER_SHUTTING_DOWN,
    Goodbye.STORE_FAILED: c.SERVER_SHUTTING_DOWN,
    Goodbye.TOO_SLOW: c.QUOTA_EXCEEDED,
    Goodbye.NOT_PERMITTED: c.NOT_AUTHORIZED,
    Goodbye.INTERNAL_ERROR: c.UNSPECIFIED_ERROR,
}


class MqttFrontends:
    """Makes the front-ends of the MQTT clients in a virtual host."""

    def __init__(self, hub: Hub, shared: Shared | None = None) -> None:
        """`shared` is what those clients share already."""
        self._hub = hub
        self._shared = Shared(hub) if shared is None else shared

    def accept(self, transport: Transport) -> MqttFrontend:
        """Accept a client that connected."""
        return MqttFrontend(self._shared, transport)

    def home_of(self, said: bytes) -> int | None:
        """Return the worker, of several, that a client belongs to; see `Shared.home_of`."""
        return self._shared.home_of(said)

    def of_vhost(self, name: str) -> MqttFrontends:
        """Return those of a virtual host; raises VhostNotFound."""
        return MqttFrontends(self._hub.of_vhost(name), self._shared.of_vhost(name))


class MqttFrontend(Frontend):
    """Puts the parts of an MQTT client together, and hands each event to its part. Implements `Admitted`."""

    connection: MqttConnection

    def __init__(self, shared: Shared, transport: Transport) -> None:
        clock = shared.hub.clock
        super().__init__(MqttConnection(clock.monotonic(), shared.offer))
        self._settings = settings = shared.hub.settings.mqtt
        self._publishes = Rate(settings.message_rate, clock.monotonic()) if settings.message_rate else None
        self._admission = Admission(self, shared)
        self._enter(shared, transport)

    def _enter(self, shared: Shared, transport: Transport) -> None:
        """Enter that virtual host as a client."""
        self._shared = shared
        self.client = MqttClient(shared.hub, transport, self.connection)
        self.outbound = Outbound(self.client)
        self._publisher: ClientPublisher
        self._subscriptions: Subscriptions | None = None
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.ConnectReceived: self._admission.on_connect,
            ev.DisconnectReceived: self._admission.on_disconnect,
            ev.AuthReceived: self._admission.on_auth,
            ev.ConnectionLost: self._on_lost,
        }

    def move(self, shared: Shared) -> None:
        self._enter(shared, self.client.transport)

    def let_in(self, link: SessionLink | None, events: list[Any]) -> None:
        client, outbound, shared = self.client, self.outbound, self._shared
        session = None if link is None else link.session
        self._publisher = ClientPublisher(client, shared.pubsub, outbound, session)
        self._subscriptions = subscriptions = Subscriptions(
            client, outbound, shared.pubsub, shared.system, shared.shares, shared.retained, link
        )
        if link is not None:
            outbound.belong_to(link.session)
            subscriptions.resume()
            link.attach()
        self._handlers |= {
            ev.AckRun: outbound.on_acks if link is None else link.on_acks,
            ev.SubscribeReceived: subscriptions.on_subscribe,
            ev.UnsubscribeReceived: subscriptions.on_unsubscribe,
        }
        outbound.tell_room(subscriptions.wake)
        if self._publishes is None:
            lone = LonePackets(client.transport, self.connection, self._publisher, outbound)
            client.transport.take_lone = lone.take
            if native.pass_on_each is not None:
                each = EachTopic(native.pass_on_each, client.transport, self._publisher)
                self.connection.take_first = each.take
        self.handle(events)

    def handle(self, events: list[Any]) -> None:
        if self._publishes is not None and not self._is_within_rate(self._publishes, events):
            return
        for event in events:
            if type(event) is ev.PublishRun:
                target = event.shape.context
                if target is None:
                    target = publish.target_of(event.shape, self.client.identity)
                target.publish(self._publisher, event)
            else:
                self._handlers[type(event)](event)

    def _is_within_rate(self, rate: Rate, events: list[Any]) -> bool:
        """Return whether the client publishes no faster than it may; if not, it is sent away."""
        count = self.published_count(events)
        if not count or rate.take(count, self.client.clock.monotonic()):
            return True
        reason = f"more than {self._settings.message_rate} messages a second"
        self.client.disconnect(c.MESSAGE_RATE_TOO_HIGH, reason)
        return False

    def published_count(self, events: list[Any]) -> int:
        return sum(event.count for event in events if type(event) is ev.PublishRun)

    def pause(self) -> None:
        self.client.consumers.pause()

    def resume(self) -> None:
        if not self.connection.closed:
            self.outbound.caught_up()
            self.client.consumers.resume()
            if self._subscriptions is not None:
                self._subscriptions.wake()

    def gone(self) -> None:
        self.outbound.tell_room(None)
        if self._subscriptions is not None:
            self._subscriptions.end()
        self._admission.leave()

    def dissolve(self) -> None:
        self._handlers.clear()
        self.outbound.dissolve()
        if self._subscriptions is not None:  # the client was let in
            self._publisher.dissolve()
        del self._admission
        self.connection.take_first = None
        self.connection.forget_shapes()

    def describe(self) -> Description:
        client = self.client
        is_in = hasattr(client, "identity")
        versions = {c.MQTT_5: "MQTT 5", c.MQTT_3_1_1: "MQTT 3.1.1"}
        return Description(
            protocol=versions.get(self.connection.protocol_version, "MQTT"),
            user=client.identity.user if is_in else "",
            vhost=client.vhost if is_in else "",
            client_id=client.client_id,
            consumers=client.consumers.views(),
            subscriptions=() if self._subscriptions is None else self._subscriptions.views(),
        )

    def say_goodbye(self, why: Goodbye, reason: str) -> None:
        reference = self._shared.hub.moves_to() or self._settings.server_reference
        if reason:
            self.client.disconnect(_GOODBYES[why], reason)
        elif why is Goodbye.SHUTTING_DOWN and reference:
            self.client.end(c.USE_ANOTHER_SERVER, why.value, Properties(server_reference=reference))
        else:
            self.client.end(_GOODBYES[why], why.value)

    def _on_lost(self, event: ev.ConnectionLost) -> None:
        if not event.by_peer:
            self.client.lost(event.reason_code, event.reason)
