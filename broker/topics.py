"""Where the topics of MQTT and the routing keys of AMQP meet: the exchange `amq.topic`.

Levels are parted by `/` there and by `.` here, so the two change places: nothing is lost, and each topic is
one routing key. `sensors/v1.2/up` is `sensors.v1/2.up`.
"""

from __future__ import annotations

from typing import Final, Protocol

from queue_manager.api import TOPICS_EXCHANGE
from storage.envelope import EnvelopeTemplate

EXCHANGE: Final = TOPICS_EXCHANGE

NOBODY: Final = 0
HEARD: Final = 1
STORED: Final = 2

_SWAPPED: Final = str.maketrans("/.", "./")


def routing_key_of(topic: str) -> str:
    """The routing key of a topic."""
    return topic.translate(_SWAPPED)


def pattern_of(topic_filter: str) -> str:
    """The binding key of a topic filter, none of whose levels is `*`."""
    levels = topic_filter.split("/")
    return ".".join("*" if level == "+" else level.replace(".", "/") for level in levels)


def topic_of(routing_key: str) -> str:
    """The topic of a routing key."""
    return routing_key.translate(_SWAPPED)


class Listener(Protocol):
    """Those who are subscribed to the topic of messages that come from elsewhere."""

    def hear(self, bodies: list[bytes]) -> int:
        """Give them messages: 0 if nobody is there, 1 if somebody is, 2 if they were stored for somebody,
        which is certain when the open commit is.
        """


class Listeners(Protocol):
    """A protocol whose clients subscribe to topics."""

    def listener(self, topic: str, template: EnvelopeTemplate) -> Listener | None:
        """Who hears what is published alike to a topic; None if there is no such topic there."""


class TopicSpace:
    """The topics of one virtual host."""

    def __init__(self) -> None:
        self._listeners: Listeners | None = None

    def join(self, listeners: Listeners) -> None:
        """Have `listeners` hear what others publish."""
        self._listeners = listeners

    def listener(self, template: EnvelopeTemplate) -> Listener | None:
        """Who hears messages of this template, whose topic is a routing key."""
        if self._listeners is None:
            return None
        return self._listeners.listener(topic_of(template.topic), template)
