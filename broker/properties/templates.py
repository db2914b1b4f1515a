"""The properties of stored messages as each protocol wants them: translated once per template.

A message that leaves by the protocol it came by is not translated at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from broker.properties import amqp, amqp10, mqtt
from broker.properties.amqp10_sections import (
    EMPTY,
    FORM_DATA,
    Delivery,
    are_body_sections,
    data_framing,
    read_block,
)
from broker.properties.neutral_model import HeaderMap, MessageProperties
from config import limits
from queue_manager.errors import InvalidArgument
from storage.envelope import (
    PROPERTIES_AMQP,
    PROPERTIES_AMQP10,
    PROPERTIES_MQTT,
    PROPERTIES_NONE,
    RELATIVE_EXPIRY_MAX,
    EnvelopeTemplate,
    expires_at_ms,
)

_MQTT_DELIVERY: Final = "block of MQTT deliveries"
_PROPERTIES_SECTION: Final = b"\x00\x53\x73"
_AMQP10_DELIVERY: Final = "AMQP 1.0 delivery"
_AMQP10_AS_DATA: Final = "AMQP 1.0 delivery of data"


def made_of(template: EnvelopeTemplate) -> dict[object, Any]:
    """Return what was made of a template's properties, such as blocks by their kind, by names of it."""
    made = template.context
    if made is None:
        made = template.context = {}
    assert isinstance(made, dict)
    return made


def of_mqtt(topic: str, properties: bytes) -> EnvelopeTemplate:
    """Return what MQTT publishes to a topic with these properties have in common where they are kept."""
    kind = PROPERTIES_MQTT if properties else PROPERTIES_NONE
    ttl_ms = mqtt.expiry_ms(properties)
    # an interval of 0 has passed once a message has to wait; one of decades never does
    expires_at_ms = 0 if ttl_ms is None or ttl_ms >= RELATIVE_EXPIRY_MAX else max(1, ttl_ms)
    return EnvelopeTemplate(topic, kind, properties, persistent=True, expires_at_ms=expires_at_ms)


def read(template: EnvelopeTemplate) -> MessageProperties:
    """Read what the publisher of messages of this template said of them."""
    topic, persistent = template.topic, template.persistent
    if template.properties_kind == PROPERTIES_AMQP:
        return amqp.read(template.properties, topic=topic)
    if template.properties_kind == PROPERTIES_MQTT:
        return mqtt.read(template.properties, topic=topic, persistent=persistent)
    if template.properties_kind == PROPERTIES_AMQP10:
        return amqp10.read(template.properties, topic=topic, persistent=persistent or None)
    return MessageProperties(topic=topic, persistent=persistent or None)


def headers_of(template: EnvelopeTemplate) -> HeaderMap:
    """Return the headers of messages of this template, or the user properties, by name, as exchanges want
    them.
    """
    return read(template).routed()


def copies_of(template: EnvelopeTemplate) -> list[str]:
    """Return the further routing keys that a message was published with; blind ones are gone."""
    raw = template.properties
    try:
        if template.properties_kind == PROPERTIES_AMQP10:
            return amqp10.copy_keys(raw)
        if template.properties_kind == PROPERTIES_AMQP and amqp.may_copy(raw):
            return amqp.copy_keys(raw)
        return []
    except InvalidArgument:  # it came by a way that knows no copies
        return []


def annotated(template: EnvelopeTemplate, annotations: Mapping[str, Any]) -> EnvelopeTemplate:
    """Return the template of a message that a consumer of AMQP 1.0 annotated: headers, where it came by
    another protocol.

    Headers are typed, which user properties of MQTT are not: what came by MQTT has those of AMQP 0.9.1 then.
    """
    kind = template.properties_kind
    if kind in (PROPERTIES_AMQP, PROPERTIES_MQTT):
        headers = [(name, amqp10.neutral(value)) for name, value in annotations.items()]
        raw = amqp.with_headers(as_amqp(template), headers)
        kind = PROPERTIES_AMQP
    else:
        raw = read_block(template.properties or EMPTY).annotated(annotations.items())
        kind = PROPERTIES_AMQP10
    if len(raw) > limits.ANNOTATED_BYTES_MAX:
        return template
    return EnvelopeTemplate(
        template.topic,
        kind,
        raw,
        priority=template.priority,
        visible_at_ms=template.visible_at_ms,
        expires_at_ms=template.expires_at_ms,
        persistent=template.persistent,
        shared=template.shared,
        exchange=template.exchange,
    )


