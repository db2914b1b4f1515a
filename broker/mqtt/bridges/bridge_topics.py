"""Which topic there is which topic here."""

from __future__ import annotations

from collections.abc import Sequence

from config.bridge_settings import BridgeTopicSettings
from protocols.mqtt.topic_filters import matches, overlap


def local_filter(rule: BridgeTopicSettings) -> str:
    """The filter of a rule, here."""
    return rule.local_prefix + rule.topic


def remote_filter(rule: BridgeTopicSettings) -> str:
    """The filter of a rule, there."""
    return rule.remote_prefix + rule.topic


def outward(rules: Sequence[BridgeTopicSettings], topic: str) -> str | None:
    """The topic there of a topic here, by the first rule that has it; None: no rule has."""
    for rule in rules:
        if matches(local_filter(rule), topic):
            return rule.remote_prefix + topic[len(rule.local_prefix) :]
    return None


def inward(rules: Sequence[BridgeTopicSettings], topic: str) -> str | None:
    """The topic here of a topic there, likewise."""
    for rule in rules:
        if matches(remote_filter(rule), topic):
            return rule.local_prefix + topic[len(rule.remote_prefix) :]
    return None


def echoing(
    fetched: Sequence[BridgeTopicSettings], sent: Sequence[BridgeTopicSettings]
) -> list[BridgeTopicSettings]:
    """The rules that would fetch what is sent there."""
    filters = [remote_filter(rule) for rule in sent]
    return [rule for rule in fetched if any(overlap(remote_filter(rule), each) for each in filters)]
