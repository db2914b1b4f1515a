"""One AMQP connection: authentication, virtual host, channels."""

from __future__ import annotations

import platform
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from broker.access.accounts_of_file import GUEST, USERS_FILE
from broker.access.credentials import Certificate, Credentials, LoginRefused, Password, VhostRefused
from broker.amqp.connection.amqp_client import AmqpClient
from broker.amqp.connection.shared import Shared
from broker.amqp.open_channels import OpenChannels
from broker.clients.entrance import Found, log_in
from broker.connections.connection_views import Description
from broker.connections.registry import Goodbye
from broker.network.frontend_base import Frontend
from broker.network.transport import Transport
from broker.version import PRODUCT, VERSION
from broker.vhosts.hub import Hub
from broker.vhosts.vhost import VhostNotFound
from config import limits
from protocols.amqp091 import constants as c
from protocols.amqp091 import events as ev
from protocols.amqp091.connection import AmqpConnection
from protocols.amqp091.handshake import EXTERNAL
from queue_manager.errors import LimitReached

_log: Final = structlog.get_logger("sluicemq.amqp")

SERVER_PROPERTIES: Final[dict[str, Any]] = {
    "capabilities": c.CAPABILITIES,
    "cluster_name": f"sluicemq@{socket.gethostname()}",
    "copyright": "Copyright (c) the SluiceMQ authors",
    "information": "Licensed under the Apache License 2.0",
    "platform": f"Python {platform.python_version()}",
    "product": PRODUCT,
    "version": VERSION,
}

_GOODBYES: Final = {
    Goodbye.DISMISSED: c.CONNECTION_FORCED,
    Goodbye.SHUTTING_DOWN: c.CONNECTION_FORCED,
    Goodbye.STORE_FAILED: c.INTERNAL_ERROR,
    Goodbye.TOO_SLOW: c.RESOURCE_ERROR,
    Goodbye.NOT_PERMITTED: c.ACCESS_REFUSED,
    Goodbye.INTERNAL_ERROR: c.INTERNAL_ERROR,
}


class OtherVersions(NamedTuple):
    """The protocol headers that clients of other versions of AMQP begin with, and what makes the front-ends
    of these.
    """

    headers: tuple[bytes, ...]
    accept: Callable[[Transport], Frontend]


def _take_none(transport: Transport) -> Frontend:
    raise AssertionError("no header of another version is known")


NO_OTHER_VERSIONS: Final = OtherVersions((), _take_none)


class AmqpFrontends:
    """Makes the front-ends of a broker's AMQP clients, and holds what these share."""

    def __init__(
        self, hub: Hub, others: OtherVersions = NO_OTHER_VERSIONS, shared: Shared | None = None
    ) -> None:
        """`others` take the clients of their versions; `shared` is what those share with these."""
        self._hub = hub
        self._others = others
        self._shared = shared or Shared()

    def of_vhost(self, name: str) -> AmqpFrontends:
        """Return itself: clients say themselves which virtual host they enter."""
        return self

    def accept(self, transport: Transport) -> AmqpFrontend:
        """Accept a client that connected."""
        return AmqpFrontend(self._hub, transport, self._shared, self._others)


