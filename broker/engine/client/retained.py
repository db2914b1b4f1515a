"""Retained messages of a shard in this process."""

from __future__ import annotations

from collections.abc import Iterator

from broker.engine.shard import Shard
from queue_manager.address import DEFAULT_VHOST, qualified_topic
from queue_manager.retained_messages import RetainedMessage
from storage.envelope import EnvelopeTemplate


class RetainedClient:
    """The last message of each topic that was published with RETAIN."""

    def __init__(self, shard: Shard, vhost: str = DEFAULT_VHOST) -> None:
        self._shard = shard
        self._retained = shard.manager.retained
        self._prefix = qualified_topic(vhost, "")

    def within(self, vhost: str) -> RetainedClient:
        """Return the same for another virtual host."""
        return RetainedClient(self._shard, vhost)

    def keep(self, template: EnvelopeTemplate, qos: int, body: bytes, user: str | None = None) -> bool:
        """Retain a message of a user in the place of the last of its topic, or none if the body is empty;
        durable once the open commit is. False: there is no room for it (`refusal`), and the topic has none.
        """
        if self._prefix:
            template = _with_topic(template, self._prefix + template.topic)
        return self._retained.keep(template, qos, body, self._shard.clock.now_ms(), user)

    @property
    def refusal(self) -> str:
        """Why the last message was not kept that was not."""
        return self._retained.refusal

    def matching(self, topic_filter: str) -> Iterator[RetainedMessage | None]:
        """Yield the messages a filter matches that have not expired, and None after so many topics, for who
        goes through them in steps; what is retained later than this call is not given.
        """
        found = self._retained.matching(self._prefix + topic_filter, self._shard.clock.now_ms())
        return map(self._shown, found) if self._prefix else found

    def _shown(self, message: RetainedMessage | None) -> RetainedMessage | None:
        if message is None:
            return None
        template = _with_topic(message.template, message.topic[len(self._prefix) :])
        return RetainedMessage(template, message.qos, message.body, message.received_at_ms)

    def topics(self) -> list[str]:
        """Return the topics that have a message, in no order."""
        prefix = self._prefix
        return [topic[len(prefix) :] for topic in self._retained.topics if topic.startswith(prefix)]

    @property
    def extent(self) -> tuple[int, int]:
        """How many there are in all virtual hosts, and the memory they take."""
        return len(self._retained), self._retained.held_bytes


def _with_topic(template: EnvelopeTemplate, topic: str) -> EnvelopeTemplate:
    return EnvelopeTemplate(
        topic,
        template.properties_kind,
        template.properties,
        priority=template.priority,
        expires_at_ms=template.expires_at_ms,
        persistent=template.persistent,
        exchange=template.exchange,
    )
