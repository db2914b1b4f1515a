"""Which topic there is which topic here, and over which bridges a message has come: a user property for each,
so that it does not go in circles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from config.bridge_settings import BridgeTopicSettings
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