def as_amqp(template: EnvelopeTemplate) -> bytes:
    """Return the raw AMQP 0.9.1 content header (flags and list) of messages of this template."""
    if template.properties_kind == PROPERTIES_AMQP:
        return template.properties
    return _translated(template, PROPERTIES_AMQP)


def as_mqtt(template: EnvelopeTemplate) -> bytes:
    """Return the MQTT 5 property block (without length) of messages of this template."""
    if template.properties_kind == PROPERTIES_MQTT:
        return template.properties
    return _translated(template, PROPERTIES_MQTT)


def as_amqp10(template: EnvelopeTemplate, body: bytes) -> Delivery:
    """Return how a message of this template with this body looks to consumers of AMQP 1.0.

    One object for all messages of a template, but where 0.9.1 says that bodies are sections of AMQP 1.0:
    those that are not are data.
    """
    made = template.context or made_of(template)
    known: Delivery | None = made.get(_AMQP10_DELIVERY)
    if known is None:
        known = made[_AMQP10_DELIVERY] = _amqp10_delivery(template)
    if known.is_checked or are_body_sections(body):
        return known
    known = made.get(_AMQP10_AS_DATA)
    if known is None:
        properties = read(template)
        properties.is_encoded = False
        known = made[_AMQP10_AS_DATA] = amqp10.write(properties, template.exchange)
    return known


def first_amqp10(template: EnvelopeTemplate, body: bytes) -> bytes:
    """Return a message that a consumer of AMQP 1.0 is given for the first time.

    What came by AMQP 1.0 with properties and data and nothing before them is put together without a look at
    them: each of these may have properties of its own.
    """
    block = template.properties
    if template.properties_kind == PROPERTIES_AMQP10 and block.startswith(_PROPERTIES_SECTION, 5):
        size = len(block) - 5
        # of sections below 256 bytes all but the first byte of the size are 0
        told = block[1] if size < 256 else int.from_bytes(block[1:5], "little")
        if told == size and block[0] == FORM_DATA:
            start = _amqp10_start(template.topic, template.exchange, template.persistent)
            return b"".join((start, block[5:], data_framing(len(body)), body))
    delivery = as_amqp10(template, body)
    content = delivery.framed(body) if delivery.is_framed else body
    return b"".join((delivery.before(len(body)), content, delivery.after))


@lru_cache(maxsize=256)
def _amqp10_start(topic: str, exchange: str, persistent: bool) -> bytes:
    """Return what goes before the properties of what was published with these and without annotations."""
    whole = amqp10.as_published(EMPTY, topic, exchange, persistent=persistent).before(0)
    return whole[: -len(data_framing(0))]


def _amqp10_delivery(template: EnvelopeTemplate) -> Delivery:
    if template.properties_kind != PROPERTIES_AMQP10:
        return amqp10.write(read(template), template.exchange)
    return amqp10.as_published(
        template.properties, template.topic, template.exchange, persistent=template.persistent
    )


def as_mqtt_at(template: EnvelopeTemplate, received_at_ms: int, now_ms: int) -> bytes:
    """Return the block as `as_mqtt`, with the message expiry interval less the time the message waited
    [MQTT-3.3.2-6].
    """
    block = as_mqtt(template) if template.properties else b""
    if not template.expires_at_ms:
        return block
    return mqtt.with_expiry(block, expires_at_ms(template, received_at_ms) - now_ms)


def as_mqtt_delivery(template: EnvelopeTemplate, received_at_ms: int, now_ms: int) -> bytes:
    """Return the block as `as_mqtt`, with the message expiry interval less the time the message waited
    [MQTT-3.3.2-6], and without user properties that could be taken for those that the broker adds.
    """
    block = template.properties
    if block:
        made = template.context or made_of(template)
        known: bytes | None = made.get(_MQTT_DELIVERY)
        if known is None:
            known = made[_MQTT_DELIVERY] = mqtt.without_shadows(as_mqtt(template))
        block = known
    if not template.expires_at_ms:
        return block
    return mqtt.with_expiry(block, expires_at_ms(template, received_at_ms) - now_ms)


def _translated(template: EnvelopeTemplate, kind: int) -> bytes:
    made = template.context or made_of(template)
    block: bytes | None = made.get(kind)
    if block is None:
        write = amqp.write if kind == PROPERTIES_AMQP else mqtt.write
        block = made[kind] = write(read(template))
    return block
