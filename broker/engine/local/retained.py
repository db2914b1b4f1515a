"""Retained messages of a shard in this process."""

from __future__ import annotations

from collections.abc import Iterator

from broker.engine.shard import Shard
from queue_manager.retained import RetainedMessage
from storage.envelope import EnvelopeTemplate


class LocalRetained:
    """As `RetainedClient`."""

    def __init__(self, shard: Shard) -> None:
        self._retained = shard.manager.retained
        self._clock = shard.clock

    def keep(self, template: EnvelopeTemplate, qos: int, body: bytes) -> bool:
        """See `RetainedClient.keep`."""
        return self._retained.keep(template, qos, body, self._clock.now_ms())

    def matching(self, topic_filter: str) -> Iterator[RetainedMessage | None]:
        """See `RetainedClient.matching`."""
        return self._retained.matching(topic_filter, self._clock.now_ms())

    def topics(self) -> list[str]:
        """See `RetainedClient.topics`."""
        return self._retained.topics

    @property
    def extent(self) -> tuple[int, int]:
        """See `RetainedClient.extent`."""
        return len(self._retained), self._retained.held_bytes
