"""Retained messages: the last of each topic, found by topic filter, stored, ended when they expire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final

from config import limits
from queue_manager.address import vhost_of_topic
from queue_manager.errors import LimitReached
from queue_manager.model import Message
from queue_manager.quota_accounts import RETAINED, RETAINED_BYTES
from queue_manager.shard.context import Context
from storage.envelope import EnvelopeTemplate, TemplateCache, expires_at_ms, read_head
from storage.records import RetainedValue, retained

_OVERHEAD_BYTES: Final = 400  # what each costs beside topic, properties and body


class RetainedMessage:
    """The last message of its topic. `user` published it, None: no user did."""

    __slots__ = ("body", "expires_at_ms", "number", "qos", "received_at_ms", "template", "user")

    def __init__(
        self,
        template: EnvelopeTemplate,
        qos: int,
        body: bytes,
        received_at_ms: int,
        user: str | None = None,
    ) -> None:
        self.number = 0
        self.user = user
        self.template = template
        self.qos = qos
        self.body = body
        self.received_at_ms = received_at_ms
        self.expires_at_ms = expires_at_ms(template, received_at_ms)

    @property
    def topic(self) -> str:
        """The topic it was published to."""
        return self.template.topic

    @property
    def held_bytes(self) -> int:
        """The memory it takes, about."""
        template = self.template
        return len(self.body) + 2 * len(template.properties) + 3 * len(template.topic) + _OVERHEAD_BYTES

    def has_expired(self, now_ms: int) -> bool:
        """Whether its message expiry interval has passed."""
        return bool(self.expires_at_ms) and now_ms >= self.expires_at_ms


class _Node:
    """A level of topics; `children` None: there are none."""

    __slots__ = ("children", "message")

    def __init__(self) -> None:
        self.children: dict[str, _Node] | None = None
        self.message: RetainedMessage | None = None

    def child(self, level: str) -> _Node:
        """Return the level below, made if it is not there."""
        if self.children is None:
            self.children = {}
        child = self.children.get(level)
        if child is None:
            child = self.children[level] = _Node()
        return child

    def keep(self, message: RetainedMessage | None) -> None:
        """Have this message here; None: no message any more."""
        self.message = message


class RetainedMessages:
    """All retained messages of a shard, in a tree by levels: a filter looks only where it may match.

    `refusal` is why the last was not kept that was not.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._root = _Node()
        self._by_topic: dict[str, RetainedMessage] = {}
        self._ends: list[tuple[int, str]] = []
        self._templates = TemplateCache()
        self._last_number = 0
        self.held_bytes = 0
        self.refusal = ""

    def __len__(self) -> int:
        return len(self._by_topic)

    @property
    def topics(self) -> list[str]:
        """The topics that have a message."""
        return list(self._by_topic)

    def keep(
        self, template: EnvelopeTemplate, qos: int, body: bytes, now_ms: int, user: str | None = None
    ) -> bool:
        """Retain a message of a user in the place of the last of its topic, or none if the body is empty;
        durable with the open commit. False: there is no room for it (`refusal`), and the topic has none.
        """
        commit = self._context.commit
        topic = template.topic
        self._forget(topic)
        message = RetainedMessage(template, qos, body, now_ms, user)
        if body and self._has_room(message):
            self._enter(message)
            envelope = Message(0, 0, None, template, now_ms).envelope()
            commit.put(retained.key(topic), retained.encode(qos, envelope, body, user))
            commit.hold(len(body))
            return True
        commit.delete(retained.key(topic))
        return not body

    def restore(self, value: RetainedValue) -> None:
        """Restore a message that was stored."""
        received_at_ms = read_head(value.envelope)[2]
        template = self._templates.find(value.envelope)
        self._enter(RetainedMessage(template, value.qos, value.body, received_at_ms, value.user))

    def matching(self, topic_filter: str, now_ms: int) -> Iterator[RetainedMessage | None]:
        """Yield the messages that a filter matches; a leading wildcard does not match `$...` [MQTT-4.7.2-1].

        May be gone through in steps: None is given after each `limits.RETAINED_TOPICS_PER_PAUSE` topics that
        were looked at. What is retained later than this call is not given.
        """
        if "+" not in topic_filter and "#" not in topic_filter:
            one = self._by_topic.get(topic_filter)
            found: Iterator[RetainedMessage | None] = iter(()) if one is None else iter((one,))
        else:
            found = _matching(self._root, topic_filter.split("/"))
        return _of_then(found, self._last_number, now_ms)

    def on_timer(self, now_ms: int) -> None:
        """See `queue_manager.shard.timers.Timed`: let go of what has expired."""
        ends = self._ends
        while ends and ends[0][0] <= now_ms:
            topic = heappop(ends)[1]
            message = self._by_topic.get(topic)
            if message is not None and message.has_expired(now_ms):
                self._forget(topic)
                self._context.commit.delete(retained.key(topic))
        if ends:
            self._context.timers.set(self, ends[0][0])

    def _has_room(self, message: RetainedMessage) -> bool:
        held_bytes = message.held_bytes
        if (
            len(self._by_topic) >= limits.RETAINED_MESSAGES_MAX
            or self.held_bytes + held_bytes > limits.RETAINED_BYTES_MAX
        ):
            self.refusal = "there is no room for more retained messages"
            return False
        quotas, vhost, user = self._context.quotas, vhost_of_topic(message.topic), message.user
        try:
            quotas.check(RETAINED, vhost, user)
            quotas.check(RETAINED_BYTES, vhost, user, held_bytes)
            quotas.check_bytes(vhost, user)
        except LimitReached as reached:
            self.refusal = reached.reason
            return False
        return True

    def _count(self, message: RetainedMessage, change: Callable[[str, str, str | None, int], None]) -> None:
        vhost, user = vhost_of_topic(message.topic), message.user
        change(RETAINED, vhost, user, 1)
        change(RETAINED_BYTES, vhost, user, message.held_bytes)

    def _enter(self, message: RetainedMessage) -> None:
        self._count(message, self._context.quotas.add)
        self._last_number += 1
        message.number = self._last_number
        self._by_topic[message.topic] = message
        self.held_bytes += message.held_bytes
        node = self._root
        for level in message.topic.split("/"):
            node = node.child(level)
        node.keep(message)
        if message.expires_at_ms:
            heappush(self._ends, (message.expires_at_ms, message.topic))
            self._context.timers.set(self, message.expires_at_ms)

    def _forget(self, topic: str) -> None:
        message = self._by_topic.pop(topic, None)
        if message is None:
            return
        self.held_bytes -= message.held_bytes
        self._count(message, self._context.quotas.remove)
        path = []
        node = self._root
        for level in topic.split("/"):
            assert node.children is not None
            path.append((node, level))
            node = node.children[level]
        node.keep(None)
        for parent, level in reversed(path):
            assert parent.children is not None
            child = parent.children[level]
            if child.children or child.message is not None:
                break
            del parent.children[level]


