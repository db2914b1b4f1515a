"""Topic names and topic filters, section 4.7, and shared subscriptions, section 4.8.2."""

from config import limits
from protocols.errors import ProtocolError
from protocols.mqtt import constants as c


def validate_topic_name(topic: str) -> None:
    """Raise ProtocolError 0x90 unless `topic` may be published to.

    At least one character [MQTT-4.7.3-1], no wildcard [MQTT-3.3.2-2], no U+0000 [MQTT-4.7.3-2], bounded.
    """
    if not topic:
        raise ProtocolError(c.TOPIC_NAME_INVALID, "topic name is empty")
    if "+" in topic or "#" in topic:
        raise ProtocolError(c.TOPIC_NAME_INVALID, "wildcard in topic name")
    _validate_bounds(topic, c.TOPIC_NAME_INVALID)


def validate_topic_filter(topic_filter: str) -> None:
    """Raise ProtocolError 0x8F unless `topic_filter` may be subscribed to.

    `#` alone in the last level [MQTT-4.7.1-1], `+` alone in its level [MQTT-4.7.1-2]; of a shared one both
    name and filter are checked [MQTT-4.8.2-1], [MQTT-4.8.2-2].
    """
    if topic_filter.startswith(c.SHARED_PREFIX) or topic_filter == "$share":
        _, topic_filter = split_shared(topic_filter)
    if not topic_filter:
        raise ProtocolError(c.TOPIC_FILTER_INVALID, "topic filter is empty")
    _validate_bounds(topic_filter, c.TOPIC_FILTER_INVALID)
    if "#" in topic_filter and not (
        topic_filter.index("#") == len(topic_filter) - 1 and topic_filter[-2:] in ("#", "/#")
    ):
        raise ProtocolError(c.TOPIC_FILTER_INVALID, "'#' must be alone in the last level")
    if "+" in topic_filter and any("+" in level and level != "+" for level in topic_filter.split("/")):
        raise ProtocolError(c.TOPIC_FILTER_INVALID, "'+' must be alone in its level")


def split_shared(topic_filter: str) -> tuple[str, str]:
    """Share name and filter of `$share/<name>/<filter>`, and ("", filter) for any other filter.

    Raises ProtocolError 0x8F for an empty name, a wildcard in it [MQTT-4.8.2-1], or no filter behind it
    [MQTT-4.8.2-2]. The filter's own rules are `validate_topic_filter`'s.
    """
    if not topic_filter.startswith("$share"):
        return "", topic_filter
    rest = topic_filter[len("$share") :]
    if rest and rest[0] != "/":
        return "", topic_filter
    name, _, inner = rest[1:].partition("/")
    if not name or not inner:
        raise ProtocolError(c.TOPIC_FILTER_INVALID, "shared subscription wants $share/<name>/<filter>")
    if "+" in name or "#" in name:
        raise ProtocolError(c.TOPIC_FILTER_INVALID, "wildcard in share name")
    return name, inner


def matches(topic_filter: str, topic: str) -> bool:
    """Return whether a topic name falls under a filter; both valid, the filter not shared.

    `#` also matches the level above it; a leading wildcard does not match names that begin with `$`
    [MQTT-4.7.2-1].
    """
    if topic_filter == topic:
        return True
    if topic[:1] == "$" and topic_filter[:1] in ("+", "#"):
        return False
    filter_levels = topic_filter.split("/")
    levels = topic.split("/")
    for depth, wanted in enumerate(filter_levels):
        if wanted == "#":
            return True
        if depth == len(levels) or (wanted != "+" and wanted != levels[depth]):
            return False
    return len(filter_levels) == len(levels)


def _validate_bounds(topic: str, reason_code: int) -> None:
    if "\0" in topic:
        raise ProtocolError(reason_code, "topic holds U+0000")
    if len(topic) > limits.MQTT_TOPIC_BYTES_MAX // 4 and len(topic.encode()) > limits.MQTT_TOPIC_BYTES_MAX:
        raise ProtocolError(reason_code, f"topic longer than {limits.MQTT_TOPIC_BYTES_MAX} bytes")
    if topic.count("/") >= limits.MQTT_TOPIC_LEVELS_MAX:
        raise ProtocolError(reason_code, f"topic deeper than {limits.MQTT_TOPIC_LEVELS_MAX} levels")


def overlap(topic_filter: str, other: str) -> bool:
    """Return whether there is a topic that both filters match, those that begin with `$` apart."""
    levels, others = topic_filter.split("/"), other.split("/")
    for level, other_level in zip(levels, others, strict=False):
        if "#" in (level, other_level):
            return True
        if level != other_level and "+" not in (level, other_level):
            return False
    if len(levels) == len(others):
        return True
    longer, shared = (levels, len(others)) if len(levels) > len(others) else (others, len(levels))
    return longer[shared] == "#" and len(longer) == shared + 1
