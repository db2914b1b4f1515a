"""`$queue/<name>[/<routing key>]` addresses and the control verbs at their end."""

from __future__ import annotations

from typing import Final

from config import limits
from queue_manager.errors import InvalidAddress

DEFAULT_VHOST: Final = "/"
PREFIX: Final = "$queue/"
STREAM_STATUS: Final = "$stream-status"
BROWSE: Final = "$browse"
# answered through reply-to
CALL_VERBS: Final = frozenset(
    {"$stage-commit", "$stage-abort", "$stage-status", "$stage-forget", STREAM_STATUS, BROWSE}
)
CONTROL_VERBS: Final = frozenset({"$ack", "$nack", "$reject", "$commit", "$extend", *CALL_VERBS})


PASSING_GROUP_PREFIX: Final = "%client-"
"""Groups of these names go with the client that made them. Names made of client identifiers escape '%'."""


class Address:
    """A parsed address. `rest` is the routing key (publish) or pattern (subscribe), "" if none."""

    __slots__ = ("name", "rest", "verb")

    def __init__(self, name: str, rest: str, verb: str) -> None:
        self.name = name
        self.rest = rest
        self.verb = verb


def validate_queue_name(name: str) -> str:
    """Give `name` back if a queue may be called so, else raise InvalidAddress."""
    size = len(name.encode())
    if not 1 <= size <= limits.QUEUE_NAME_BYTES_MAX:
        raise InvalidAddress(f"a queue name has 1 to {limits.QUEUE_NAME_BYTES_MAX} bytes, this one {size}")
    for character in ("\0", "+", "#", "/", "\x1e", "\x1f"):
        if character in name:
            raise InvalidAddress(f"queue name {name!r} contains {character!r}")
    if name.startswith("$"):
        raise InvalidAddress(f"queue name {name!r} starts with '$', which is kept for the broker")
    return name


def validate_group_name(name: str) -> str:
    """Give `name` back if a consumer group may be called so, else raise InvalidAddress."""
    size = len(name.encode())
    if not 1 <= size <= limits.GROUP_NAME_BYTES_MAX:
        raise InvalidAddress(
            f"a consumer group name has 1 to {limits.GROUP_NAME_BYTES_MAX} bytes, this one {size}"
        )
    if "\0" in name or "\x1f" in name or "@" in name:
        raise InvalidAddress(f"consumer group name {name!r} contains a NUL, a unit separator or '@'")
    return name


def is_queue_topic(topic: str) -> bool:
    """Whether the topic belongs to the queue manager (`$queue` or below)."""
    return topic.startswith(PREFIX) or topic == "$queue"


def parse(topic: str) -> Address:
    """Parse a topic under `$queue/`; raise InvalidAddress on an empty name or a misplaced verb."""
    if not topic.startswith(PREFIX):
        raise InvalidAddress(f"{topic!r} is not below {PREFIX!r}")
    name, _, rest = topic[len(PREFIX) :].partition("/")
    validate_queue_name(name)
    if "$" not in rest:
        return Address(name, rest, "")
    levels = rest.split("/")
    verb = ""
    if levels[-1].startswith("$"):
        verb = levels.pop()
        if verb not in CONTROL_VERBS:
            raise InvalidAddress(f"{verb!r} is no control verb; known: {', '.join(sorted(CONTROL_VERBS))}")
    for level in levels:
        if level in CONTROL_VERBS:
            raise InvalidAddress(f"control verb {level!r} must be the last level of {topic!r}")
    return Address(name, "/".join(levels), verb)


def routing_key(topic: str, queue_name: str) -> str:
    """The part of a message's topic that patterns of the queue's groups look at.

    An AMQP publish to the name of the queue has none, as an MQTT publish to its address.
    """
    if topic == queue_name:
        return ""
    root = PREFIX + queue_name
    if topic.startswith(root):
        if len(topic) == len(root):
            return ""
        if topic[len(root)] == "/":
            return topic[len(root) + 1 :]
    return topic
