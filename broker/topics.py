"""Where the topics of MQTT and the routing keys of AMQP meet: the exchange `amq.topic`.

Levels are parted by `/` there and by `.` here, so the two change places: nothing is lost, and each topic is
one routing key. `sensors/v1.2/up` is `sensors.v1/2.up`.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from queue_manager.api import TOPICS_EXCHANGE

EXCHANGE: Final = TOPICS_EXCHANGE

_ADDRESS_PREFIX: Final = f"/exchanges/{EXCHANGE}/"
_SWAPPED: Final = str.maketrans("/.", "./")


def routing_key_of(topic: str) -> str:
    """Return the routing key of a topic."""
    return topic.translate(_SWAPPED)


def pattern_of(topic_filter: str) -> str:
    """Return the binding key of a topic filter, none of whose levels is `*`."""
    levels = topic_filter.split("/")
    return ".".join("*" if level == "+" else level.replace(".", "/") for level in levels)


def topic_of(routing_key: str) -> str:
    """Return the topic of a routing key."""
    return routing_key.translate(_SWAPPED)


def address_of(topic: str) -> str:
    """Return the address of a topic, as AMQP 1.0 has it."""
    return _ADDRESS_PREFIX + quote(routing_key_of(topic), safe="")


def addressed_topic(address: str) -> str | None:
    """Return the topic of an address; None: it is that of something else."""
    if not address.startswith(_ADDRESS_PREFIX):
        return None
    return topic_of(unquote(address[len(_ADDRESS_PREFIX) :]))
