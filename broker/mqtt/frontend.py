"""One MQTT client: connects, is put together from its parts, goes."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import structlog

from broker.access.credentials import (
    Anonymous,
    Certificate,
    Credentials,
    LoginRefused,
    Password,
    VhostRefused,
)
from broker.access.login import NotPermitted
from broker.connection_views import Description
from broker.entrance import Found, log_in
from broker.frontend import Frontend
from broker.hub import Hub
from broker.mqtt import publishing
from broker.mqtt.authentication import Authentication, Methods
from broker.mqtt.bridges.bridge import start_bridges
from broker.mqtt.client import Clients, MqttClient
from broker.mqtt.durable_call import DurableCall
from broker.mqtt.errors import connect_code
from broker.mqtt.foreign import ForeignPublishes
from broker.mqtt.outbound import Outbound
from broker.mqtt.publisher import ClientPublisher
from broker.mqtt.pubsub import PubSub
from broker.mqtt.scram import ScramMethods
from broker.mqtt.sessions.lasting import LastingSessions, Opened
from broker.mqtt.sessions.link import SessionLink
from broker.mqtt.sessions.shares import KeptShares
from broker.mqtt.subscribing import Subscriptions
from broker.mqtt.system_topics import SystemTopics
from broker.mqtt.will import Will, Wills
from broker.rate import Rate
from broker.transport import Transport
from broker.vhost import VhostFull, VhostNotFound
from config.mqtt_settings import MqttSettings
from protocols.mqtt import constants as c
from protocols.mqtt import events as ev
from protocols.mqtt import packets
from protocols.mqtt.connection import InboundQos2, MqttConnection
from protocols.mqtt.offer import Offer
from protocols.mqtt.packets import Connect
from protocols.mqtt.properties import Properties
from queue_manager.address import DEFAULT_VHOST
from queue_manager.errors import QueueManagerError

_log: Final = structlog.get_logger("sluicemq.mqtt")


class MqttFrontends:
    """Makes the front-ends of the MQTT clients in a virtual host, and holds what these share.

    Bridges belong to the virtual host `/`.
    """

    def __init__(
        self,
        hub: Hub,
        methods: Methods | None = None,
        of_hubs: dict[Hub, MqttFrontends] | None = None,
    ) -> None:
        """`methods` are those of enhanced authentication, instead of the broker's own; `of_hubs` those of
        all virtual hosts that clients came into.
        """
        self._of_hubs = {} if of_hubs is None else of_hubs
        self._of_hubs[hub] = self
        settings = hub.settings.mqtt
        self.hub = hub
        self.methods = methods or ScramMethods(hub.access)
        self.clients = Clients()
        self.pubsub = PubSub(settings.shared_subscriptions)
        hub.access.on_reload(self.pubsub.forget_routes)
        self.wills = Wills(hub, self.pubsub)
        self.offer = offer_of(settings)
        self.connects = Rate(settings.connect_rate, hub.clock.monotonic()) if settings.connect_rate else None
        hub.topics.join(ForeignPublishes(hub, self.pubsub))
        self.sessions = LastingSessions(hub, self.pubsub)
        self.shares = KeptShares(hub, self.pubsub)
        if hub.vhost.name == DEFAULT_VHOST:
            start_bridges(hub, self.pubsub)
        self.system = SystemTopics(hub, self.pubsub, self.clients)

    def accept(self, transport: Transport) -> MqttFrontend:
        """A client connected."""
        return MqttFrontend(self, transport)

    def of_vhost(self, name: str) -> MqttFrontends:
        """Those of a virtual host; raises VhostNotFound."""
        hub = self.hub.of_vhost(name)
        found = self._of_hubs.get(hub)
        if found is None:
            for gone in [each for each in self._of_hubs if not each.is_there]:
                del self._of_hubs[gone]
            found = MqttFrontends(hub, self.methods, self._of_hubs)
        return found


def offer_of(settings: MqttSettings) -> Offer:
    """What clients are offered."""
    return Offer(
        receive_maximum=settings.receive_maximum,
        packet_bytes_max=settings.max_packet_size_bytes,
        topic_alias_maximum=settings.topic_alias_maximum,
        maximum_qos=settings.max_qos,
        retain_available=settings.retain,
        keep_alive_s_max=settings.keep_alive_s_max,
        response_information=settings.response_information,
    )


class MqttFrontend(Frontend):
    """Answers an MQTT client. `_link` is the way to its session, if that outlives the connection."""

    connection: MqttConnection

    def __init__(self, shared: MqttFrontends, transport: Transport) -> None:
        clock = shared.hub.clock
        super().__init__(MqttConnection(clock.monotonic(), shared.offer))
        self._authentication: Authentication | None = None
        self._will: Will | None = None
        self._link: SessionLink | None = None
        message_rate = shared.hub.settings.mqtt.message_rate
        self._publishes = Rate(message_rate, clock.monotonic()) if message_rate else None
        self._enter(shared, transport)

    def _enter(self, shared: MqttFrontends, transport: Transport) -> None:
        """Be a client in that virtual host."""
        self.client = MqttClient(shared.hub, transport, self.connection)
        self._shared = shared
        self._outbound = Outbound(self.client)
        self._publisher = ClientPublisher(self.client, shared.pubsub, self._outbound)
        self._subscriptions = Subscriptions(
            self.client, self._outbound, shared.pubsub, shared.system, shared.shares
        )
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.ConnectReceived: self._on_connect,
            ev.AckRun: self._outbound.on_acks,
            ev.SubscribeReceived: self._subscriptions.on_subscribe,
            ev.UnsubscribeReceived: self._subscriptions.on_unsubscribe,
            ev.DisconnectReceived: self._on_disconnect,
            ev.AuthReceived: self._on_auth,
            ev.ConnectionLost: self._on_lost,
        }

    def handle(self, events: list[Any]) -> None:
        """See `Frontend.handle`."""
        if self._publishes is not None and not self._is_within_rate(self._publishes, events):
            return
        for event in events:
            if type(event) is ev.PublishRun:
                target = event.shape.context
                if target is None:
                    target = publishing.target_of(event.shape, self.client.identity)
                target.publish(self._publisher, event)
            else:
                self._handlers[type(event)](event)

    def _is_within_rate(self, rate: Rate, events: list[Any]) -> bool:
        """Whether the client publishes no faster than it may; if not, it is sent away."""
        count = sum(event.count for event in events if type(event) is ev.PublishRun)
        if not count or rate.take(count, self.client.hub.clock.monotonic()):
            return True
        per_s = self.client.hub.settings.mqtt.message_rate
        self.client.disconnect(c.MESSAGE_RATE_TOO_HIGH, f"more than {per_s} messages a second")
        return False

    def pause(self) -> None:
        """See `Frontend.pause`."""
        self.client.consumers.pause()

    def resume(self) -> None:
        """See `Frontend.resume`."""
        if not self.connection.closed:
            self._outbound.caught_up()
            self.client.consumers.resume()
            self._subscriptions.wake()
            if self._link is not None:
                self._link.session.wake()

    def held_back(self, reason: str) -> None:
        """See `Frontend.held_back`: MQTT has no words for it."""

    def let_on(self) -> None:
        """See `Frontend.let_on`."""

    def gone(self) -> None:
        """See `Frontend.gone`."""
        self._shared.clients.leave(self.client)
        self.client.leave()
        self._subscriptions.end()
        link = self._link
        session = None
        is_taken_over = False
        if link is not None:
            session = link.session
            is_taken_over = not (link.is_attached or session.is_over)
            self._shared.sessions.close(link)
        self._outbound.give_back()
        will = self._will
        self._will = None
        if (will is not None or session is not None) and not is_taken_over:
            self._shared.wills.leave(self.client.client_id, will, self.client.identity, session)

    def dissolve(self) -> None:
        """See `Frontend.dissolve`."""
        self._handlers.clear()
        self.connection.forget_shapes()

    def describe(self) -> Description:
        """See `Frontend.describe`."""
        client = self.client
        is_in = hasattr(client, "identity")
        versions = {c.MQTT_5: "MQTT 5", c.MQTT_3_1_1: "MQTT 3.1.1"}
        return Description(
            protocol=versions.get(self.connection.protocol_version, "MQTT"),
            user=client.identity.user if is_in else "",
            vhost=client.vhost if is_in else "",
            client_id=client.client_id,
            consumers=client.consumers.views(),
            subscriptions=self._subscriptions.views(),
        )

    def dismiss(self, reason: str) -> None:
        """See `Frontend.dismiss`."""
        self.client.disconnect(c.ADMINISTRATIVE_ACTION, reason)

    def shut_down(self) -> None:
        """See `Frontend.shut_down`."""
        reference = self.client.hub.settings.mqtt.server_reference
        if reference:
            properties = Properties(server_reference=reference)
            self.client.end(c.USE_ANOTHER_SERVER, "the broker is shutting down", properties)
        else:
            self.client.end(c.SERVER_SHUTTING_DOWN, "the broker is shutting down")

    def fail_storage(self) -> None:
        """See `Frontend.fail_storage`."""
        self.client.end(c.SERVER_SHUTTING_DOWN, "the broker's store failed")

    def fail_slow(self, reason: str) -> None:
        """See `Frontend.fail_slow`."""
        self.client.disconnect(c.QUOTA_EXCEEDED, reason)

    def fail_access(self, reason: str) -> None:
        """See `Frontend.fail_access`."""
        self.client.disconnect(c.NOT_AUTHORIZED, reason)

    def fail_internal(self) -> None:
        """See `Frontend.fail_internal`."""
        self.client.end(c.UNSPECIFIED_ERROR, "internal error")

    def _on_connect(self, event: ev.ConnectReceived) -> None:
        packet = event.packet
        client = self.client
        connects = self._shared.connects
        if connects is not None and not connects.take(1, client.hub.clock.monotonic()):
            client.refuse(packet.client_id, c.CONNECTION_RATE_EXCEEDED, "too many connections a second")
            return
        method = packet.properties.authentication_method
        if method is not None:
            self._authenticate(packet, method)
            return
        shown: Credentials
        if packet.username is not None:
            shown = Password(self._user_of(packet.username), packet.password or b"")
        elif names := client.transport.certificate_names:
            shown = Certificate(names, is_claim=False)
        else:
            shown = Anonymous()
        client = self.client
        log_in(client.hub, client.transport, shown, partial(self._found, packet))

    def _user_of(self, username: str) -> str:
        """The user of a CONNECT. `vhost:user` leads into that virtual host, if there is one of that name."""
        vhost, colon, user = username.rpartition(":")
        if not colon or self.client.hub.settings.mqtt.ignore_colons_in_username:
            return username
        try:
            shared = self._shared.of_vhost(vhost)
        except VhostNotFound:
            return username
        if shared is not self._shared:
            self._enter(shared, self.client.transport)
        return user

    def _authenticate(self, packet: Connect, method: str) -> None:
        found = partial(self._found, packet)
        self._authentication = Authentication(self.client, self._shared.methods, found)
        if not self._authentication.begin(method, packet.properties.authentication_data or b""):
            reason = f"no authentication method {method!r}"
            self.client.refuse(packet.client_id, c.BAD_AUTHENTICATION_METHOD, reason)

    def _on_auth(self, event: ev.AuthReceived) -> None:
        if self._authentication is not None:
            self._authentication.on_auth(event)

    def _found(self, packet: Connect, found: Found, last_words: bytes | None = None) -> None:
        """Who that is, or that nobody comes in so; `last_words` are those of enhanced authentication."""
        client = self.client
        if self.connection.closed:  # the client did not wait
            return
        if isinstance(found, LoginRefused):
            wrong = found.told == LoginRefused.TOLD
            code = c.BAD_USER_NAME_OR_PASSWORD if wrong else c.NOT_AUTHORIZED
            client.refuse(packet.client_id, code, found.reason, told=found.told)
            return
        assigned_id = "" if packet.client_id else f"auto-{secrets.token_urlsafe(12)}"
        client_id = packet.client_id or assigned_id
        try:
            identity = found.enter(client.vhost, client_id)
            if packet.will is not None:
                publishing.check_publish(identity, packet.will.topic)
        except (NotPermitted, VhostRefused) as refused:
            client.refuse(packet.client_id, c.NOT_AUTHORIZED, refused.reason)
            return
        other = self._shared.clients.find(client_id)
        if other is not None and other.identity.user != identity.user:
            client.refuse(packet.client_id, c.NOT_AUTHORIZED, "another user's client has this identifier")
            return
        try:
            client.identify(identity, client_id, is_assigned=bool(assigned_id))
        except (LoginRefused, VhostFull) as refused:
            client.refuse(packet.client_id, c.QUOTA_EXCEEDED, refused.reason)
            return
        if packet.will is None or self._take_will(packet.will):
            properties = Properties(
                assigned_client_identifier=assigned_id or None, authentication_data=last_words
            )
            self._open_session(packet, properties)

    def _open_session(self, packet: Connect, properties: Properties) -> None:
        """Find or begin the session of a client that may come in; `properties` are for CONNACK."""
        client = self.client
        connection = self.connection
        try:
            opened = self._shared.sessions.open(client, self._outbound, packet)
        except QueueManagerError as error:
            self._will = None
            client.refuse(packet.client_id, connect_code(error), error.reason)
            return
        if connection.protocol_version == c.MQTT_5:
            properties.session_expiry_interval_s = opened.expiry_s
            self._outbound.limit(connection.client_receive_maximum, connection.client_topic_alias_maximum)
        self._shared.clients.enter(client)
        if opened.is_present:
            self._shared.wills.session_resumed(client.client_id)
        else:
            self._shared.wills.session_ended(client.client_id)
        if opened.waits:
            call = partial(self._let_in, opened, properties)
            client.hub.client.commits.wait(DurableCall(client.transport, call), 0)
        else:
            self._let_in(opened, properties)

    def _let_in(self, opened: Opened, properties: Properties) -> None:
        """Answer the CONNECT, and go on with its session."""
        if self.connection.closed:
            return
        link = opened.link
        if link is None:
            self.handle(self.connection.accept(False, properties))
            return
        received = InboundQos2()
        received.take(link.session.received)
        events = self.connection.accept(opened.is_present, properties, received)
        self._link = link
        self._shared.wills.connected(self.client.client_id, self._will, self.client.identity, link.session)
        self._publisher.belong_to(link.session)
        self._subscriptions.belong_to(link)
        self._handlers[ev.AckRun] = link.on_acks
        link.attach()
        self.handle(events)

    def _take_will(self, asked: packets.Will) -> bool:
        """Keep the will, or refuse the client for it; whether it may come in."""
        will = Will.asked(asked, self.connection.protocol_version)
        refusal = will.refusal()
        if refusal is not None:
            self.client.refuse(self.client.client_id, refusal[0], f"will: {refusal[1]}")
            return False
        self._will = will
        return True

    def _on_disconnect(self, event: ev.DisconnectReceived) -> None:
        if event.reason_code != c.DISCONNECT_WITH_WILL:
            self._will = None
        expiry_s = event.properties.session_expiry_interval_s
        if expiry_s is not None and self._link is not None:
            self._shared.sessions.change_expiry(self._link.session, expiry_s)

    def _on_lost(self, event: ev.ConnectionLost) -> None:
        if not event.by_peer:
            self.client.lost(event.reason_code, event.reason)
