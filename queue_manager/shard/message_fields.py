"""The fields of messages for filters: decoded once per template, completed by each message's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from config import limits
from queue_manager.filters import MessageFilter
from queue_manager.filters.field_access import DELIVERY_COUNT, Fields
from queue_manager.model import Message
from storage.envelope import PROPERTIES_AMQP, EnvelopeTemplate

FieldsOf = Callable[[EnvelopeTemplate], Fields]
"""Gives the fields (`filters.field_access`) that all messages of a template share; the front-ends
know how properties look."""

_MESSAGE_ID: Final = ("JMSMessageID", "properties.message-id")
_TIMESTAMP: Final = ("JMSTimestamp", "properties.creation-time")
# where a publisher set no such property they are the message's own
OF_THE_MESSAGE: Final = frozenset((*_MESSAGE_ID, *_TIMESTAMP, DELIVERY_COUNT))


def no_fields(template: EnvelopeTemplate) -> Fields:
    """Return no fields, for queue managers without a front-end."""
    return {}


class MessageFields:
    """The fields of messages, those of the templates seen last kept."""

    __slots__ = ("_bytes", "_kept", "_of_template")

    def __init__(self) -> None:
        self._of_template: FieldsOf = no_fields
        self._kept: dict[EnvelopeTemplate, Fields] = {}
        self._bytes = 0

    def read_by(self, of_template: FieldsOf) -> None:
        """Have properties read so."""
        self._of_template = of_template

    def shared(self, template: EnvelopeTemplate) -> Fields:
        """Return the fields all messages of the template have in common."""
        fields = self._kept.get(template)
        if fields is None:
            size = len(template.properties)
            if (
                len(self._kept) >= limits.FILTER_FIELDS_KEPT_MAX
                or self._bytes + size > limits.FILTER_FIELDS_KEPT_BYTES_MAX
            ):
                self._kept.clear()
                self._bytes = 0
            fields = self._kept[template] = self._of_template(template)
            self._bytes += size
        return fields

    def of(self, queue_title: str, message: Message, delivery_count: int) -> Fields:
        """Return all fields of one message of that queue at its `delivery_count`-th delivery (from 1)."""
        template = message.template
        fields = {**self.shared(template), DELIVERY_COUNT: delivery_count}
        if template.properties_kind != PROPERTIES_AMQP:
            for name in _MESSAGE_ID:
                fields.setdefault(name, f"{queue_title}:{message.offset}")
            for name in _TIMESTAMP:
                fields.setdefault(name, message.received_at_ms)
        return fields


def differs_by_message(condition: MessageFilter) -> bool:
    """Return whether messages of one template may get different answers."""
    return not condition.names.isdisjoint(OF_THE_MESSAGE)
