"""The subscribers of a topic as a target of dead letters, beside queues."""

from __future__ import annotations

from collections.abc import Sequence

from queue_manager.address import qualified_name
from queue_manager.audience import Audience, TopicSpaces
from queue_manager.outcomes import REASONS, REFUSED_SESSION
from queue_manager.routing.exchange import TOPICS
from storage.envelope import EnvelopeTemplate


class TopicSubscribers:
    """As `queue_manager.rules.dead_letters.Target`: those that messages reach through `amq.topic` in a
    virtual host, by these routing keys. `name` is that of the exchange, which no queue has: one that is named
    as an exchange on the way would look like a loop.
    """

    __slots__ = ("_audience", "_keys", "_topics", "_vhost", "name")

    def __init__(self, topics: TopicSpaces, vhost: str, keys: Sequence[str], audience: Audience) -> None:
        """`audience` are the subscribers of the message as it was before it died."""
        self._topics = topics
        self._vhost = vhost
        self._keys = keys
        self._audience = audience
        self.name = qualified_name(vhost, TOPICS)

    def why_not(self, body_bytes: int, now_ms: int) -> str:
        return "" if self._audience.has_room(1, body_bytes) else REASONS[REFUSED_SESSION]

    def append_one(self, template: EnvelopeTemplate, body: bytes, now_ms: int) -> None:
        audience = self._topics.audience(self._vhost, self._keys, template)
        if audience is not None:
            audience.hear([body])
