"""What clients of other protocols publish to plain topics."""

from __future__ import annotations

from broker.access.users import itself
from broker.hub import Hub
from broker.mqtt.publishing import PlainTarget
from broker.mqtt.pubsub import PubSub
from broker.mqtt.will import WillPublisher
from broker.properties.templates import as_mqtt
from protocols.errors import ProtocolError
from protocols.mqtt.events import PublishRun, PublishShape
from protocols.mqtt.topics import validate_topic_name
from storage.envelope import EnvelopeTemplate


class ForeignPublishes:
    """As `broker.topics.Listeners`, for the subscribers of MQTT."""

    __slots__ = ("_publisher", "_pubsub")

    def __init__(self, hub: Hub, pubsub: PubSub) -> None:
        self._pubsub = pubsub
        self._publisher = WillPublisher(hub, pubsub, itself().enter("*"))

    def listener(self, topic: str, template: EnvelopeTemplate) -> Subscribers | None:
        """See `Listeners.listener`."""
        try:
            validate_topic_name(topic)
        except ProtocolError:
            return None
        if topic.startswith("$"):
            return None
        first_byte = 0x30 | template.persistent << 1
        shape = PublishShape(first_byte, topic, topic.encode(), as_mqtt(template))
        return Subscribers(self._publisher, self._pubsub, shape)


class Subscribers:
    """As `broker.topics.Listener`. Persistent messages are of QoS 1."""

    __slots__ = ("_publisher", "_pubsub", "_shape", "_target")

    def __init__(self, publisher: WillPublisher, pubsub: PubSub, shape: PublishShape) -> None:
        self._publisher = publisher
        self._pubsub = pubsub
        self._shape = shape
        self._target = PlainTarget(shape, None)

    def hear(self, bodies: list[bytes]) -> bool:
        """See `Listener.hear`."""
        if not self._pubsub.route(self._shape.topic):
            return False
        self._target.publish(self._publisher, PublishRun(self._shape, len(bodies), [], bodies, b"", 0, 0, 0))
        return True
