"""`$queue/<name>[/<routing key>]` addresses and the control verbs at their end.

The name is one level: what that cannot hold is written as `config.name_rules.queue_level` says.
"""

from __future__ import annotations

from typing import Final

from config import limits
from config.name_rules import check_queue_name, queue_level, queue_of_level
from queue_manager.errors import InvalidAddress

DEFAULT_VHOST: Final = "/"
VHOST_SEPARATOR: Final = "\x1d"  # behind the virtual host in names that are not of "/"; no name has it
RESERVED_PREFIX: Final = "amq."
PREFIX: Final = "$queue/"
STREAM_STATUS: Final = "$stream-status"
BROWSE: Final = "$browse"
# answered through reply-to
CALL_VERBS: Final = frozenset(
    {"$stage-commit", "$stage-abort", "$stage-status", "$stage-forget", STREAM_STATUS, BROWSE}
)
CONTROL_VERBS: Final = frozenset({"$ack", "$nack", "$reject", "$commit", "$extend", *CALL_VERBS})


OUTBOX_PREFIX: Final = "amq.outbox."  # of queues that hold what queues of other workers are owed
PASSING_GROUP_PREFIX: Final = "%client-"
"""Groups of these names go with the client that made them. Names made of client identifiers escape '%'."""


class Address:
    """A parsed address. `rest` is the routing key (publish) or pattern (subscribe), "" if none."""

    __slots__ = ("name", "rest", "verb")

    def __init__(self, name: str, rest: str, verb: str) -> None:
        self.name = name
        self.rest = rest
        self.verb = verb


def qualified_name(vhost: str, name: str) -> str:
    """Return the name that a queue or exchange of a virtual host has in the core and on the store."""
    return name if vhost == DEFAULT_VHOST else f"{vhost}{VHOST_SEPARATOR}{name}"


def vhost_of(qualified: str) -> str:
    """Return the virtual host that a name of the core belongs to."""
    vhost, separator, _ = qualified.rpartition(VHOST_SEPARATOR)
    return vhost if separator else DEFAULT_VHOST


def local_name(qualified: str) -> str:
    """Return a name of the core as its virtual host says it."""
    return qualified.rpartition(VHOST_SEPARATOR)[2]


def qualified_topic(vhost: str, topic: str) -> str:
    """Return the name that a retained topic of a virtual host has in the core and on the store: those that
    are not of "/" begin with a level for it, which no wildcard of "/" matches for its `$`.
    """
    return topic if vhost == DEFAULT_VHOST else f"${qualified_name(vhost, '')}/{topic}"


def vhost_of_topic(qualified: str) -> str:
    """Return the virtual host of a retained topic of the core."""
    level = qualified.partition("/")[0]
    return vhost_of(level[1:]) if level.endswith(VHOST_SEPARATOR) else DEFAULT_VHOST


def is_reserved(qualified: str) -> bool:
    """Whether a name of a queue or exchange is one that only the broker gives: it begins with `amq.`."""
    return local_name(qualified).startswith(RESERVED_PREFIX)


def sibling(qualified: str, name: str) -> str:
    """Return the core's name for `name` in the virtual host that another name of the core belongs to."""
    return qualified_name(vhost_of(qualified), name)


def validate_vhost_name(name: str) -> str:
    """Give `name` back if a virtual host may be called so, else raise InvalidAddress."""
    size = len(name.encode())
    if not 1 <= size <= limits.VHOST_NAME_BYTES_MAX:
        raise InvalidAddress(
            f"the name of a virtual host has 1 to {limits.VHOST_NAME_BYTES_MAX} bytes, this one {size}"
        )
    if not name.isprintable() or (name != DEFAULT_VHOST and any(c in "/+#$" for c in name)):
        raise InvalidAddress(f"virtual host {name!r} has '/', '+', '#', '$' or a control character in it")
    return name


def validate_queue_name(qualified: str) -> str:
    """Give the name back if a queue may be called so, in its virtual host, else raise InvalidAddress."""
    vhost, separator, name = qualified.rpartition(VHOST_SEPARATOR)
    if separator:
        validate_vhost_name(vhost)
    try:
        check_queue_name(name)
    except ValueError as error:
        raise InvalidAddress(f"queue name {name!r}: {error}") from None
    return qualified


def address_of(qualified: str) -> str:
    """Return the `$queue/...` address of a queue, with its virtual host if the name has that of the core."""
    vhost, separator, name = qualified.rpartition(VHOST_SEPARATOR)
    return f"{PREFIX}{vhost}{separator}{queue_level(name)}"


def queue_of(topic: str) -> str:
    """Return the name of the queue in a topic below `$queue/`, whether or not a queue may be called so."""
    vhost, separator, level = topic[len(PREFIX) :].partition("/")[0].rpartition(VHOST_SEPARATOR)
    return f"{vhost}{separator}{queue_of_level(level)}"


def canonical(topic: str) -> str:
    """Return an address with its queue's name written as `address_of` does; any other topic as it is."""
    if "%" not in topic or not topic.startswith(PREFIX):
        return topic
    _, separator, rest = topic[len(PREFIX) :].partition("/")
    return f"{address_of(queue_of(topic))}{separator}{rest}"


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
    level, _, rest = topic[len(PREFIX) :].partition("/")
    if "+" in level or "#" in level or local_name(level).startswith("$"):
        raise InvalidAddress(
            f"{topic!r} names no queue: '+', '#' and a '$' at the beginning of a name are %2B, %23 and %24"
        )
    name = validate_queue_name(queue_of(topic))
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
    """Return the part of a message's topic that patterns of the queue's groups look at.

    An AMQP publish to the name of the queue has none, as an MQTT publish to its address.
    """
    if topic == queue_name:
        return ""
    if not topic.startswith(PREFIX) or queue_of(topic) != local_name(queue_name):
        return topic
    return topic[len(PREFIX) :].partition("/")[2]
