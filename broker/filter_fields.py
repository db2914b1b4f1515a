"""What filters see of a message: its AMQP or MQTT properties under the names of `queue_manager.filters`."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from config import limits
from protocols.amqp091 import content
from protocols.mqtt import constants as mqtt
from protocols.mqtt.properties import decode_properties as decode_mqtt
from queue_manager.filters.fields import APPLICATION_PREFIX, HEADER_PRIORITY, PROPERTIES_PREFIX, Fields
from queue_manager.manager import QueueManager
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_MQTT, EnvelopeTemplate

PRIORITY_DEFAULT: Final = 4  # Jakarta Messaging 3.1, 3.4.10
PRIORITY_MAX: Final = 255
GROUP_HEADER: Final = "JMSXGroupID"
GROUP_SEQUENCE_HEADER: Final = "JMSXGroupSeq"
GROUP_PROPERTY: Final = "group-id"


def install(manager: QueueManager) -> None:
    """Let the queue manager's filters see messages so."""
    manager.fields.of_template = fields_of


def fields_of(template: EnvelopeTemplate) -> Fields:
    """The fields all messages of the template share."""
    fields: dict[str, object] = {}
    priority: int | None = template.priority or None
    if len(template.properties) <= limits.FILTER_PROPERTIES_BYTES_MAX:
        if template.properties_kind == PROPERTIES_AMQP:
            priority = _add_amqp(fields, template.properties, priority)
        elif template.properties_kind == PROPERTIES_MQTT:
            priority = _add_mqtt(fields, template.properties, priority)
    fields["JMSPriority"] = fields[HEADER_PRIORITY] = PRIORITY_DEFAULT if priority is None else priority
    fields["JMSDeliveryMode"] = "PERSISTENT" if template.persistent else "NON_PERSISTENT"
    return {name: value for name, value in fields.items() if value is not None}


def _add_amqp(fields: dict[str, object], raw: bytes, priority: int | None) -> int | None:
    source = content.decode_properties(raw)
    headers = source.headers or {}
    for name, value in headers.items():
        fields[name] = fields[APPLICATION_PREFIX + name] = _value(value)
    _add_properties(
        fields,
        message_id=source.message_id,
        correlation_id=source.correlation_id,
        subject=source.message_type,
        timestamp_ms=_value(source.timestamp),
        user_id=source.user_id,
        group_id=_value(headers.get(GROUP_HEADER)),
        group_sequence=_value(headers.get(GROUP_SEQUENCE_HEADER)),
    )
    fields[PROPERTIES_PREFIX + "reply-to"] = source.reply_to
    fields[PROPERTIES_PREFIX + "content-type"] = source.content_type
    fields[PROPERTIES_PREFIX + "content-encoding"] = source.content_encoding
    return priority if source.priority is None else int(source.priority)


def _add_mqtt(fields: dict[str, object], block: bytes, priority: int | None) -> int | None:
    source = decode_mqtt(block, mqtt.PUBLISH)
    first: dict[str, str] = {}
    for name, text in source.user_properties:
        first.setdefault(name, text)
    for name, text in first.items():
        fields[name] = fields[APPLICATION_PREFIX + name] = text
    _add_properties(
        fields,
        message_id=None,
        correlation_id=_text(source.correlation_data),
        subject=first.get("subject", first.get("type")),
        timestamp_ms=None,
        user_id=None,
        group_id=first.get(GROUP_PROPERTY),
        group_sequence=None,
    )
    fields[PROPERTIES_PREFIX + "reply-to"] = source.response_topic
    fields[PROPERTIES_PREFIX + "content-type"] = source.content_type
    text = first.get("priority", "")
    if text.isascii() and text.isdigit() and int(text) <= PRIORITY_MAX:
        return int(text)
    return priority


def _add_properties(
    fields: dict[str, object],
    *,
    message_id: str | None,
    correlation_id: str | None,
    subject: str | None,
    timestamp_ms: object,
    user_id: str | None,
    group_id: object,
    group_sequence: object,
) -> None:
    """What has a name of its own in JMS and another in AMQP 1.0."""
    for jms_name, name, value in (
        ("JMSMessageID", "message-id", message_id),
        ("JMSCorrelationID", "correlation-id", correlation_id),
        ("JMSType", "subject", subject),
        ("JMSTimestamp", "creation-time", timestamp_ms),
        ("JMSXUserID", "user-id", user_id),
        ("JMSXGroupID", "group-id", group_id),
        ("JMSXGroupSeq", "group-sequence", group_sequence),
    ):
        fields[jms_name] = fields[PROPERTIES_PREFIX + name] = value


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _value(value: Any) -> object:
    """A header's value as filters compare it."""
    if isinstance(value, datetime):
        return int(value.timestamp() * 1_000)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytearray):
        return bytes(value)
    return value
