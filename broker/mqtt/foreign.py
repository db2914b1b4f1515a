"""What clients of other protocols publish to plain topics."""

from __future__ import annotations

from broker.access.users import itself
from broker.hub import Hub
from broker.mqtt.publishing import PlainTarget
from broker.mqtt.pubsub import PubSub
from broker.mqtt.will import WillPublisher
from broker.properties.templates import as_mqtt
from broker.topics import HEARD, NOBODY, STORED
from protocols.errors import ProtocolError
from protocols.mqtt.events import PublishRun, PublishShape
from protocols.mqtt.topics import validate_topic_name
from storage.envelope import EnvelopeTemplate


class ForeignPublishes:
    """As `broker.topics.Listeners`, for the subscribers of MQTT."""

    __slots__ = ("_publisher", "_pubsub")

    def __init__(self, hub: Hub, pubsub: PubSub) -> None:
        self._pubsub = pubsub
        self._publisher = ForeignPublisher(hub, pubsub)

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


class ForeignPublisher(WillPublisher):
    """Who publishes by another protocol; `has_stored` after what was kept for a session."""

    __slots__ = ("has_stored",)

    def __init__(self, hub: Hub, pubsub: PubSub) -> None:
        super().__init__(hub, pubsub, itself().enter("*"))
        self.has_stored = False

    def accept_stored(self, run: PublishRun, note: str = "") -> None:
        """See `Publisher`."""
        self.has_stored = True

    def begin(self) -> None:
        """Nothing was kept so far."""
        self.has_stored = False


class Subscribers:
    """As `broker.topics.Listener`. Persistent messages are of QoS 1."""

    __slots__ = ("_publisher", "_pubsub", "_shape", "_target")

    def __init__(self, publisher: ForeignPublisher, pubsub: PubSub, shape: PublishShape) -> None:
        self._publisher = publisher
        self._pubsub = pubsub
        self._shape = shape
        self._target = PlainTarget(shape, None)

    def hear(self, bodies: list[bytes]) -> int:
        """See `Listener.hear`."""
        if not self._pubsub.route(self._shape.topic):
            return NOBODY
        self._publisher.begin()
        self._target.publish(self._publisher, PublishRun(self._shape, len(bodies), [], bodies, b"", 0, 0, 0))
        return STORED if self._publisher.has_stored else HEARD
