"""The will of a client (section 3.1.2.5): published when its connection ends without a clean DISCONNECT, or
a while later.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

import structlog

from broker.access.accounts_of_file import USERS_FILE
from broker.access.credentials import LoginRefused
from broker.access.login import Identity, Login
from broker.engine.session_traffic import CONNECTED, Session, WillValue
from broker.mqtt.publishing import publish
from broker.mqtt.settling.publish_answers import Publisher
from broker.mqtt.topology.pubsub import PubSub
from broker.vhosts.hub import Hub
from protocols.mqtt import constants as c
from protocols.mqtt import packets
from protocols.mqtt.events import PublishRun, PublishShape
from protocols.mqtt.properties import encode_properties

_log: Final = structlog.get_logger("sluicemq.mqtt")


class Will:
    """A message to be published later: `delay_s` after the end of the connection, or at the end of the
    session if that is earlier (section 3.1.3.2.2).
    """

    __slots__ = ("delay_s", "run")

    def __init__(self, shape: PublishShape, payload: bytes, delay_s: int) -> None:
        self.run = PublishRun(shape, 1, [], [payload])
        self.delay_s = delay_s

    @classmethod
    def asked(cls, will: packets.Will, version: int) -> Will:
        """Return the will that a CONNECT asks for."""
        properties = b""
        if version == c.MQTT_5:
            properties = encode_properties(will.properties.copy(will_delay_interval_s=None), c.PUBLISH)
        first_byte = 0x30 | will.qos << 1 | will.retain
        is_text = will.properties.payload_format_indicator == 1
        shape = PublishShape(first_byte, will.topic, properties, is_text=is_text)
        return cls(shape, will.payload, will.properties.will_delay_interval_s or 0)

    @classmethod
    def kept(cls, value: WillValue) -> Will:
        """Return a stored will, which was looked at when it was asked for."""
        shape = PublishShape(value.first_byte, value.topic, value.properties)
        return cls(shape, value.payload, value.delay_s)

    def stored(self, client_id: str, login: Login, due_at_ms: int) -> WillValue:
        """Return the will as it is stored for a session."""
        shape = self.run.shape
        payload = self.run.payloads[0]
        return WillValue(
            due_at_ms,
            self.delay_s,
            shape.first_byte,
            client_id,
            login.user,
            shape.topic,
            shape.properties,
            payload,
            USERS_FILE if login.is_borrowed else login.source,
        )

    def publish(self, hub: Hub, pubsub: PubSub, identity: Identity, session: Session | None) -> None:
        """Publish it, to subscribers or a queue, as far as the client is permitted to; `session` is the
        client's, if it outlives the connection.
        """
        target = publish.target_of(self.run.shape, identity)
        target.publish(Publisher(hub, pubsub, identity, session), self.run)


class _Waiting(NamedTuple):
    """A will that is due later; `session`: the number of the one that it is stored for, 0 if it is not."""

    timer: asyncio.TimerHandle
    will: Will
    identity: Identity
    session: int


class Wills:
    """The wills of clients whose connection has ended and whose session goes on, by client identifier.

    Those of sessions that outlive their connection are stored while they wait, and from the CONNECT on: a
    broker that stops, or crashes, publishes them when it is there again.
    """

    __slots__ = ("_hub", "_kept", "_pubsub", "_sessions", "_waiting")

    def __init__(self, hub: Hub, pubsub: PubSub) -> None:
        self._hub = hub
        self._pubsub = pubsub
        self._sessions = hub.client.sessions
        self._kept = self._sessions.wills
        self._waiting: dict[str, _Waiting] = {}
        now_ms = hub.clock.now_ms()
        for number, value in self._kept.all.items():
            self._resume(number, value, now_ms)

    def _resume(self, number: int, value: WillValue, now_ms: int) -> None:
        """Have a will published that an earlier start of the broker left behind."""
        due_at_ms = value.due_at_ms
        if due_at_ms == CONNECTED:  # until the broker stopped
            session = self._sessions.find(value.client_id)
            session_s = 0 if session is None or session.number != number else session.expiry_s
            due_at_ms = now_ms + min(value.delay_s, session_s) * 1000
        login = self._hub.access.earlier(value.user, value.source)
        identity = Identity(login, self._hub.vhost.name, value.client_id)
        delay_s = max(0, due_at_ms - now_ms) / 1000
        self._wait(value.client_id, Will.kept(value), identity, number, delay_s)

    def connected(self, client_id: str, will: Will | None, identity: Identity, session: Session) -> None:
        """Note that a client with a session that outlives its connection is in."""
        if will is not None and will.delay_s:
            self._kept.keep(session.number, will.stored(client_id, identity.login, CONNECTED))
        else:
            self._kept.let_go(session.number)

    def leave(self, client_id: str, will: Will | None, identity: Identity, session: Session | None) -> None:
        """Publish the will of a connection that ended, if it has one, when it is due."""
        number = 0 if session is None else session.number
        if not self._hub.is_there:  # whom would it be published to?
            self._kept.let_go(number)
            return
        delay_s = 0
        if will is not None and session is not None and not session.is_over:
            delay_s = min(will.delay_s, session.expiry_s)
        if will is not None and delay_s:
            due_at_ms = self._hub.clock.now_ms() + delay_s * 1000
            self._kept.keep(number, will.stored(client_id, identity.login, due_at_ms))
            self._wait(client_id, will, identity, number, delay_s)
            return
        if will is not None:
            will.publish(self._hub, self._pubsub, identity, session)
        self._kept.let_go(number)

    def _wait(self, client_id: str, will: Will, identity: Identity, session: int, delay_s: float) -> None:
        timer = self._hub.loop.call_later(delay_s, self.session_ended, client_id)
        self._waiting[client_id] = _Waiting(timer, will, identity, session)

    def session_resumed(self, client_id: str) -> None:
        """Drop the will: the client is back in time [MQTT-3.1.3-9]."""
        waiting = self._waiting.pop(client_id, None)
        if waiting is not None:
            waiting.timer.cancel()
            self._kept.let_go(waiting.session)

    def forget(self) -> None:
        """Forget all of these, unpublished: the virtual host is deleted."""
        for waiting in self._waiting.values():
            waiting.timer.cancel()
            self._kept.let_go(waiting.session)
        self._waiting.clear()

    def session_ended(self, client_id: str) -> None:
        """Publish the will: the session is over, or the delay."""
        waiting = self._waiting.pop(client_id, None)
        if waiting is not None:
            waiting.timer.cancel()
            self._publish(waiting)
            self._kept.let_go(waiting.session)
            self._hub.settle_turn()

    def _publish(self, waiting: _Waiting) -> None:
        """Publish what is due, by what the client's user may do by now."""
        before = waiting.identity
        try:
            login = self._hub.access.current(before.login)
        except LoginRefused as error:
            self._hub.counters.refuse_publishes(1)
            _log.warning(
                "mqtt.will_refused", topic=waiting.will.run.shape.topic, user=before.user, reason=error.reason
            )
            return
        identity = Identity(login, before.vhost, before.client_id)
        session = self._sessions.find(before.client_id)
        waiting.will.publish(self._hub, self._pubsub, identity, session)
