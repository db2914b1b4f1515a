"""Plain publish/subscribe between MQTT clients: subscription tree, routes by topic, retained messages.

All of it lies in memory. Only topics outside `$queue` come here.
"""

from __future__ import annotations

from typing import Protocol

from config import limits
from protocols.mqtt.constants import PUBLISH
from protocols.mqtt.events import PublishRun, PublishShape
from protocols.mqtt.properties import decode_properties, encode_properties
from protocols.mqtt.topics import matches


class Subscriber(Protocol):
    """Who gets what subscriptions match."""

    @property
    def protocol_version(self) -> int:
        """Of his connection."""

    def may_read(self, topic: str) -> bool:
        """Whether he is permitted to get what is published to a topic that his filter matches."""

    def pass_on(self, run: PublishRun) -> None:
        """Send publishes on as they came."""

    def forward(self, run: PublishRun, subscription: Subscription) -> None:
        """Send publishes on as the subscription wants them."""


class Subscription:
    """One client's subscription to one filter; `share` is the group of a `$share/<group>/...` one, or ""."""

    __slots__ = (
        "filter",
        "identifier",
        "no_local",
        "qos",
        "retain_as_published",
        "share",
        "subscriber",
    )

    def __init__(
        self,
        subscriber: Subscriber,
        filter: str,
        qos: int,
        *,
        no_local: bool,
        retain_as_published: bool,
        identifier: int | None,
        share: str,
    ) -> None:
        self.subscriber = subscriber
        self.filter = filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.identifier = identifier
        self.share = share

    def takes_as_is(self, shape: PublishShape, version: int) -> bool:
        """Whether publishes of this shape, sent over `version`, may go to the subscriber byte for byte."""
        return (
            version == self.subscriber.protocol_version
            and self.qos >= shape.qos
            and self.identifier is None
            and not shape.dup
            and (not shape.retain or self.retain_as_published)
        )


class _Node:
    __slots__ = ("children", "subscriptions")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.subscriptions: list[Subscription] = []


class Retained:
    """A retained message; `properties` is the MQTT 5 block it was published with (b"" in 3.1.1)."""

    __slots__ = (
        "_expiry_s",
        "payload",
        "properties",
        "qos",
        "received_at_ms",
        "topic",
        "topic_bytes",
    )

    def __init__(
        self, topic: str, topic_bytes: bytes, qos: int, properties: bytes, payload: bytes, received_at_ms: int
    ) -> None:
        self.topic = topic
        self.topic_bytes = topic_bytes
        self.qos = qos
        self.properties = properties
        self.payload = payload
        self.received_at_ms = received_at_ms
        self._expiry_s: int | None = None
        if properties:
            self._expiry_s = decode_properties(properties, PUBLISH).message_expiry_interval_s

    @property
    def held_bytes(self) -> int:
        """What it takes in memory, about."""
        return len(self.payload) + len(self.properties) + 2 * len(self.topic_bytes)

    def has_expired(self, now_ms: int) -> bool:
        """Whether its message expiry interval has passed."""
        return self._expiry_s is not None and now_ms >= self.received_at_ms + self._expiry_s * 1000

    def properties_at(self, now_ms: int) -> bytes:
        """The property block with what is left of the expiry interval [MQTT-3.3.2-6]."""
        if self._expiry_s is None:
            return self.properties
        properties = decode_properties(self.properties, PUBLISH)
        properties.message_expiry_interval_s = self._expiry_s - (now_ms - self.received_at_ms) // 1000
        return encode_properties(properties, PUBLISH)


