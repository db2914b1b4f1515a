"""The subscribers of a topic as a target of dead letters, beside queues."""

from __future__ import annotations

from collections.abc import Sequence

from queue_manager.audience import TopicSpaces
from queue_manager.outcomes import REASONS, REFUSED_SESSION
from storage.envelope import EnvelopeTemplate


class TopicSubscribers:
    """As `queue_manager.rules.dead_letters.Target`: those that messages reach through `amq.topic` in a
    virtual host, by these routing keys. `name` is that of the exchange.
    """

    __slots__ = ("_keys", "_template", "_topics", "_vhost", "name")

    def __init__(
        self, topics: TopicSpaces, vhost: str, name: str, keys: Sequence[str], template: EnvelopeTemplate
    ) -> None:
        self._topics = topics
        self._vhost = vhost
        self._keys = keys
        self._template = template
        self.name = name

    def is_there(self) -> bool:
        """Whether there is a subscriber."""
        audience = self._topics.audience(self._vhost, self._keys, self._template)
        return audience is not None and audience.is_there()

    def why_not(self, body_bytes: int, now_ms: int) -> str:
        """See `Target`."""
        audience = self._topics.audience(self._vhost, self._keys, self._template)
        if audience is None or audience.has_room(1, body_bytes):
            return ""
        return REASONS[REFUSED_SESSION]

    def append_one(self, template: EnvelopeTemplate, body: bytes, now_ms: int) -> None:
        """See `Target`."""
        audience = self._topics.audience(self._vhost, self._keys, template)
        if audience is not None:
            audience.hear([body])
