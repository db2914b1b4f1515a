"""Enhanced authentication (MQTT 5, section 4.12): a client and a method of access control talk by AUTH."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from broker.access.credentials import LoginRefused, Peer
from broker.access.login import Login
from broker.mqtt.connection.mqtt_client import MqttClient
from protocols.mqtt import constants as c
from protocols.mqtt.events import AuthReceived


@dataclass(frozen=True, slots=True)
class Challenge:
    """The client has to answer this."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Proven:
    """The client is who it says; `data` are the last words to it."""

    login: Login
    data: bytes | None = None


Proving = Coroutine[Any, Any, Proven]
"""What is still to be looked at; raises LoginRefused."""


class Exchange(Protocol):
    """One run of a method."""

    def step(self, data: bytes, /) -> Challenge | Proving:
        """Take what the client said, the first time b"" if nothing; raises LoginRefused."""


class Methods(Protocol):
    """The methods that clients may authenticate by."""

    def begin(self, method: str, peer: Peer, /) -> Exchange | None:
        """A run of the method; None: there is no such method."""


Found = Callable[[Login | LoginRefused, bytes | None], None]
"""Called with who that is, or why nobody comes in so, and the last words to the client."""


class Authentication:
    """What one client and its method have said so far."""

    __slots__ = ("_client", "_exchange", "_found", "_is_again", "_is_proving", "_methods")

    def __init__(self, client: MqttClient, methods: Methods, found: Found) -> None:
        self._client = client
        self._methods = methods
        self._found = found
        self._exchange: Exchange | None = None
        self._is_again = False
        self._is_proving = False

    def begin(self, method: str, data: bytes) -> bool:
        """The client named a method in its CONNECT; whether there is such a method."""
        self._exchange = self._methods.begin(method, self._client.transport.came_from)
        if self._exchange is None:
            return False
        self._step(self._exchange, data)
        return True

    def on_auth(self, event: AuthReceived) -> None:
        """The client goes on, or begins anew (section 4.12.1)."""
        client = self._client
        if self._is_proving:
            client.disconnect(c.PROTOCOL_ERROR, "AUTH before the last one was answered")
            return
        if event.reason_code == c.REAUTHENTICATE:
            self._is_again = True
            method = client.connection.authentication.method or ""
            self._exchange = self._methods.begin(method, client.transport.came_from)
        if self._exchange is not None:
            self._step(self._exchange, event.data)

    def _step(self, exchange: Exchange, data: bytes) -> None:
        client = self._client
        try:
            said = exchange.step(data)
        except LoginRefused as refused:
            self._exchange = None
            self._end(refused, None)
            return
        if isinstance(said, Challenge):
            client.connection.send_auth(c.CONTINUE_AUTHENTICATION, said.data)
            client.transport.want_flush()
        else:
            self._exchange = None
            self._is_proving = True
            client.hub.spawn(self._prove(said))

    async def _prove(self, proving: Proving) -> None:
        client = self._client
        found: Login | LoginRefused
        data: bytes | None = None
        try:
            proven = await proving
            found, data = proven.login, proven.data
        except LoginRefused as refused:
            found = refused
        self._is_proving = False
        client.transport.guard(self._end, found, data)
        client.transport.want_flush()
        client.hub.settle_turn()

    def _end(self, found: Login | LoginRefused, data: bytes | None) -> None:
        client = self._client
        if client.connection.closed:
            return
        if not self._is_again:
            self._found(found, data)
        elif isinstance(found, LoginRefused):
            client.disconnect(c.NOT_AUTHORIZED, found.reason)
        elif found.user != client.identity.login.user:
            client.disconnect(c.NOT_AUTHORIZED, "a client stays the user that it connected as")
        elif client.identity.is_narrowed_by(found):
            client.disconnect(c.NOT_AUTHORIZED, "the new login allows less")
        else:
            client.connection.send_auth(c.SUCCESS, data)
