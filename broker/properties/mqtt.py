"""Properties as an MQTT 5 PUBLISH property block (section 2.2.2), without its length.

What has no property of its own there is a user property named as AMQP names it: `content-encoding`,
`priority`, `timestamp` (s), `type`, `user-id`, `app-id`, `group-id`, `group-sequence`; the message ID as
`x-message-id`, since deliveries have a `message-id` of their own. Values that are no texts become texts,
tables and lists JSON.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from broker.properties.neutral_model import HeaderValue, Identifier, MessageProperties
from broker.properties.single import single_values
from protocols.errors import ProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt.properties import Properties, decode_properties, encode_properties, expiry_interval_at
from protocols.mqtt.topic_filters import validate_topic_name
from queue_manager.errors import InvalidArgument
from queue_manager.options import NAMES, PLAIN, PublishOptions, read_options
from queue_manager.stage_tags import TAG_NAMES

TEXT_BYTES_MAX: Final = 65_535
EXPIRY_S_MAX: Final = 0xFFFFFFFF
PRIORITY_MAX: Final = 255
PRIORITY_PROPERTY: Final = "priority"
GROUP_PROPERTY: Final = "group-id"
GROUP_SEQUENCE_PROPERTY: Final = "group-sequence"
SUBJECT_PROPERTIES: Final = ("subject", "type")

ENCODED_TYPE: Final = "message/vnd.rabbitmq.amqp"
"""The content type of a payload that is sections of AMQP 1.0."""

DELIVERY_PROPERTIES: Final = (
    "message-id", "group-id", "queue", "offset", "attempts", "original-topic", "x-stream-offset",
    "x-stream-timestamp", "x-stream-gap", "x-work-group", "x-work-committed-offset", "x-work-acked",
)  # fmt: skip
"""User properties of deliveries that only the broker sets."""
ORIGINAL_PREFIX: Final = "x-original-"

_MAY_SHADOW: Final = re.compile(
    b"|".join(
        b"\x26" + len(name).to_bytes(2, "big") + re.escape(name.encode()) for name in DELIVERY_PROPERTIES
    ),
    re.DOTALL,
)
_OPTION_NAMES: Final = frozenset({*NAMES, PRIORITY_PROPERTY})
_IMPLIED: Final = frozenset(("group_id", "priority", "subject"))


def read(block: bytes, **known: Any) -> MessageProperties:
    """Read a property block that was validated. `known` is what it does not say: the topic, the QoS."""
    source = decode_properties(block, c.PUBLISH)
    expiry_s = source.message_expiry_interval_s
    if source.user_properties:
        first = dict(reversed(source.user_properties))
        text = first.get(PRIORITY_PROPERTY, "")
        known |= {
            "headers": source.user_properties,
            "implied": _IMPLIED,
            "group_id": first.get(GROUP_PROPERTY),
            "subject": next((first[name] for name in SUBJECT_PROPERTIES if name in first), None),
            "priority": int(text) if _is_number(text) and int(text) <= PRIORITY_MAX else None,
        }
    return MessageProperties(
        content_type=source.content_type,
        payload_format=source.payload_format_indicator,
        correlation_id=source.correlation_data,
        reply_to=source.response_topic,
        response_topic=source.response_topic,
        ttl_ms=None if expiry_s is None else expiry_s * 1000,
        **known,
    )


def write(properties: MessageProperties) -> bytes:
    """Return the property block of a message, whatever its properties were read from."""
    named: list[tuple[str, HeaderValue]] = []
    response_topic = properties.reply_to or None
    if properties.response_topic is not None:
        response_topic = properties.response_topic or None
    if response_topic is None or not _is_topic(response_topic):
        response_topic = None
        if properties.reply_to:
            named.append(("reply-to", properties.reply_to))
    expiry_s = None if properties.ttl_ms is None else -(-properties.ttl_ms // 1000)
    if expiry_s is not None and expiry_s > EXPIRY_S_MAX:
        named.append(("expiration", properties.ttl_ms))
        expiry_s = None
    named += properties.headers
    if properties.deaths:
        named.append(("x-death", properties.deaths))
    seconds = None if properties.created_at_ms is None else properties.created_at_ms // 1000
    implied = properties.implied
    for name, field, value in (
        ("content-encoding", "", properties.content_encoding),
        (PRIORITY_PROPERTY, "priority", properties.priority),
        ("x-message-id", "", _identifier(properties.message_id)),
        ("timestamp", "", seconds),
        ("type", "subject", properties.subject),
        ("user-id", "", properties.user_id),
        ("app-id", "", None if properties.app_id == properties.group_id else properties.app_id),
        (GROUP_PROPERTY, "group_id", properties.group_id),
        (GROUP_SEQUENCE_PROPERTY, "group_sequence", properties.group_sequence),
    ):
        if value is not None and field not in implied:
            named.append((name, value))
    cleaned = [(_clean(name), _clean(as_text(value))) for name, value in named]
    result = Properties(
        payload_format_indicator=properties.payload_format,
        message_expiry_interval_s=expiry_s,
        content_type=ENCODED_TYPE if properties.is_encoded else _content_type(properties.content_type),
        response_topic=response_topic,
        correlation_data=_correlation_data(properties.correlation_id),
        user_properties=[(name, text) for name, text in cleaned if _fits(name) and _fits(text)],
    )
    return encode_properties(result, c.PUBLISH)


def with_expiry(block: bytes, left_ms: int) -> bytes:
    """Return the block with its message expiry interval, if it has one, at what is left [MQTT-3.3.2-6]."""
    position = expiry_interval_at(block)
    if not position:
        return block
    # it may be delivered, so it has not expired: at least a second
    left_s = min(max(1, -(-left_ms // 1000)), EXPIRY_S_MAX)
    return block[:position] + left_s.to_bytes(4, "big") + block[position + 4 :]


def without_shadows(block: bytes) -> bytes:
    """Return the block of a delivery: user properties of the publisher that are called as one of
    `DELIVERY_PROPERTIES` move under `x-original-` and their name.
    """
    if not _MAY_SHADOW.search(block):
        return block
    properties = decode_properties(block, c.PUBLISH)
    named = [
        (ORIGINAL_PREFIX + name if name in DELIVERY_PROPERTIES else name, value)
        for name, value in properties.user_properties
    ]
    return encode_properties(properties.copy(user_properties=named), c.PUBLISH)


def options_of(block: bytes) -> PublishOptions:
    """Return what a publish with these properties asks for; raises InvalidArgument, also for a user property
    the broker acts on that is there twice.
    """
    if not block:
        return PLAIN
    properties = decode_properties(block, c.PUBLISH)
    values: dict[str, object] = single_values(properties.user_properties, "user property", _OPTION_NAMES)
    priority = _priority(str(values.pop(PRIORITY_PROPERTY, "0")))
    expiry_s = properties.message_expiry_interval_s
    ttl_ms = None if expiry_s is None else expiry_s * 1000
    if not values and not priority and ttl_ms is None:
        return PLAIN
    return read_options(values, priority=priority, ttl_ms=ttl_ms)


def expiry_ms(block: bytes) -> int | None:
    """Return the message expiry interval of a publish."""
    interval_s = decode_properties(block, c.PUBLISH).message_expiry_interval_s if block else None
    return None if interval_s is None else interval_s * 1000


def without_stage(block: bytes) -> bytes:
    """Return the property block of a staged publish as its consumers are to see it."""
    properties = decode_properties(block, c.PUBLISH)
    left = [(name, text) for name, text in properties.user_properties if name not in TAG_NAMES]
    return encode_properties(properties.copy(user_properties=left), c.PUBLISH)


def as_text(value: Any) -> str:
    """Return a header value as the text of a user property."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal | UUID):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, datetime):
        return str(int(value.timestamp()))
    return json.dumps(value, default=as_text, ensure_ascii=False, separators=(",", ":"))


def _priority(text: str) -> int:
    if not _is_number(text) or int(text) > PRIORITY_MAX:
        raise InvalidArgument(f"user property priority is 0 to 255, not {text!r}")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19


def _content_type(text: str | None) -> str | None:
    return _clean(text) if text and _fits(text) else None


def _correlation_data(value: Identifier | None) -> bytes | None:
    if value is None:
        return None
    data = value if isinstance(value, bytes) else str(_identifier(value)).encode()
    return data if len(data) <= TEXT_BYTES_MAX else None


def _identifier(value: Identifier | None) -> Identifier | None:
    return value.urn if isinstance(value, UUID) else value


def _is_topic(text: str) -> bool:
    try:
        validate_topic_name(text)
    except ProtocolError:
        return False
    return True


def _fits(text: str) -> bool:
    return len(text.encode()) <= TEXT_BYTES_MAX


def _clean(text: str) -> str:
    """Take U+0000 away, which may not stand in an MQTT string [MQTT-1.5.4-2]."""
    return text.replace("\0", "\ufffd")
