"""Plain publish/subscribe between MQTT clients: subscription tree, routes by topic.

All of it lies in memory. Only topics outside `$queue` come here.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.mqtt.topology.subscription import ShareBacklog, ShareGroup, Subscriber, Subscription
from config import limits
from queue_manager.validity import Version


class Route(NamedTuple):
    """The subscribers of a topic: single ones, and the groups of which one member each gets a message."""

    subscriptions: tuple[Subscription, ...]
    groups: tuple[ShareGroup, ...]

    def __bool__(self) -> bool:
        return bool(self.subscriptions or self.groups)


class _Node:
    __slots__ = ("children", "groups", "subscriptions")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.subscriptions: dict[Subscriber, Subscription] = {}
        self.groups: dict[str, ShareGroup] = {}

    def is_empty(self) -> bool:
        return not (self.children or self.subscriptions or self.groups)


class PubSub:
    """The routes of publishes to plain topics.

    `version` is that of all subscriptions, which the kept subscriptions of each topic hold for, too.
    """

    def __init__(self, share_strategy: str = "balanced") -> None:
        self._root = _Node()
        self._routes: dict[str, Route] = {}
        self._share_strategy = share_strategy
        self._backlogs: dict[tuple[str, str], ShareBacklog] = {}
        self.version = Version()

    def subscribe(self, subscription: Subscription) -> None:
        """Add a subscription; one of the same client, share and filter is replaced."""
        node = self._root
        for level in subscription.filter.split("/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        if subscription.share:
            self._join(node, subscription)
        else:
            node.subscriptions[subscription.subscriber] = subscription
        self._changed()

    def _join(self, node: _Node, subscription: Subscription) -> None:
        group = node.groups.get(subscription.share)
        if group is None:
            group = node.groups[subscription.share] = ShareGroup(self._share_strategy)
            group.keep(self._backlogs.get((subscription.share, subscription.filter)))
        subscription.join(group)
        group.join(subscription)

    def keep_share(self, share: str, topic_filter: str, backlog: ShareBacklog | None) -> None:
        """Have what a share group is published with QoS 1 and 2 come by `backlog`, or by none."""
        if backlog is None:
            self._backlogs.pop((share, topic_filter), None)
        else:
            self._backlogs[share, topic_filter] = backlog
        node: _Node | None = self._root
        for level in topic_filter.split("/"):
            node = None if node is None else node.children.get(level)
        group = None if node is None else node.groups.get(share)
        if group is not None:
            group.keep(backlog)
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
        if subscription.share:
            group = node.groups.get(subscription.share)
            if group is not None:
                group.leave(subscription)
                if not group.members:
                    del node.groups[subscription.share]
        elif node.subscriptions.get(subscription.subscriber) is subscription:
            del node.subscriptions[subscription.subscriber]
        for parent, level in reversed(path):
            if not parent.children[level].is_empty():
                break
            del parent.children[level]
        self._changed()

    def route(self, topic: str) -> Route:
        """Return every subscription a topic matches and whose client may read it; groups see to that
        themselves.
        """
        found = self._routes.get(topic)
        if found is None:
            nodes: list[_Node] = []
            _collect(self._root, topic.split("/"), 0, topic.startswith("$"), nodes)
            found = Route(
                tuple(
                    one
                    for node in nodes
                    for one in node.subscriptions.values()
                    if one.subscriber.may_read(topic)
                ),
                tuple(group for node in nodes for group in node.groups.values()),
            )
            if len(self._routes) >= limits.ROUTE_CACHE_ENTRIES_MAX:
                self._routes.clear()
            self._routes[topic] = found
        return found

    def forget_routes(self) -> None:
        """Forget routes: what clients may read has changed."""
        self._changed()

    def _changed(self) -> None:
        self._routes.clear()
        self.version.expire()
        self.version = Version()


def _collect(node: _Node, levels: list[str], depth: int, is_system: bool, found: list[_Node]) -> None:
    """Walk the tree along a topic; a leading wildcard does not match `$...` [MQTT-4.7.2-1]."""
    wild = not (is_system and depth == 0)
    if wild:
        rest = node.children.get("#")
        if rest is not None:
            found.append(rest)
    if depth == len(levels):
        found.append(node)
        return
    child = node.children.get(levels[depth])
    if child is not None:
        _collect(child, levels, depth + 1, is_system, found)
    if wild:
        child = node.children.get("+")
        if child is not None:
            _collect(child, levels, depth + 1, is_system, found)