class PubSub:
    """Who gets what is published to a plain topic.

    `routes` caches the subscriptions of each topic; `generation` moves whenever a subscription does.
    """

    def __init__(self) -> None:
        self._root = _Node()
        self._routes: dict[str, tuple[Subscription, ...]] = {}
        self._turns: dict[tuple[str, str], int] = {}
        self.generation = 0
        self.retained: dict[str, Retained] = {}
        self._retained_bytes = 0

    def subscribe(self, subscription: Subscription) -> None:
        """Add a subscription; one of the same client, share and filter is replaced."""
        node = self._root
        for level in subscription.filter.split("/"):
            node = node.children.setdefault(level, _Node())
        others = [s for s in node.subscriptions if not _same(s, subscription)]
        node.subscriptions = [*others, subscription]
        self._changed()

    def unsubscribe(self, subscription: Subscription) -> None:
        """Take a subscription away."""
        path = []
        node = self._root
        for level in subscription.filter.split("/"):
            child = node.children.get(level)
            if child is None:
                return
            path.append((node, level))
            node = child
        node.subscriptions = [s for s in node.subscriptions if s is not subscription]
        if not any(s.share == subscription.share for s in node.subscriptions):
            self._turns.pop((subscription.share, subscription.filter), None)
        for parent, level in reversed(path):
            child = parent.children[level]
            if child.children or child.subscriptions:
                break
            del parent.children[level]
        self._changed()

    def route(self, topic: str) -> tuple[Subscription, ...]:
        """Every subscription a topic matches and whose client may read it; members of share groups are
        chosen later (`pick`).
        """
        found = self._routes.get(topic)
        if found is None:
            result: list[Subscription] = []
            _collect(self._root, topic.split("/"), 0, topic.startswith("$"), result)
            found = tuple([s for s in result if s.subscriber.may_read(topic)])
            if len(self._routes) >= limits.ROUTE_CACHE_ENTRIES_MAX:
                self._routes.clear()
            self._routes[topic] = found
        return found

    def pick(self, route: tuple[Subscription, ...]) -> list[Subscription]:
        """The subscriptions of a route with one member, in turn, for each share group."""
        chosen = [s for s in route if not s.share]
        groups: dict[tuple[str, str], list[Subscription]] = {}
        for subscription in route:
            if subscription.share:
                groups.setdefault((subscription.share, subscription.filter), []).append(subscription)
        for key, members in groups.items():
            turn = self._turns.get(key, 0)
            self._turns[key] = turn + 1
            chosen.append(members[turn % len(members)])
        return chosen

    def retain(self, message: Retained) -> bool:
        """Keep a message as its topic's last, or clear it (empty payload); False if there is no room."""
        old = self.retained.pop(message.topic, None)
        if old is not None:
            self._retained_bytes -= old.held_bytes
        if not message.payload:
            return True
        if (
            len(self.retained) >= limits.RETAINED_MESSAGES_MAX
            or self._retained_bytes + message.held_bytes > limits.RETAINED_BYTES_MAX
        ):
            return False
        self.retained[message.topic] = message
        self._retained_bytes += message.held_bytes
        return True

    def retained_for(self, topic_filter: str) -> list[Retained]:
        """The retained messages a filter matches."""
        if "+" not in topic_filter and "#" not in topic_filter:
            one = self.retained.get(topic_filter)
            return [] if one is None else [one]
        return [message for topic, message in self.retained.items() if matches(topic_filter, topic)]

    def _changed(self) -> None:
        self._routes.clear()
        self.generation += 1


def _same(one: Subscription, other: Subscription) -> bool:
    return one.subscriber is other.subscriber and one.share == other.share


def _collect(node: _Node, levels: list[str], depth: int, is_system: bool, result: list[Subscription]) -> None:
    """Walk the tree along a topic; a leading wildcard does not match `$...` [MQTT-4.7.2-1]."""
    wild = not (is_system and depth == 0)
    if wild:
        rest = node.children.get("#")
        if rest is not None:
            result += rest.subscriptions
    if depth == len(levels):
        result += node.subscriptions
        return
    child = node.children.get(levels[depth])
    if child is not None:
        _collect(child, levels, depth + 1, is_system, result)
    if wild:
        child = node.children.get("+")
        if child is not None:
            _collect(child, levels, depth + 1, is_system, result)
