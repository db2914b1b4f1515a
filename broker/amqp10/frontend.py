"""One AMQP 1.0 connection: authentication, virtual host, sessions."""

from __future__ import annotations

import platform
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
from broker.amqp.connection.shared import Shared
from broker.amqp10.connection.amqp10_client import NODE, Amqp10Client
from broker.amqp10.session_frontend import SessionFrontend
from broker.clients.entrance import Found, log_in
from broker.connections.connection_views import Description
from broker.connections.registry import Goodbye
from broker.network.frontend_base import Frontend
from broker.network.transport import Transport
from broker.version import PRODUCT, RABBITMQ_VERSION, VERSION
from broker.vhosts.hub import Hub
from broker.vhosts.vhost import VhostNotFound
from protocols.amqp10 import constants as c
from protocols.amqp10 import events as ev
from protocols.amqp10.connection import Amqp10Connection
from protocols.amqp10.handshake import ANONYMOUS, EXTERNAL, PLAIN
from protocols.amqp10.types import Symbol
from queue_manager.address import DEFAULT_VHOST
from queue_manager.errors import LimitReached
from queue_manager.quota_accounts import CHANNELS

_log: Final = structlog.get_logger("sluicemq.amqp")

HEADERS: Final = (c.SASL_HEADER, c.AMQP_HEADER, c.TLS_HEADER)
"""The protocol headers that clients of this version begin with."""

_CAPABILITIES: Final = ("ANONYMOUS-RELAY", "DELAYED_DELIVERY", "LINK_PAIR_V1_0", "SHARED-SUBS")
_PROPERTIES: Final[dict[Symbol, str]] = {
    Symbol(name): text
    for name, text in {
        "node": NODE,
        "cluster_name": NODE,
        "copyright": "Copyright (c) the SluiceMQ authors",
        "information": "Licensed under the Apache License 2.0",
        "platform": f"Python {platform.python_version()}",
        # clients of RabbitMQ talk to nothing else, and ask the version what there is
        "product": "RabbitMQ",
        "version": RABBITMQ_VERSION,
        "broker": f"{PRODUCT} {VERSION}",
    }.items()
}
_VHOST_PREFIX: Final = "vhost:"
_GOODBYES: Final = {
    Goodbye.DISMISSED: c.CONNECTION_FORCED,
    Goodbye.SHUTTING_DOWN: c.CONNECTION_FORCED,
    Goodbye.STORE_FAILED: c.INTERNAL_ERROR,
    Goodbye.TOO_SLOW: c.RESOURCE_LIMIT_EXCEEDED,
    Goodbye.NOT_PERMITTED: c.UNAUTHORIZED_ACCESS,
    Goodbye.INTERNAL_ERROR: c.INTERNAL_ERROR,
}


class Amqp10Frontends:
    """Makes the front-ends of a broker's AMQP 1.0 clients."""

    def __init__(self, hub: Hub, shared: Shared) -> None:
        """`shared` is what all clients of AMQP share."""
        self._hub = hub
        self._shared = shared

    def accept(self, transport: Transport) -> Amqp10Frontend:
        """Accept a client that connected."""
        return Amqp10Frontend(self._hub, transport, self._shared)


