"""Which topic there is which topic here, and over which bridges a message has come: a user property for each,
so that it does not go in circles.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from config.bridge_settings import BridgeProtocol, BridgeTopicSettings
from protocols.mqtt import constants as c
from protocols.mqtt.constants import PUBLISH
from protocols.mqtt.properties import decode_properties, encode_user_property
from protocols.mqtt.topic_filters import matches, overlap

PROPERTY: Final = "x-bridged-by"


def local_filter(rule: BridgeTopicSettings) -> str:
    """Return the filter of a rule, here."""
    return rule.local_prefix + rule.topic


def remote_filter(rule: BridgeTopicSettings) -> str:
    """Return the filter of a rule, there."""
    return rule.remote_prefix + rule.topic


def outward(rules: Sequence[BridgeTopicSettings], topic: str) -> str | None:
    """Return the topic there of a topic here, by the first rule that has it; None: no rule has."""
    for rule in rules:
        if matches(local_filter(rule), topic):
            return rule.remote_prefix + topic[len(rule.local_prefix) :]
    return None


def inward(rules: Sequence[BridgeTopicSettings], topic: str) -> str | None:
    """Return the topic here of a topic there, likewise."""
    for rule in rules:
        if matches(remote_filter(rule), topic):
            return rule.local_prefix + topic[len(rule.remote_prefix) :]
    return None


def echoing(
    fetched: Sequence[BridgeTopicSettings], sent: Sequence[BridgeTopicSettings]
) -> list[BridgeTopicSettings]:
    """Return the rules that would fetch what is sent there."""
    filters = [remote_filter(rule) for rule in sent]
    return [rule for rule in fetched if any(overlap(remote_filter(rule), each) for each in filters)]


def has_passed(properties: bytes, bridge: str) -> bool:
    """Return whether a message of this property block has come over a bridge."""
    if PROPERTY.encode() not in properties:
        return False
    return (PROPERTY, bridge) in decode_properties(properties, PUBLISH).user_properties


def with_bridge(properties: bytes, bridge: str) -> bytes:
    """Return the block of a message that goes over a bridge."""
    return properties + encode_user_property(PROPERTY.encode(), bridge.encode())


class Dialect(Enum):
    """A version; whether CONNECT tells that a broker comes (mosquitto's way); how it is called in logs."""

    MQTT_5 = (c.MQTT_5, False, "MQTT 5")
    BRIDGE_3_1_1 = (c.MQTT_3_1_1, True, "MQTT 3.1.1 of bridges")
    PLAIN_3_1_1 = (c.MQTT_3_1_1, False, "MQTT 3.1.1")

    def __init__(self, version: int, is_told: bool, told: str) -> None:
        self.version = version
        self.is_told = is_told
        self.told = told

    @property
    def keeps_own(self) -> bool:
        """Whether what is published does not come back, though it is subscribed to."""
        return self.version == c.MQTT_5 or self.is_told


_3_1_1: Final = (Dialect.BRIDGE_3_1_1, Dialect.PLAIN_3_1_1)
_KNOWN: Final[dict[BridgeProtocol, tuple[Dialect, ...]]] = {
    "auto": (Dialect.MQTT_5, *_3_1_1),
    "mqttv50": (Dialect.MQTT_5,),
    "mqttv311": _3_1_1,
}


class Dialects:
    """The dialects that may be spoken to one broker, of which `current` is tried next, or was found to be
    known.
    """

    def __init__(self, protocol: BridgeProtocol) -> None:
        self._left = self._all = _KNOWN[protocol]

    @property
    def current(self) -> Dialect:
        """The dialect to speak."""
        return self._left[0]

    def refused(self) -> bool:
        """Note that the other broker does not know it; returns whether there is another to be tried."""
        self._left = self._left[1:] or self._all
        return self._left is not self._all
