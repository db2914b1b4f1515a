"""Retained messages of a shard in this process."""

from __future__ import annotations

from collections.abc import Iterator

from broker.engine.shard import Shard
from queue_manager.retained_messages import RetainedMessage
from storage.envelope import EnvelopeTemplate


class RetainedClient:
    """The last message of each topic that was published with RETAIN."""

    def __init__(self, shard: Shard) -> None:
        self._retained = shard.manager.retained
        self._clock = shard.clock

    def keep(self, template: EnvelopeTemplate, qos: int, body: bytes) -> bool:
        """Retain a message in the place of the last of its topic, or none if the body is empty; durable once
        the open commit is. False: there is no room, and the topic has none.
        """
        return self._retained.keep(template, qos, body, self._clock.now_ms())

    def matching(self, topic_filter: str) -> Iterator[RetainedMessage | None]:
        """Yield the messages a filter matches that have not expired, and None after so many topics, for a
        walk in steps; what is retained later than this call is not given.
        """
        return self._retained.matching(topic_filter, self._clock.now_ms())

    def topics(self) -> list[str]:
        """Return the topics that have a message, in no order."""
        return self._retained.topics

    @property
    def extent(self) -> tuple[int, int]:
        """How many there are, and the memory they take."""
        return len(self._retained), self._retained.held_bytes
