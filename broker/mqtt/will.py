"""The will of a client (section 3.1.2.5): published when its connection ends without a clean DISCONNECT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.mqtt import publishing
from protocols.mqtt import constants as c
from protocols.mqtt import packets
from protocols.mqtt.events import PublishRun, PublishShape
from protocols.mqtt.properties import encode_properties

if TYPE_CHECKING:
    from broker.hub import Hub


class Will:
    """A message to be published later.

    Its delay interval does not hold it back: a session ends with its connection here, and then a will is due
    at once (section 3.1.3.2.2).
    """

    __slots__ = ("_run", "_version")

    def __init__(self, will: packets.Will, version: int) -> None:
        properties = b""
        if version == c.MQTT_5:
            kept = will.properties.copy()
            kept.will_delay_interval_s = None
            properties = encode_properties(kept, c.PUBLISH)
        first_byte = 0x30 | will.qos << 1 | will.retain
        shape = PublishShape(first_byte, will.topic, will.topic.encode(), properties)
        ids = [1] if will.qos else []
        self._run = PublishRun(shape, 1, ids, [will.payload], b"", 0, 0, 0)
        self._version = version

    def publish(self, hub: Hub) -> None:
        """Publish it, to subscribers or a queue."""
        publishing.resolve(self._run.shape).publish(hub, None, 0, self._run)