class Amqp10Frontend(Frontend):
    """Answers an AMQP 1.0 client."""

    connection: Amqp10Connection
    sends_heartbeats = True

    def __init__(self, hub: Hub, transport: Transport, shared: Shared) -> None:
        external = (EXTERNAL,) if transport.certificate_names else ()
        anonymous = (ANONYMOUS,) if hub.settings.access.anonymous != "never" else ()
        connection = Amqp10Connection(
            NODE,
            (*external, PLAIN, *anonymous),
            hub.clock.monotonic(),
            offered_capabilities=_CAPABILITIES,
            properties=_PROPERTIES,
            requires_sasl=not anonymous,
        )
        super().__init__(connection)
        self.client = Amqp10Client(hub, transport, connection)
        self._sessions: dict[int, SessionFrontend] = {}
        self._shared = shared
        self._is_end_logged = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.AuthRequested: self._on_auth,
            ev.OpenRequested: self._on_open,
            ev.SessionBegun: self._on_begun,
            ev.SessionEnded: self._on_ended,
            ev.ConnectionLost: self._on_lost,
        }

    def handle(self, events: list[Any]) -> None:
        for event in events:
            handler = self._handlers.get(type(event))
            if handler is not None:
                handler(event)
                continue
            link = getattr(event, "link", None)
            session = self._sessions.get(event.channel if link is None else link.channel)
            if session is not None:
                session.handle(event)

    def published_count(self, events: list[Any]) -> int:
        return sum(len(event.payloads) for event in events if isinstance(event, ev.TransferRun))

    def pause(self) -> None:
        for session in self._sessions.values():
            session.set_paused(True)

    def resume(self) -> None:
        transport = self.client.transport
        for session in self._sessions.values():
            session.set_paused(transport.paused)

    def held_back(self, reason: str) -> None:
        """See `Frontend.held_back`: links get no credit."""

    def let_on(self) -> None:
        """See `Frontend.let_on`: links get credit again."""
        for session in self._sessions.values():
            session.let_on()

    def gone(self) -> None:
        self._close_sessions(is_lost=True)
        self.client.leave()
        core = self.client.hub.client
        core.queues.forget_caller(self.client.caller)

    def dissolve(self) -> None:
        self._handlers.clear()

    def describe(self) -> Description:
        client = self.client
        return Description(
            protocol="AMQP 1.0",
            user=client.login.user if hasattr(client, "login") else "",
            vhost=client.vhost if hasattr(client, "identity") else "",
            client_id=client.container_id,
            client=client.client_properties,
            channels=tuple([session.describe() for session in self._sessions.values()]),
        )

    def say_goodbye(self, why: Goodbye, reason: str) -> None:
        end = self._fail if reason else self._end
        end(_GOODBYES[why], reason or why.value)

    def _fail(self, condition: str, text: str) -> None:
        """Close the connection with a condition; one log line says who and why."""
        _log.warning(
            "amqp.connection_error", peer=self.client.transport.peer, condition=condition, reason=text
        )
        self._end(condition, text)

    def _end(self, condition: str, text: str) -> None:
        self._is_end_logged = True
        self.connection.fail(condition, text)
        self._close_sessions()
        self.client.transport.want_flush()

    def _close_sessions(self, *, is_lost: bool = False) -> None:
        """Give nothing any more to a client that was told that the connection ends, or is gone."""
        sessions, self._sessions = self._sessions, {}
        self.client.transport.share.give(CHANNELS, len(sessions))
        for session in sessions.values():
            session.close(is_lost=is_lost)

    # events

    def _on_auth(self, event: ev.AuthRequested) -> None:
        client = self.client
        shown: Credentials
        if event.mechanism == EXTERNAL:
            shown = Certificate(client.transport.certificate_names, is_claim=True)
        elif event.mechanism == PLAIN:
            shown = Password(event.username, event.password.encode("utf-8", "surrogateescape"))
        else:
            shown = Anonymous()
        log_in(client.hub, client.transport, shown, partial(self._found, event))

    def _found(self, event: ev.AuthRequested, found: Found) -> None:
        """Take the result of the login."""
        if self.connection.closing:  # the client did not wait
            return
        if isinstance(found, LoginRefused):
            self._is_end_logged = True
            peer = self.client.transport.peer
            _log.warning("amqp.login_refused", peer=peer, user=event.username, reason=found.reason)
            self.connection.refuse_auth(found.told)
            self.client.transport.want_flush()
            return
        self.client.login = found
        self.handle(self.connection.accept_auth())

    def _on_open(self, event: ev.OpenRequested) -> None:
        opened = event.open
        hostname = opened.hostname or ""
        vhost = hostname[len(_VHOST_PREFIX) :] if hostname.startswith(_VHOST_PREFIX) else DEFAULT_VHOST
        self.client.introduce(opened.container_id, opened.properties)
        try:
            self.client.check_banned(self.client.container_id)
            self.client.enter(vhost)
        except VhostNotFound as refused:
            self._fail(c.NOT_FOUND, refused.reason)
        except LimitReached as refused:
            self._fail(c.RESOURCE_LIMIT_EXCEEDED, refused.reason)
        except (LoginRefused, VhostRefused) as refused:
            self._fail(c.UNAUTHORIZED_ACCESS, refused.reason)
        else:
            self.handle(self.connection.accept_open())

    def _on_begun(self, event: ev.SessionBegun) -> None:
        try:
            self.client.transport.share.take(CHANNELS)
        except LimitReached as reached:
            self._fail(c.RESOURCE_LIMIT_EXCEEDED, reached.reason)
            return
        self._sessions[event.channel] = SessionFrontend(self.client, event.channel, self._shared)

    def _on_ended(self, event: ev.SessionEnded) -> None:
        session = self._sessions.pop(event.channel, None)
        if session is not None:
            self.client.transport.share.give(CHANNELS)
            session.close()

    def _on_lost(self, event: ev.ConnectionLost) -> None:
        if event.condition and not event.by_peer and not self._is_end_logged:
            peer = self.client.transport.peer
            _log.warning("amqp.connection_closed", peer=peer, condition=event.condition, reason=event.reason)
        self._close_sessions(is_lost=not event.by_peer or self.connection.closed)
        self.client.transport.end()  # the client may take its time to close the transport
