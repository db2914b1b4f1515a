"""The rights of one user in one virtual host."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from broker.access.name_patterns import expanded_filter, filter_covers, name_pattern
from broker.access.wildcards import wildcards
from broker.topics import routing_key_of
from config import limits
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


class Pattern(Protocol):
    """What tells which names, or routing keys, somebody may use."""

    @property
    def covers_all(self) -> bool:
        """Whether there is nothing that it is not for."""

    def covers(self, name: str) -> bool:
        """Return whether it is for this name."""

    def covers_keys(self, binding_key: str) -> bool:
        """Return whether it is for every routing key that a topic binding matches."""


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

    def has_keys(self, exchange: str) -> bool:
        """Return whether the routing keys of an exchange are something to ask for."""
        return True

    def names(self) -> Mapping[Action, Pattern]:
        """Return what each action may be done to."""
        return {
            Action.CONFIGURE: name_pattern(self.configure),
            Action.WRITE: name_pattern(self.write),
            Action.READ: name_pattern(self.read),
        }

    def keys(self, action: Action, exchange: str, variables: Mapping[str, str]) -> Pattern | None:
        """Return which routing keys of an exchange it may be done with; None: any."""
        for topic in reversed(self.topics):
            if topic.exchange == exchange:
                return name_pattern(_filled(topic.write if action is Action.WRITE else topic.read, variables))
        return None


@dataclass(frozen=True, slots=True)
class Scope:
    """A permission as a scope of a token has it: an action, and wildcards of names and of routing keys of
    topic exchanges; `key` None: of none.
    """

    action: Action
    name: str
    key: str | None = None


class ExchangeTypes:
    """Tells which exchanges have routing keys that scopes are asked for; until `is_topic` is set, all."""

    __slots__ = ("is_topic",)

    def __init__(self) -> None:
        self.is_topic: Callable[[str, str], bool] = lambda vhost, exchange: True


@dataclass(frozen=True, slots=True)
class ScopeGrant(Grant):
    """The permissions that scopes grant in a virtual host, and nothing else."""

    vhost: str = "/"
    scopes: tuple[Scope, ...] = ()
    types: ExchangeTypes = field(default_factory=ExchangeTypes)

    def has_keys(self, exchange: str) -> bool:
        """See `Grant`."""
        return self.types.is_topic(self.vhost, exchange)

    def names(self) -> Mapping[Action, Pattern]:
        """See `Grant`."""
        return {
            action: wildcards(tuple(scope.name for scope in self.scopes if scope.action is action))
            for action in Action
        }

    def keys(self, action: Action, exchange: str, variables: Mapping[str, str]) -> Pattern | None:
        """See `Grant`; where no scope is for the exchange there is no key."""
        fitting = (
            scope.key
            for scope in self.scopes
            if scope.action is action and scope.key is not None and wildcards((scope.name,)).covers(exchange)
        )
        found = wildcards(tuple(fitting))
        return None if found.covers_all else found


@dataclass(frozen=True, slots=True)
class JoinedGrant(Grant):
    """Several grants in one virtual host: what one of them allows is allowed."""

    grants: tuple[Grant, ...] = ()


EVERYTHING: Final = Grant(".*", ".*", ".*")


class Rights:
    """A grant as it is for one user, client identifier and virtual host."""

    __slots__ = ("_grant", "_groups", "_keys", "_names", "_rules", "_variables")

    def __init__(self, grant: Grant, *, user: str, client_id: str, vhost: str) -> None:
        self._grant = grant
        self._names = grant.names()
        self._groups = name_pattern(grant.groups)
        self._rules = _expanded(grant.rules, user, client_id) if grant.rules else {}
        self._variables = {"{username}": user, "{vhost}": vhost, "{client_id}": client_id}
        self._keys: dict[tuple[Action, str], Pattern | None] = {}

    def cover(self, action: Action, kind: Kind, name: str) -> bool:
        """Return whether this may be done."""
        pattern = self._names[action]
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

    def has_keys(self, exchange: str) -> bool:
        """Return whether `cover_keys` is to be asked of the exchange, as it is now."""
        return self._grant.has_keys(exchange)

    def cover_keys(self, action: Action, exchange: str, key: str) -> bool:
        """Return whether the routing key (reading: binding key) may be used with an exchange that may be."""
        pattern = self._keys_of(action, exchange)
        if pattern is None:
            return True
        return pattern.covers_keys(key) if action is Action.READ else pattern.covers(key)

    def cover_all_topics(self, action: Action) -> bool:
        """Return whether there is no plain topic that this could not be done to."""
        return self._names[action].covers_all and self._keys_of(action, TOPIC_EXCHANGE) is None

    def _keys_of(self, action: Action, exchange: str) -> Pattern | None:
        """Return which routing keys of the exchange; None: any. It is kept."""
        if (action, exchange) not in self._keys:
            if len(self._keys) >= limits.ACCESS_DECISIONS_KEPT_MAX:
                self._keys.clear()
            self._keys[action, exchange] = self._grant.keys(action, exchange, self._variables)
        return self._keys[action, exchange]

    def _cover_topic(self, action: Action, kind: Kind, name: str) -> bool:
        pattern = self._names[action]
        if pattern.covers(name) or pattern.covers(TOPIC_EXCHANGE):
            key = routing_key_of(name)
            if kind is Kind.FILTER:
                key = key.replace("+", "*")
                if "*" in key or "#" in key:
                    topics = self._keys_of(action, TOPIC_EXCHANGE)
                    if topics is None or topics.covers(key):  # topics are looked at one by one
                        return True
            if self.cover_keys(action, TOPIC_EXCHANGE, key):
                return True
        return self._are_ruled(action, name)

    def _are_ruled(self, action: Action, name: str) -> bool:
        return any(filter_covers(rule, name) for rule in self._rules.get(action, ()))


class JoinedRights:
    """Several `Rights` in one virtual host, of which one is enough."""

    __slots__ = ("_each",)

    def __init__(self, each: Iterable[Rights]) -> None:
        self._each = tuple(each)

    def cover(self, action: Action, kind: Kind, name: str) -> bool:
        """See `Rights`."""
        return any(rights.cover(action, kind, name) for rights in self._each)

    def has_keys(self, exchange: str) -> bool:
        """See `Rights`."""
        return any(rights.has_keys(exchange) for rights in self._each)

    def cover_keys(self, action: Action, exchange: str, key: str) -> bool:
        """See `Rights`; they are those that the exchange may be used by."""
        return any(
            rights.cover(action, Kind.EXCHANGE, exchange) and rights.cover_keys(action, exchange, key)
            for rights in self._each
        )

    def cover_all_topics(self, action: Action) -> bool:
        """See `Rights`."""
        return any(rights.cover_all_topics(action) for rights in self._each)


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
