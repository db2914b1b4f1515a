"""What the properties of a PUBLISH to a queue ask for: expiry, and user properties the broker acts on."""

from __future__ import annotations

from broker.pairs import read_pairs
from protocols.mqtt import constants as c
from protocols.mqtt.properties import decode_properties, encode_properties
from queue_manager.errors import InvalidArgument
from queue_manager.options import NAMES, PLAIN, PublishOptions, read_options
from queue_manager.staging.tags import TAG_NAMES

PRIORITY_PROPERTY = "priority"
_NAMES = frozenset({*NAMES, PRIORITY_PROPERTY})


def options_of(block: bytes) -> PublishOptions:
    """The options in an MQTT 5 property block; raises InvalidArgument, also for a user property the
    broker acts on that is there twice.
    """
    if not block:
        return PLAIN
    properties = decode_properties(block, c.PUBLISH)
    values: dict[str, object] = read_pairs(properties.user_properties, "user property", _NAMES)
    priority = _priority(str(values.pop(PRIORITY_PROPERTY, "0")))
    expiry_s = properties.message_expiry_interval_s
    ttl_ms = None if expiry_s is None else expiry_s * 1000
    if not values and not priority and ttl_ms is None:
        return PLAIN
    return read_options(values, priority=priority, ttl_ms=ttl_ms)


def _priority(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > 255:
        raise InvalidArgument(f"user property priority is 0 to 255, not {text!r}")
    return int(text)


def without_stage(block: bytes) -> bytes:
    """The property block of a staged publish as its consumers are to see it."""
    properties = decode_properties(block, c.PUBLISH)
    properties.user_properties = [pair for pair in properties.user_properties if pair[0] not in TAG_NAMES]
    return encode_properties(properties, c.PUBLISH)
