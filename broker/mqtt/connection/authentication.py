"""Enhanced authentication (MQTT 5, section 4.12): a client proves its password by AUTH packets (SCRAM)."""

from __future__ import annotations

from collections.abc import Callable

from broker.access.credentials import LoginRefused
from broker.access.login import Login
from broker.access.scram import METHOD, ScramExchange
from broker.mqtt.connection.mqtt_client import MqttClient
from protocols.mqtt import constants as c
from protocols.mqtt.events import AuthReceived

Found = Callable[[Login | LoginRefused, bytes | None], None]
"""Called with who that is, or why nobody comes in so, and the last words to the client."""


class Authentication:
    """The exchange of one client and access control so far."""

    __slots__ = ("_access", "_client", "_exchange", "_found", "_is_again", "_is_proving")

    def __init__(self, client: MqttClient, found: Found) -> None:
        self._client = client
        self._access = client.hub.access
        self._found = found
        self._exchange: ScramExchange | None = None
        self._is_again = False
        self._is_proving = False

    def begin(self, method: str, data: bytes) -> bool:
        """Begin with the method that the client names in its CONNECT; returns whether there is such a
        method.
        """
        self._exchange = self._access.begin_scram() if method == METHOD else None
        if self._exchange is None:
            return False
        self._step(self._exchange, data)
        return True

    def on_auth(self, event: AuthReceived) -> None:
        """Go on, or begin anew, as the client asks (section 4.12.1)."""
        if self._is_proving:
            self._client.disconnect(c.PROTOCOL_ERROR, "AUTH before the last one was answered")
            return
        if event.reason_code == c.REAUTHENTICATE:
            self._is_again = True
            self._exchange = self._access.begin_scram()  # by the method of the CONNECT
        if self._exchange is not None:
            self._step(self._exchange, event.data)

    def _step(self, exchange: ScramExchange, data: bytes) -> None:
        client = self._client
        if exchange.is_challenged:
            self._exchange = None
            self._is_proving = True
            client.hub.spawn(self._prove(exchange, data))
            return
        try:
            challenge = exchange.step(data)
        except LoginRefused as refused:
            self._exchange = None
            self._end(refused, None)
            return
        client.connection.send_auth(c.CONTINUE_AUTHENTICATION, challenge)
        client.transport.want_flush()

    async def _prove(self, exchange: ScramExchange, proof: bytes) -> None:
        client = self._client
        found: Login | LoginRefused
        data: bytes | None = None
        try:
            found, data = await self._access.finish_scram(exchange, proof, client.transport.came_from)
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
