"""Plain publish/subscribe between MQTT clients: subscription tree, routes by topic.

All of it lies in memory. Only topics outside `$queue` come here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from broker.engine.elsewhere import Elsewhere, FilterFact
from broker.engine.session_traffic import Log
from broker.mqtt.topology.subscription import ShareBacklog, ShareGroup, Subscriber, Subscription
from config import limits
from queue_manager.validity import Version

NOBODY_ELSEWHERE: Final[Mapping[int, bool]] = {}


class Route(NamedTuple):
    """The subscribers of a topic: single ones, and the groups of which one member each gets a message.

    `far` are the other workers that have subscribers, each with whether lasting sessions are among them.
    """

    subscriptions: tuple[Subscription, ...]
    groups: tuple[ShareGroup, ...]
    far: Mapping[int, bool] = NOBODY_ELSEWHERE

    def __bool__(self) -> bool:
        return bool(self.subscriptions or self.groups)


class _Node:
    __slots__ = ("children", "far", "groups", "is_kept", "subscriptions")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.subscriptions: dict[Subscriber, Subscription] = {}
        self.groups: dict[str, ShareGroup] = {}
        self.far: dict[int, bool] | None = None
        self.is_kept = False

    def is_empty(self) -> bool:
        return not (self.children or self.subscriptions or self.groups or self.far)


class PubSub:
    """The routes of publishes to plain topics.

    `version` is that of all subscriptions, which the kept subscriptions of each topic hold for, too.
    """

    def __init__(self, share_strategy: str = "balanced") -> None:
        self._root = _Node()
        self._routes: dict[str, Route] = {}
        self._share_strategy = share_strategy
        self._backlogs: dict[tuple[str, str], ShareBacklog] = {}
        self.elsewhere: Elsewhere | None = None
        self.vhost = ""
        self.version = Version()

    def reach(self, elsewhere: Elsewhere, vhost: str) -> None:
        """Have other workers told of the filters that have subscribers here."""
        self.elsewhere = elsewhere
        self.vhost = vhost

    def subscribe(self, subscription: Subscription) -> None:
        """Add a subscription; one of the same client, share and filter is replaced."""
        node = self._node_of(subscription.filter)
        if subscription.share:
            self._join(node, subscription)
        else:
            node.subscriptions[subscription.subscriber] = subscription
        if self.elsewhere is not None:
            self._tell(node, subscription)
        self._changed()

    def _node_of(self, topic_filter: str) -> _Node:
        node = self._root
        for level in topic_filter.split("/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        return node

    def _tell(self, node: _Node, subscription: Subscription) -> None:
        """Tell other workers what there is for a filter now."""
        share = subscription.share
        if share:
            group = node.groups.get(share)
            count = 0 if group is None else len(group.members)
            is_kept = group is not None and group.log is not None
        else:
            count = int(bool(node.subscriptions))  # one or many: it is sent what matches once
            if subscription.is_kept:
                node.is_kept = subscription.subscriber in node.subscriptions
            is_kept = node.is_kept
        assert self.elsewhere is not None
        self.elsewhere.tell(self.vhost, FilterFact(subscription.filter, share, count, is_kept))

    def know(self, worker: int, facts: Collection[FilterFact]) -> None:
        """Take note of what another worker has subscribers for."""
        for fact in facts:
            node = self._node_of(fact.filter)
            if fact.share:
                group = node.groups.get(fact.share)
                if group is None:
                    group = self._new_group(node, fact.share, fact.filter)
                group.know(worker, fact.members, is_kept=fact.is_kept)
                self._drop_unused(node, fact.share)
            else:
                far = node.far = dict(node.far or {})
                far.pop(worker, None)
                if fact.members or fact.is_kept:
                    far[worker] = fact.is_kept
            if node.is_empty():
                self._prune(fact.filter)
        self._changed()

    def _new_group(self, node: _Node, share: str, topic_filter: str) -> ShareGroup:
        group = node.groups[share] = ShareGroup(self._share_strategy, share, topic_filter)
        group.keep(self._backlogs.get((share, topic_filter)))
        return group

    def _drop_unused(self, node: _Node, share: str) -> None:
        group = node.groups.get(share)
        if group is not None and group.is_unused:
            del node.groups[share]

    def _prune(self, topic_filter: str) -> None:
        """Let go of the nodes of a filter that are empty."""
        path = []
        node = self._root
        for level in topic_filter.split("/"):
            path.append((node, level))
            node = node.children[level]
        for parent, level in reversed(path):
            if not parent.children[level].is_empty():
                break
            del parent.children[level]

    def _join(self, node: _Node, subscription: Subscription) -> None:
        group = node.groups.get(subscription.share)
        if group is None:
            group = self._new_group(node, subscription.share, subscription.filter)
        subscription.join(group)
        group.join(subscription)

    def keep_log(self, share: str, topic_filter: str, log: Log | None) -> None:
        """Have a share group keep its part of what is published with QoS 1 and 2 in a log, or in none."""
        node = self._node_of(topic_filter)
        group = node.groups.get(share) or self._new_group(node, share, topic_filter)
        group.log = log
        if self.elsewhere is not None:
            fact = FilterFact(topic_filter, share, len(group.members), log is not None)
            self.elsewhere.tell(self.vhost, fact)
        self._drop_unused(node, share)
        if node.is_empty():
            self._prune(topic_filter)
        self._changed()

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
        node = self._root
        for level in subscription.filter.split("/"):
            child = node.children.get(level)
            if child is None:
                return
            node = child
        if subscription.share:
            group = node.groups.get(subscription.share)
            if group is not None:
                group.leave(subscription)
                self._drop_unused(node, subscription.share)
        elif node.subscriptions.get(subscription.subscriber) is subscription:
            del node.subscriptions[subscription.subscriber]
        if self.elsewhere is not None:
            self._tell(node, subscription)
        if node.is_empty():
            self._prune(subscription.filter)
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
                NOBODY_ELSEWHERE if self.elsewhere is None else _far(nodes),
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


def _far(nodes: Collection[_Node]) -> Mapping[int, bool]:
    found: dict[int, bool] = {}
    for node in nodes:
        for worker, is_kept in (node.far or {}).items():
            found[worker] = found.get(worker, False) or is_kept
    return found


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
