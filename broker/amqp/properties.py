"""A message's properties as an AMQP content header, whatever protocol they came by.

MQTT 5 -> AMQP: content type, response topic (reply-to), correlation data (correlation-id where it is text
of at most 255 bytes, else header `x-correlation-data`), expiry (seconds -> expiration in ms), payload
format (header `x-payload-format`), user properties (string headers, order and duplicates kept), QoS (delivery
mode 2 above QoS 0), topic (routing key; one above 255 bytes is cut, and whole in header `x-topic`).
"""

from __future__ import annotations

from typing import Any, Final

from broker.properties import Translations, translations_of
from protocols.amqp091.content import Properties, append_headers, encode_properties
from protocols.mqtt import constants as mqtt
from protocols.mqtt.properties import decode_properties as decode_mqtt
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_MQTT, EnvelopeTemplate

PERSISTENT: Final = b"\x10\x00\x02"  # flags: delivery-mode alone; 2
NONE: Final = b"\x00\x00"
SHORT_STRING_BYTES_MAX: Final = 255
CORRELATION_HEADER: Final = "x-correlation-data"
PAYLOAD_FORMAT_HEADER: Final = "x-payload-format"
TOPIC_HEADER: Final = "x-topic"


def of_template(template: EnvelopeTemplate) -> bytes:
    """The raw content header (flags and list) of messages of this template; made once."""
    if template.properties_kind == PROPERTIES_AMQP:
        return template.properties
    translations: Translations = translations_of(template)
    if translations.amqp is None:
        if template.properties_kind == PROPERTIES_MQTT:
            translations.amqp = from_mqtt(template.properties, template.persistent)
        else:
            translations.amqp = PERSISTENT if template.persistent else NONE
        if routing_key(template) != template.topic:
            translations.amqp = append_headers(translations.amqp, [(TOPIC_HEADER, template.topic)])
    return translations.amqp


def routing_key(template: EnvelopeTemplate) -> str:
    """The topic as far as a short string holds it."""
    return template.topic.encode()[:SHORT_STRING_BYTES_MAX].decode(errors="ignore")


def from_mqtt(block: bytes, persistent: bool) -> bytes:
    """Translate an MQTT 5 PUBLISH property block."""
    source = decode_mqtt(block, mqtt.PUBLISH)
    headers: list[tuple[str, Any]] = list(source.user_properties)
    result = Properties()
    result.delivery_mode = 2 if persistent else 1
    result.content_type = _short(source.content_type, "x-content-type", headers)
    result.reply_to = _short(source.response_topic, "x-response-topic", headers)
    if source.message_expiry_interval_s is not None:
        result.expiration = str(source.message_expiry_interval_s * 1000)
    if source.correlation_data is not None:
        text = _as_text(source.correlation_data)
        if text is not None:
            result.correlation_id = text
        else:
            headers.append((CORRELATION_HEADER, source.correlation_data))
    if source.payload_format_indicator is not None:
        headers.append((PAYLOAD_FORMAT_HEADER, source.payload_format_indicator))
    kept = [(name, value) for name, value in headers if len(name.encode()) <= SHORT_STRING_BYTES_MAX]
    return encode_properties(result, kept if kept else None)


def _as_text(data: bytes) -> str | None:
    if not data or len(data) > SHORT_STRING_BYTES_MAX:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _short(text: str | None, header: str, headers: list[tuple[str, Any]]) -> str | None:
    """Text for a short string field; longer text goes into a header."""
    if text is not None and len(text.encode()) > SHORT_STRING_BYTES_MAX:
        headers.append((header, text))
        return None
    return text
