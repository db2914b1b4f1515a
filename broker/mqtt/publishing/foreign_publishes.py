"""Publishes by other ways than MQTT, to topics that MQTT clients are subscribed to."""

from __future__ import annotations

from collections.abc import Sequence

from broker.mqtt.publishing.topic_audience import Audience
from broker.mqtt.topology.pubsub import PubSub
from broker.properties.templates import as_mqtt
from broker.topics import topic_of
from broker.vhosts.hub import Hub
from protocols.errors import ProtocolError
from protocols.mqtt.events import PublishShape
from protocols.mqtt.topic_filters import validate_topic_name
from storage.envelope import EnvelopeTemplate


class MqttTopics:
    """As `queue_manager.audience.Topics`, for the subscribers of MQTT."""

    __slots__ = ("_hub", "_pubsub")

    def __init__(self, hub: Hub, pubsub: PubSub) -> None:
        self._hub = hub
        self._pubsub = pubsub

    def audience(self, keys: Sequence[str], template: EnvelopeTemplate) -> Audience | None:
        """See `Topics.audience`. Persistent messages are of QoS 1."""
        topics = tuple([topic for topic in map(topic_of, keys) if _is_topic(topic)])
        topic = topic_of(template.topic)
        if not topics or not _is_topic(topic):
            return None
        first_byte = 0x30 | template.persistent << 1
        return Audience(
            self._hub, self._pubsub, PublishShape(first_byte, topic, as_mqtt(template), topics=topics)
        )


def _is_topic(topic: str) -> bool:
    """Return whether clients may publish to it."""
    try:
        validate_topic_name(topic)
    except ProtocolError:
        return False
    return not topic.startswith("$")
