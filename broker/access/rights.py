"""The rights of one user in one virtual host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from broker.access.name_patterns import NamePattern, expanded_filter, filter_covers, name_pattern
from broker.topics import routing_key_of
from queue_manager.address import queue_of

DEFAULT_EXCHANGE: Final = "amq.default"
TOPIC_EXCHANGE: Final = "amq.topic"
"""The exchange that plain MQTT topics are the routing keys of."""


class Action(Enum):
    """An action on a name."""

    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


class Kind(Enum):
    """The kind of thing that a name names."""

    QUEUE = "queue"
    EXCHANGE = "exchange"
    TOPIC = "topic"
    """A plain MQTT topic."""
    FILTER = "filter"
    """A filter of plain MQTT topics; what it lets through is to be asked for as a topic, too."""
    ADDRESS = "address"
    """A `$queue/...` address, with its queue, key or pattern, and verb."""
    GROUP = "group"
    """A consumer group of a queue that may be read."""


@dataclass(frozen=True, slots=True)
class TopicGrant:
    """Which routing keys of an exchange; `{username}`, `{vhost}`, `{client_id}` stand for these."""

    exchange: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class Grant:
    """The permissions granted in a virtual host: regular expressions, and MQTT filters (`rules`) that grant
    more.
    """

    configure: str = ""
    write: str = ""
    read: str = ""
    groups: str = ".*"
    topics: tuple[TopicGrant, ...] = ()
    rules: tuple[tuple[Action, str], ...] = ()


EVERYTHING: Final = Grant(".*", ".*", ".*")


class Rights:
    """A grant as it is for one user, client identifier and virtual host."""

    __slots__ = ("_groups", "_patterns", "_rules", "_topics")

    def __init__(self, grant: Grant, *, user: str, client_id: str, vhost: str) -> None:
        self._patterns = {
            Action.CONFIGURE: name_pattern(grant.configure),
            Action.WRITE: name_pattern(grant.write),
            Action.READ: name_pattern(grant.read),
        }
        self._groups = name_pattern(grant.groups)
        self._rules = _expanded(grant.rules, user, client_id)
        variables = {"{username}": user, "{vhost}": vhost, "{client_id}": client_id}
        self._topics: dict[tuple[str, Action], NamePattern] = {}
        for topic in grant.topics:
            self._topics[topic.exchange, Action.WRITE] = name_pattern(_filled(topic.write, variables))
            self._topics[topic.exchange, Action.READ] = name_pattern(_filled(topic.read, variables))

    def cover(self, action: Action, kind: Kind, name: str) -> bool:
        """Return whether this may be done."""
        pattern = self._patterns[action]
        if kind is Kind.QUEUE:
            # who may publish to the default exchange may publish to every queue
            return pattern.covers(name) or (action is Action.WRITE and pattern.covers(DEFAULT_EXCHANGE))
        if kind is Kind.EXCHANGE:
            return pattern.covers(name or DEFAULT_EXCHANGE)
        if kind is Kind.GROUP:
            return self._groups.covers(name)
        if kind is Kind.ADDRESS:
            queue = queue_of(name)
            return self.cover(action, Kind.QUEUE, queue) or self._are_ruled(action, name)
        return self._cover_topic(action, kind, name)

    def cover_keys(self, action: Action, exchange: str, key: str) -> bool:
        """Return whether the routing key (reading: binding key) may be used with an exchange that may be."""
        pattern = self._topics.get((exchange, action))
        if pattern is None:
            return True
        return pattern.covers_keys(key) if action is Action.READ else pattern.covers(key)

    def cover_all_topics(self, action: Action) -> bool:
        """Return whether there is no plain topic that this could not be done to."""
        return self._patterns[action].covers_all and (TOPIC_EXCHANGE, action) not in self._topics

    def _cover_topic(self, action: Action, kind: Kind, name: str) -> bool:
        pattern = self._patterns[action]
        if pattern.covers(name) or pattern.covers(TOPIC_EXCHANGE):
            key = routing_key_of(name)
            if kind is Kind.FILTER:
                key = key.replace("+", "*")
                if "*" in key or "#" in key:
                    topics = self._topics.get((TOPIC_EXCHANGE, action))
                    if topics is None or topics.covers(key):  # topics are looked at one by one
                        return True
            if self.cover_keys(action, TOPIC_EXCHANGE, key):
                return True
        return self._are_ruled(action, name)

    def _are_ruled(self, action: Action, name: str) -> bool:
        return any(filter_covers(rule, name) for rule in self._rules.get(action, ()))


def _expanded(
    rules: Iterable[tuple[Action, str]], user: str, client_id: str
) -> Mapping[Action, tuple[str, ...]]:
    found: dict[Action, tuple[str, ...]] = {}
    for action, pattern in rules:
        expanded = expanded_filter(pattern, user, client_id)
        if expanded is not None:
            found[action] = (*found.get(action, ()), expanded)
    return found


def _filled(pattern: str, variables: Mapping[str, str]) -> str:
    for variable, value in variables.items():
        if variable in pattern:
            pattern = pattern.replace(variable, re.escape(value))
    return pattern
