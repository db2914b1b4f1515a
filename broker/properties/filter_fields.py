"""The fields of a message for filters: its properties under the names of `queue_manager.filters`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from broker.properties import amqp10, amqp10_sections, templates
from broker.properties.neutral_model import MessageProperties
from config import limits
from queue_manager.filters.field_access import APPLICATION_PREFIX, HEADER_PRIORITY, Fields
from storage.envelope import PROPERTIES_AMQP10, EnvelopeTemplate

PRIORITY_DEFAULT: Final = 4  # Jakarta Messaging 3.1, 3.4.10


def fields_of(template: EnvelopeTemplate) -> Fields:
    """Return the fields all messages of the template share."""
    if template.properties_kind == PROPERTIES_AMQP10:
        return _amqp10_fields(template)
    fields: dict[str, object] = {}
    priority: int | None = template.priority or None
    if template.properties and len(template.properties) <= limits.FILTER_PROPERTIES_BYTES_MAX:
        properties = templates.read(template)
        _add(fields, properties)
        if properties.priority is not None:
            priority = properties.priority
    fields["JMSPriority"] = fields[HEADER_PRIORITY] = PRIORITY_DEFAULT if priority is None else priority
    fields["JMSDeliveryMode"] = "PERSISTENT" if template.persistent else "NON_PERSISTENT"
    return {name: value for name, value in fields.items() if value is not None}


def _amqp10_fields(template: EnvelopeTemplate) -> Fields:
    block = template.properties
    if len(block) > limits.FILTER_PROPERTIES_BYTES_MAX:
        block = amqp10_sections.EMPTY
    priority, _ = amqp10_sections.read_block(block).header()
    if priority is None:
        priority = template.priority or None
    others: dict[str, object] = {
        "JMSDeliveryMode": "PERSISTENT" if template.persistent else "NON_PERSISTENT",
        "JMSPriority": PRIORITY_DEFAULT if priority is None else priority,
    }
    others[HEADER_PRIORITY] = others["JMSPriority"]
    return amqp10.FilterFields(block, others)


def _add(fields: dict[str, object], properties: MessageProperties) -> None:
    for key, header in properties.header_values().items():
        fields[APPLICATION_PREFIX + key] = value = _compared(header)
        if "." not in key:  # such a name is that of another section's field
            fields[key] = value
    # what has a name of its own in JMS and another in AMQP 1.0
    fields["JMSMessageID"] = fields["properties.message-id"] = _compared(properties.message_id)
    fields["JMSCorrelationID"] = fields["properties.correlation-id"] = _text(properties.correlation_id)
    fields["JMSType"] = fields["properties.subject"] = properties.subject
    fields["JMSTimestamp"] = fields["properties.creation-time"] = properties.created_at_ms
    fields["JMSXUserID"] = fields["properties.user-id"] = _text(properties.user_id)
    fields["JMSXGroupID"] = fields["properties.group-id"] = _compared(properties.group_id)
    fields["JMSXGroupSeq"] = fields["properties.group-sequence"] = _compared(properties.group_sequence)
    fields["properties.reply-to"] = properties.reply_to
    fields["properties.content-type"] = properties.content_type
    fields["properties.content-encoding"] = properties.content_encoding


def _compared(value: object) -> object:
    """Return a value as filters compare it."""
    convert = _CONVERSIONS.get(type(value))
    return value if convert is None else convert(value)


def _text(value: object) -> object:
    """Return a value as `_compared`; bytes as the text they are, None if they are none."""
    if not isinstance(value, bytes):
        return _compared(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1_000)


_CONVERSIONS: Final[dict[type, Callable[[Any], object]]] = {
    datetime: _milliseconds,
    Decimal: float,
    UUID: str,
}
