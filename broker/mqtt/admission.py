"""The way of an MQTT client in, from its CONNECT on, and out again."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any, Protocol

from broker.access.ban_table import Banned
from broker.access.credentials import (
    Anonymous,
    Certificate,
    Credentials,
    LoginRefused,
    Password,
    VhostRefused,
)
from broker.access.login import NotPermitted
from broker.clients.entrance import Found, log_in
from broker.mqtt.connection.authentication import Authentication
from broker.mqtt.connection.errors import connect_code
from broker.mqtt.connection.mqtt_client import MqttClient
from broker.mqtt.publishing import publish
from broker.mqtt.publishing.will import Will
from broker.mqtt.sessions.lasting_sessions import Opened
from broker.mqtt.sessions.session_link import SessionLink
from broker.mqtt.settling.outbound import Outbound
from broker.mqtt.shared_parts import Shared
from broker.vhosts.vhost import VhostNotFound
from protocols.mqtt import constants as c
from protocols.mqtt import packets
from protocols.mqtt.connection import InboundQos2
from protocols.mqtt.events import AuthReceived, ConnectReceived, DisconnectReceived
from protocols.mqtt.packets import Connect
from protocols.mqtt.properties import Properties
from queue_manager.address import VHOST_SEPARATOR
from queue_manager.errors import LimitReached, QueueManagerError


class Admitted(Protocol):
    """The front-end of the client, in the virtual host that it knocked at."""

    client: MqttClient
    outbound: Outbound

    def move(self, shared: Shared) -> None:
        """Move the client into another virtual host."""

    def let_in(self, link: SessionLink | None, events: list[Any]) -> None:
        """Let the client in; `events` are what it said meanwhile."""


class Admission:
    """Finds out who a client is, and lets it in or not: CONNECT, AUTH, DISCONNECT and the end.

    `link` is the way to its session, if that outlives the connection; attached once the client is in.
    """

    __slots__ = ("_authentication", "_frontend", "_shared", "_will", "link")

    def __init__(self, frontend: Admitted, shared: Shared) -> None:
        """`shared` is of the virtual host that the client knocks at."""
        self._frontend = frontend
        self._shared = shared
        self._authentication: Authentication | None = None
        self._will: Will | None = None
        self.link: SessionLink | None = None

    def on_connect(self, event: ConnectReceived) -> None:
        """Take the client's CONNECT."""
        packet = event.packet
        client = self._frontend.client
        connects = self._shared.connects
        if connects is not None and not connects.take(1, client.clock.monotonic()):
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
        client = self._frontend.client
        log_in(client.hub, client.transport, shown, partial(self._found, packet))

    def _user_of(self, username: str) -> str:
        """Return the user of a CONNECT, whose name may lead into another virtual host."""
        shared, user = self._shared.user_of(username)
        if shared is not self._shared:
            self._shared = shared
            self._frontend.move(shared)
        return user

    def _authenticate(self, packet: Connect, method: str) -> None:
        client = self._frontend.client
        found = partial(self._found, packet)
        self._authentication = Authentication(client, found)
        if not self._authentication.begin(method, packet.properties.authentication_data or b""):
            reason = f"no authentication method {method!r}"
            client.refuse(packet.client_id, c.BAD_AUTHENTICATION_METHOD, reason)

    def on_auth(self, event: AuthReceived) -> None:
        """Go on with enhanced authentication."""
        if self._authentication is not None:
            self._authentication.on_auth(event)

    def _found(self, packet: Connect, found: Found, last_words: bytes | None = None) -> None:
        """Take the result of the login; `last_words` are those of enhanced authentication."""
        client = self._frontend.client
        if client.connection.closed:  # the client did not wait
            return
        if isinstance(found, LoginRefused):
            client.refuse(packet.client_id, _code_of(found), found.reason, told=found.told)
            return
        if VHOST_SEPARATOR in packet.client_id:  # it would name a session of another virtual host
            reason = "a client identifier has no U+001D in it"
            client.refuse(packet.client_id, c.CLIENT_IDENTIFIER_NOT_VALID, reason)
            return
        assigned_id = "" if packet.client_id else f"auto-{secrets.token_urlsafe(12)}"
        client_id = packet.client_id or assigned_id
        try:
            client.hub.check_there()
            client.hub.banning.check_connect(client.vhost, client_id)
            identity = found.enter(client.vhost, client_id)
            if packet.will is not None:
                publish.check_publish(identity, packet.will.topic)
        except Banned as refused:
            client.refuse(packet.client_id, c.BANNED, refused.reason, told=refused.told)
            return
        except (NotPermitted, VhostNotFound, VhostRefused) as refused:
            client.refuse(packet.client_id, c.NOT_AUTHORIZED, refused.reason)
            return
        other = self._shared.clients.find(client_id)
        if other is not None and other.identity.user != identity.user:
            client.refuse(packet.client_id, c.NOT_AUTHORIZED, "another user's client has this identifier")
            return
        try:
            client.identify(identity, client_id, is_assigned=bool(assigned_id))
        except LimitReached as refused:
            client.refuse(packet.client_id, c.QUOTA_EXCEEDED, refused.reason)
            return
        if packet.will is None or self._take_will(packet.will):
            properties = Properties(
                assigned_client_identifier=assigned_id or None, authentication_data=last_words
            )
            self._open_session(packet, properties)

    def _open_session(self, packet: Connect, properties: Properties) -> None:
        """Find or begin the session of a client that may come in; `properties` are for CONNACK."""
        client = self._frontend.client
        outbound = self._frontend.outbound
        connection = client.connection
        self._shared.clients.enter(client)
        try:
            opened = self._shared.sessions.open(client, outbound, packet)
        except QueueManagerError as error:
            self._will = None
            client.refuse(packet.client_id, connect_code(error), error.reason)
            return
        if connection.protocol_version == c.MQTT_5:
            properties = properties.copy(session_expiry_interval_s=opened.expiry_s)
            outbound.limit(connection.client_receive_maximum, connection.client_topic_alias_maximum)
        self.link = opened.link
        if opened.is_present:
            self._shared.wills.session_resumed(client.client_id)
        else:
            self._shared.wills.session_ended(client.client_id)
        if opened.waits:
            client.when_durable(self._let_in, opened, properties)
        else:
            self._let_in(opened, properties)

    def _let_in(self, opened: Opened, properties: Properties) -> None:
        """Answer the CONNECT, and go on with its session."""
        client = self._frontend.client
        if client.connection.closed:
            return
        link = opened.link
        client.announce()
        if link is None:
            self._frontend.let_in(None, client.connection.accept(False, properties))
            return
        received = InboundQos2()
        received.take(link.session.received.packet_ids())
        events = client.connection.accept(opened.is_present, properties, received)
        self._shared.wills.connected(client.client_id, self._will, client.identity, link.session)
        self._frontend.let_in(link, events)

    def _take_will(self, asked: packets.Will) -> bool:
        """Keep the will, or refuse the client for it; whether it may come in."""
        client = self._frontend.client
        will = Will.asked(asked, client.connection.protocol_version)
        refusal = publish.refusal_of_will(will.run)
        if refusal is not None:
            client.refuse(client.client_id, refusal[0], f"will: {refusal[1]}")
            return False
        self._will = will
        return True

    def on_disconnect(self, event: DisconnectReceived) -> None:
        """Take the client's goodbye."""
        self._frontend.client.end_reason = "disconnected"
        if event.reason_code != c.DISCONNECT_WITH_WILL:
            self._will = None
        expiry_s = event.properties.session_expiry_interval_s
        if expiry_s is not None and self.link is not None:
            self._shared.sessions.change_expiry(self.link.session, expiry_s)

    def leave(self) -> None:
        """Leave: close the client's session, or have it wait for the client, and publish the will."""
        shared = self._shared
        client = self._frontend.client
        self._authentication = None
        shared.clients.leave(client)
        client.leave()
        link = self.link
        session = None
        if link is not None:
            session = link.session
            shared.sessions.close(link)
        self._frontend.outbound.give_back()
        will = self._will
        self._will = None
        if will is not None or session is not None:
            shared.wills.leave(client.client_id, will, client.identity, session)


def _code_of(refused: LoginRefused) -> int:
    """Return the reason code of a CONNACK."""
    if isinstance(refused, Banned):
        return c.BANNED
    return c.BAD_USER_NAME_OR_PASSWORD if refused.told == LoginRefused.TOLD else c.NOT_AUTHORIZED