def _of_then(
    found: Iterator[RetainedMessage | None], last_number: int, now_ms: int
) -> Iterator[RetainedMessage | None]:
    for message in found:
        if message is None or (message.number <= last_number and not message.has_expired(now_ms)):
            yield message


def _matching(root: _Node, levels: list[str]) -> Iterator[RetainedMessage | None]:
    """Walk the tree along a filter; no deeper than its levels but for what `#` takes in."""
    nodes = [(root, 0)]
    count = 0
    while nodes:
        node, depth = nodes.pop()
        count += 1
        if count % limits.RETAINED_TOPICS_PER_PAUSE == 0:
            yield None
        if depth == len(levels):
            if node.message is not None:
                yield node.message
            continue
        level = levels[depth]
        children = node.children or {}
        if level == "#":
            yield from _below(node, is_root=not depth)
        elif level == "+":
            nodes += [
                (child, depth + 1) for name, child in children.items() if depth or not name.startswith("$")
            ]
        elif level in children:
            nodes.append((children[level], depth + 1))


def _below(top: _Node, *, is_root: bool) -> Iterator[RetainedMessage | None]:
    """Yield a level's own message, and all deeper ones."""
    if top.message is not None:
        yield top.message
    nodes = [child for name, child in (top.children or {}).items() if not (is_root and name.startswith("$"))]
    count = 0
    while nodes:
        node = nodes.pop()
        count += 1
        if count % limits.RETAINED_TOPICS_PER_PAUSE == 0:
            yield None
        if node.message is not None:
            yield node.message
        if node.children:
            nodes += node.children.values()