class AmqpFrontend(Frontend):
    """Answers an AMQP client."""

    connection: AmqpConnection
    sends_heartbeats = True

    def __init__(self, hub: Hub, transport: Transport, shared: Shared, others: OtherVersions) -> None:
        connection = AmqpConnection(
            limits.AMQP_FRAME_BYTES_MAX,
            limits.AMQP_CHANNELS_MAX,
            limits.AMQP_HEARTBEAT_S,
            SERVER_PROPERTIES | hub.server_properties,
            hub.clock.monotonic(),
            offers_external=bool(transport.certificate_names),
            other_headers=others.headers,
        )
        super().__init__(connection)
        self.client = AmqpClient(hub, transport, connection, shared)
        self.channels = OpenChannels(self.client, self._fail)
        self._others = others
        self._is_end_logged = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.OtherVersion: self._on_other_version,
            ev.AuthRequested: self._on_auth,
            ev.OpenRequested: self._on_open,
            ev.SecretChanged: self._on_secret,
            ev.ChannelOpened: self.channels.on_opened,
            ev.ChannelClosed: self.channels.on_closed,
            ev.ChannelFailed: self.channels.on_failed,
            ev.ConnectionLost: self._on_lost,
        }

    def handle(self, events: list[Any]) -> None:
        for event in events:
            handler = self._handlers.get(type(event))
            if handler is not None:
                handler(event)
                continue
            channel = self.channels.get(event.channel)
            if channel is not None:
                channel.handle(event)

    def published_count(self, events: list[Any]) -> int:
        runs = (ev.PublishRun, ev.VariedPublishRun)
        return sum(len(event.bodies) for event in events if isinstance(event, runs))

    def pause(self) -> None:
        self.channels.pause()

    def resume(self) -> None:
        self.channels.resume()

    def held_back(self, reason: str) -> None:
        """See `Frontend.held_back`: connection.blocked."""
        self.connection.block(reason)

    def let_on(self) -> None:
        """See `Frontend.let_on`: connection.unblocked."""
        self.connection.unblock()

    def gone(self) -> None:
        self.channels.close()
        self.channels.clear()
        self.client.leave()
        core = self.client.hub.client
        core.queues.forget_caller(self.client.caller)

    def dissolve(self) -> None:
        self._handlers.clear()

    def describe(self) -> Description:
        client = self.client
        return Description(
            protocol="AMQP 0-9-1",
            user=client.login.user if hasattr(client, "login") else "",
            vhost=client.vhost if hasattr(client, "identity") else "",
            client=client.client_properties,
            channels=self.channels.describe(),
        )

    def say_goodbye(self, why: Goodbye, reason: str) -> None:
        end = self._fail if reason else self._end
        end(_GOODBYES[why], reason or why.value)

    def _fail(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        """Close the connection with a reply code; one log line says who and why."""
        _log.warning("amqp.connection_error", peer=self.client.transport.peer, code=code, reason=text)
        self._end(code, text, class_id, method_id)

    def _end(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        self._is_end_logged = True
        self.connection.fail(code, text, class_id, method_id)
        self.channels.close()
        self.client.transport.want_flush()

    def _on_other_version(self, event: ev.OtherVersion) -> None:
        """Let who speaks the client's version of the protocol take over."""
        transport = self.client.transport
        transport.hand_over(self._others.accept(transport), event.data)

    def _on_auth(self, event: ev.AuthRequested) -> None:
        client = self.client
        shown: Credentials
        if event.mechanism == EXTERNAL:
            shown = Certificate(client.transport.certificate_names, is_claim=True)
        else:
            shown = Password(event.username, event.password.encode("utf-8", "surrogateescape"))
        log_in(client.hub, client.transport, shown, partial(self._found, event))

    def _found(self, event: ev.AuthRequested, found: Found) -> None:
        """Take the result of the login."""
        if self.connection.closing:  # the client did not wait
            return
        if isinstance(found, LoginRefused):
            self._is_end_logged = True
            peer = self.client.transport.peer
            _log.warning("amqp.login_refused", peer=peer, user=event.username, reason=found.reason)
            told = found.told
            if told == LoginRefused.TOLD:
                told = (
                    f"Login was refused using authentication mechanism {event.mechanism}."
                    " For details see the broker logfile."
                )
            self.connection.refuse_auth(told)
            self.client.transport.want_flush()
            return
        self.client.identify(found, event.client_properties)
        self.connection.accept_auth()

    def _on_secret(self, event: ev.SecretChanged) -> None:
        """Have the login last as long as the new secret says, such as a token's.

        That of a user with a password lasts anyhow: a new secret says nothing, as with RabbitMQ.
        """
        client = self.client
        if client.login.source in (USERS_FILE, GUEST):
            return
        shown = Password(client.login.user, event.secret)
        log_in(client.hub, client.transport, shown, self._renewed)

    def _renewed(self, found: Found) -> None:
        """Go on by the login of a new secret."""
        client = self.client
        if self.connection.closing:
            return
        if isinstance(found, LoginRefused) or found.user != client.login.user:
            reason = found.reason if isinstance(found, LoginRefused) else "it is another user's"
            _log.warning("amqp.secret_refused", peer=client.transport.peer, reason=reason)
            self._end(c.NOT_ALLOWED, "New secret was refused", c.CLASS_CONNECTION, 70)
        elif client.identity.is_narrowed_by(found):
            self._fail(c.NOT_ALLOWED, "New secret allows less", c.CLASS_CONNECTION, 70)

    def _on_open(self, event: ev.OpenRequested) -> None:
        try:
            self.client.enter(event.vhost)
        except (LoginRefused, VhostRefused, VhostNotFound, LimitReached) as refused:
            self._fail(c.NOT_ALLOWED, refused.reason, c.CLASS_CONNECTION, 40)
            return
        self.connection.accept_open()

    def _on_lost(self, event: ev.ConnectionLost) -> None:
        if event.code and not event.by_peer and not self._is_end_logged:
            peer = self.client.transport.peer
            _log.warning("amqp.connection_closed", peer=peer, code=event.code, reason=event.reason)
        self.channels.end()
        self.client.transport.end()  # the client may take its time to close the transport
