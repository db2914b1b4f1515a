"""Topic aliases, section 3.3.2.3.4: numbers that stand for topics, for one connection and direction."""

from config import limits
from protocols.errors import ProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt.properties import TOPIC_ALIAS


class InboundAliases:
    """The topics of the client's aliases; 1 to `maximum` are allowed, 0 allows none."""

    __slots__ = ("_bytes", "_topics", "maximum")

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self._topics: dict[int, bytes] = {}
        self._bytes = 0

    def check(self, alias: int) -> None:
        """Raise ProtocolError 0x94 for an alias of 0 [MQTT-3.3.2-8] or beyond the maximum [MQTT-3.3.2-9]."""
        if not 1 <= alias <= self.maximum:
            raise ProtocolError(c.TOPIC_ALIAS_INVALID, f"topic alias {alias}, the maximum is {self.maximum}")

    def note(self, alias: int, topic: bytes) -> None:
        """Let the alias stand for this topic from now on. Raises ProtocolError 0x97 for too much of them."""
        old = self._topics.get(alias, b"")
        if old == topic:
            return
        self._bytes += len(topic) - len(old)
        if self._bytes > limits.MQTT_TOPIC_ALIAS_BYTES_MAX:
            raise ProtocolError(c.QUOTA_EXCEEDED, "the topics that aliases stand for are too long together")
        self._topics[alias] = topic

    def topic(self, alias: int) -> bytes:
        """Return the topic of an alias; raises ProtocolError 0x82 where there is none, section 3.3.2.1."""
        self.check(alias)
        topic = self._topics.get(alias)
        if topic is None:
            raise ProtocolError(c.PROTOCOL_ERROR, f"topic alias {alias} stands for no topic yet")
        return topic


class OutboundAliases:
    """The aliases we use with a client that allows 1 to `maximum`: the first topics get them, for good."""

    __slots__ = ("_by_topic", "_maximum")

    def __init__(self, maximum: int) -> None:
        self._maximum = min(maximum, limits.MQTT_TOPIC_ALIASES_SENT_MAX)
        self._by_topic: dict[bytes, int] = {}

    def find(self, topic: bytes) -> int:
        """Return the alias that stands for a topic; 0: none does."""
        return self._by_topic.get(topic, 0)

    def next_free(self) -> int:
        """Return the alias that `take` would give; 0: all are taken."""
        taken = len(self._by_topic)
        return taken + 1 if taken < self._maximum else 0

    def take(self, topic: bytes) -> None:
        """Let the next free alias, which was sent with the topic, stand for it from now on, if there is
        one.
        """
        alias = self.next_free()
        if alias:
            self._by_topic[topic] = alias


def encode_alias(alias: int) -> bytes:
    """Encode a topic alias as a property."""
    return bytes((TOPIC_ALIAS, alias >> 8, alias & 0xFF))
