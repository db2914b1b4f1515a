"""A message's properties as an MQTT 5 property block, whatever protocol they came by.

AMQP 0.9.1 -> MQTT 5: content-type, reply-to (response topic), correlation-id (correlation data), expiration
(ms -> expiry in s, rounded up), headers (user properties, text; tables and lists as JSON), the other basic
properties as user properties named as AMQP names them (`priority`, `timestamp` in s, `type`, `user-id`,
`app-id`, `content-encoding`; message-id as `x-message-id`: deliveries have a `message-id` of their own).
"""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from broker.properties import translations_of
from protocols.amqp091.content import decode_headers
from protocols.amqp091.content import decode_properties as decode_amqp
from protocols.errors import ProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt.properties import Properties, encode_properties, expiry_interval_at
from protocols.mqtt.topics import validate_topic_name
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_MQTT, EnvelopeTemplate, expires_at_ms

TEXT_BYTES_MAX: Final = 65_535
EXPIRY_S_MAX: Final = 0xFFFFFFFF

_AS_USER_PROPERTIES: Final = (
    ("content_encoding", "content-encoding"),
    ("priority", "priority"),
    ("message_id", "x-message-id"),
    ("timestamp", "timestamp"),
    ("message_type", "type"),
    ("user_id", "user-id"),
    ("app_id", "app-id"),
)


def of_template(template: EnvelopeTemplate) -> bytes:
    """The property block (without length) of messages of this template; made once."""
    if template.properties_kind == PROPERTIES_MQTT:
        return template.properties
    if template.properties_kind != PROPERTIES_AMQP:
        return b""
    translations = translations_of(template)
    if translations.mqtt is None:
        translations.mqtt = from_amqp(template.properties)
    return translations.mqtt


def with_time_left(template: EnvelopeTemplate, received_at_ms: int, now_ms: int) -> bytes:
    """As `of_template`, with the message expiry interval less the time the message waited [MQTT-3.3.2-6]."""
    block = of_template(template)
    if not template.expires_at_ms:
        return block
    position = expiry_interval_at(block)
    if not position:
        return block
    left_ms = expires_at_ms(template, received_at_ms) - now_ms
    # it may be delivered, so it has not expired: at least a second
    left_s = min(max(1, -(-left_ms // 1000)), EXPIRY_S_MAX)
    return block[:position] + left_s.to_bytes(4, "big") + block[position + 4 :]


def from_amqp(raw: bytes) -> bytes:
    """Translate a raw AMQP content header (flags and list)."""
    source = decode_amqp(raw)
    result = Properties()
    pairs: list[tuple[str, str]] = []
    if source.content_type:
        result.content_type = _clean(source.content_type)
    if source.correlation_id is not None:
        result.correlation_data = source.correlation_id.encode()
    if source.reply_to:
        if _is_topic(source.reply_to):
            result.response_topic = source.reply_to
        else:
            pairs.append(("reply-to", source.reply_to))
    if source.expiration:
        if (
            source.expiration.isascii()
            and source.expiration.isdigit()
            and int(source.expiration) <= EXPIRY_S_MAX * 1000
        ):
            result.message_expiry_interval_s = -(-int(source.expiration) // 1000)
        else:
            pairs.append(("expiration", source.expiration))
    pairs += [(name, as_text(value)) for name, value in decode_headers(raw)]
    for attribute, name in _AS_USER_PROPERTIES:
        value = getattr(source, attribute)
        if value is not None:
            pairs.append((name, as_text(value)))
    cleaned = [(_clean(name), _clean(text)) for name, text in pairs]
    result.user_properties = [pair for pair in cleaned if len(pair[1].encode()) <= TEXT_BYTES_MAX]
    return encode_properties(result, c.PUBLISH)


def as_text(value: Any) -> str:
    """A header value as the text of a user property."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, datetime):
        return str(int(value.timestamp()))
    return json.dumps(value, default=as_text, ensure_ascii=False, separators=(",", ":"))


def _is_topic(text: str) -> bool:
    try:
        validate_topic_name(text)
    except ProtocolError:
        return False
    return True


def _clean(text: str) -> str:
    """U+0000 may not stand in an MQTT string [MQTT-1.5.4-2]."""
    return text.replace("\0", "\ufffd")
