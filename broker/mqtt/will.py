"""The will of a client (section 3.1.2.5): published when its connection ends without a clean DISCONNECT, or
a while later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from broker.access.login import Identity
from broker.hub import Hub
from broker.mqtt import publishing
from broker.mqtt.pubsub import PubSub
from protocols.mqtt import constants as c
from protocols.mqtt import packets
from protocols.mqtt.events import PublishRun, PublishShape
from protocols.mqtt.properties import encode_properties

_log: Final = structlog.get_logger("sluicemq.mqtt")


class Will:
    """A message to be published later: `delay_s` after the end of the connection, or at the end of the
    session if that is earlier (section 3.1.3.2.2).
    """

    __slots__ = ("_run", "delay_s")

    def __init__(self, will: packets.Will, version: int) -> None:
        properties = b""
        if version == c.MQTT_5:
            kept = will.properties.copy()
            kept.will_delay_interval_s = None
            properties = encode_properties(kept, c.PUBLISH)
        self.delay_s = will.properties.will_delay_interval_s or 0
        first_byte = 0x30 | will.qos << 1 | will.retain
        is_text = will.properties.payload_format_indicator == 1
        shape = PublishShape(first_byte, will.topic, will.topic.encode(), properties, is_text=is_text)
        self._run = PublishRun(shape, 1, [], [will.payload], b"", 0, 0, 0)

    def publish(self, hub: Hub, pubsub: PubSub, identity: Identity) -> None:
        """Publish it, to subscribers or a queue, as far as the client is permitted to."""
        target = publishing.target_of(self._run.shape, identity)
        target.publish(WillPublisher(hub, pubsub, identity), self._run)

    def refusal(self) -> tuple[int, str] | None:
        """Reason code and reason if a client may not have this will."""
        return publishing.refusal_of_will(self._run)


class Wills:
    """The wills of clients whose connection has ended and whose session goes on, by client identifier."""

    __slots__ = ("_hub", "_pubsub", "_waiting")

    def __init__(self, hub: Hub, pubsub: PubSub) -> None:
        self._hub = hub
        self._pubsub = pubsub
        self._waiting: dict[str, tuple[asyncio.TimerHandle, Callable[[], None]]] = {}

    def leave(self, client_id: str, will: Will, identity: Identity, session_s: int) -> None:
        """A connection ended; publish its will when it is due. The session lasts `session_s` longer."""
        publish = partial(will.publish, self._hub, self._pubsub, identity)
        delay_s = min(will.delay_s, session_s)
        if not delay_s:
            publish()
            return
        timer = self._hub.loop.call_later(delay_s, self.session_ended, client_id)
        self._waiting[client_id] = timer, publish

    def session_resumed(self, client_id: str) -> None:
        """The client is back in time: its will is not published [MQTT-3.1.3-9]."""
        waiting = self._waiting.pop(client_id, None)
        if waiting is not None:
            waiting[0].cancel()

    def session_ended(self, client_id: str) -> None:
        """The session is over, or the delay: the will is due."""
        waiting = self._waiting.pop(client_id, None)
        if waiting is not None:
            timer, publish = waiting
            timer.cancel()
            publish()
            self._hub.settle_turn()


class WillPublisher:
    """A `broker.mqtt.publisher.Publisher` that is not there any more: only the log is told of refusals."""

    __slots__ = ("hub", "identity", "pubsub")

    client = None
    subscriber = None
    session = None
    protocol_version = 0
    durable_answers = ()

    def __init__(self, hub: Hub, pubsub: PubSub, identity: Identity) -> None:
        self.hub = hub
        self.identity = identity
        self.pubsub = pubsub

    def accept(self, packet_ids: list[int], qos: int, note: str = "") -> None:
        """See `Publisher`."""

    def accept_unmatched(self, packet_ids: list[int], qos: int) -> None:
        """See `Publisher`."""

    def accept_stored(self, run: PublishRun, note: str = "") -> None:
        """See `Publisher`."""

    def note_unretained(self, topic: str, reason: str) -> None:
        """See `Publisher`."""
        _log.warning("mqtt.retain_refused", topic=topic, reason=reason)

    def refuse(self, run: PublishRun, reason_code: int, reason: str) -> None:
        """See `Publisher`."""
        _log.warning("mqtt.will_refused", topic=run.shape.topic, reason=reason)

    def deny(self, packet_ids: list[int], qos: int, reason_code: int, reason: str) -> None:
        """See `Publisher`."""

    def refuse_when_durable(self, run: PublishRun, reason_code: int, reason: str) -> None:
        """See `Publisher`."""
        self.refuse(run, reason_code, reason)
