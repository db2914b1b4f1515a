"""The will of a client (section 3.1.2.5): published when its connection ends without a clean DISCONNECT."""

from __future__ import annotations

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
    """A message to be published later.

    Its delay interval does not hold it back: a session ends with its connection here, and then a will is due
    at once (section 3.1.3.2.2).
    """

    __slots__ = ("_run",)

    def __init__(self, will: packets.Will, version: int) -> None:
        properties = b""
        if version == c.MQTT_5:
            kept = will.properties.copy()
            kept.will_delay_interval_s = None
            properties = encode_properties(kept, c.PUBLISH)
        first_byte = 0x30 | will.qos << 1 | will.retain
        shape = PublishShape(first_byte, will.topic, will.topic.encode(), properties)
        self._run = PublishRun(shape, 1, [], [will.payload], b"", 0, 0, 0)

    def publish(self, hub: Hub, pubsub: PubSub, identity: Identity) -> None:
        """Publish it, to subscribers or a queue, as far as the client is permitted to."""
        target = publishing.target_of(self._run.shape, identity)
        target.publish(WillPublisher(hub, pubsub, identity), self._run)


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
