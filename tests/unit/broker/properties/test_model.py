"""The neutral properties: whatever one protocol says is read with its type, and every other can say it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.properties import amqp, mqtt
from broker.properties.filter_fields import fields_of
from broker.properties.message_groups import group_key
from broker.properties.neutral_model import MessageProperties
from broker.properties.templates import as_amqp, as_mqtt, read
from protocols.amqp091 import content
from protocols.mqtt import constants as c
from protocols.mqtt.properties import Properties as MqttProperties
from protocols.mqtt.properties import decode_properties, encode_properties
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_MQTT, EnvelopeTemplate

NAME = UUID("12345678-1234-5678-1234-567812345678")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def properties(**values: Any) -> MessageProperties:
    made = MessageProperties()
    for name, value in values.items():
        assert hasattr(made, name)
        setattr(made, name, value)
    return made


def of_amqp(headers: list[tuple[str, Any]], **fields: Any) -> EnvelopeTemplate:
    raw = content.encode_properties(content.Properties(**fields), headers)
    return EnvelopeTemplate("q", PROPERTIES_AMQP, raw)


def over_mqtt(made: MessageProperties) -> MqttProperties:
    return decode_properties(mqtt.write(made), c.PUBLISH)


def test_amqp_headers_are_read_with_their_types_order_and_duplicates() -> None:
    headers: list[tuple[str, Any]] = [
        ("b", True), ("i", 5), ("f", 1.5), ("d", Decimal("2.5")), ("s", "x"), ("t", AT), ("n", None),
        ("raw", b"\xff"), ("l", [1, {"k": b"\xff"}]), ("i", 6),
    ]  # fmt: skip
    template = of_amqp(headers, priority=3)
    found = read(template)
    assert list(found.headers) == headers
    assert [type(value) for _, value in found.headers] == [type(value) for _, value in headers]
    assert found.header_values()["i"] == 6  # a table has one value for a name: the last


def test_of_user_properties_of_one_name_the_first_counts() -> None:
    block = encode_properties(MqttProperties(user_properties=[("a", "1"), ("b", "2"), ("a", "3")]), c.PUBLISH)
    found = read(EnvelopeTemplate("t", PROPERTIES_MQTT, block, persistent=True))
    assert list(found.headers) == [("a", "1"), ("b", "2"), ("a", "3")]
    assert found.header_values() == {"a": "1", "b": "2"}
    assert found.persistent is True


def test_a_field_that_a_user_property_stands_for_is_not_written_beside_it() -> None:
    pairs = [("priority", "7"), ("type", "order"), ("group-id", "g")]
    block = encode_properties(MqttProperties(user_properties=pairs), c.PUBLISH)
    found = read(EnvelopeTemplate("t", PROPERTIES_MQTT, block))
    assert (found.priority, found.subject, found.group_id) == (7, "order", "g")
    raw = as_amqp(EnvelopeTemplate("t", PROPERTIES_MQTT, block))
    assert content.decode_headers(raw) == pairs
    assert content.decode_properties(raw).priority is None
    assert content.decode_properties(raw).message_type is None
    assert decode_properties(mqtt.write(found), c.PUBLISH).user_properties == pairs


def test_what_only_other_protocols_have_becomes_amqp_headers_and_texts() -> None:
    made = properties(
        message_id=NAME, correlation_id=5, user_id=b"\xff", subject="order", priority=9, group_id="g",
        group_sequence=3, created_at_ms=1_767_323_045_000, ttl_ms=1_500, app_id="x" * 256,
        headers=[("id", NAME), ("big", 1 << 63), ("in", [NAME, {"k": -1 << 64}])],
    )  # fmt: skip
    raw = amqp.write(made)
    content.check_properties(raw)
    found = content.decode_properties(raw)
    assert (found.message_id, found.correlation_id, found.message_type) == (NAME.urn, "5", "order")
    assert (found.priority, found.timestamp, found.expiration) == (9, AT, "1500")
    assert content.decode_headers(raw) == [
        ("id", str(NAME)),
        ("big", str(1 << 63)),
        ("in", [str(NAME), {"k": str(-1 << 64)}]),
        ("x-user-id", b"\xff"),
        ("x-app-id", "x" * 256),
        ("JMSXGroupID", "g"),
        ("JMSXGroupSeq", 3),
    ]
    assert read(EnvelopeTemplate("q", PROPERTIES_AMQP, raw)).group_id == "g"


def test_what_only_other_protocols_have_becomes_user_properties() -> None:
    made = properties(
        message_id=NAME, correlation_id=5, user_id=b"me", subject="order", priority=9, group_id="g",
        group_sequence=3, created_at_ms=1_767_323_045_000, ttl_ms=1_500, headers=[("id", NAME), ("at", AT)],
    )  # fmt: skip
    found = over_mqtt(made)
    assert found.correlation_data == b"5"
    assert found.message_expiry_interval_s == 2
    assert found.user_properties == [
        ("id", str(NAME)),
        ("at", "1767323045"),
        ("priority", "9"),
        ("x-message-id", NAME.urn),
        ("timestamp", "1767323045"),
        ("type", "order"),
        ("user-id", "me"),
        ("group-id", "g"),
        ("group-sequence", "3"),
    ]


texts = st.text(st.characters(codec="utf-8"), max_size=300)
simple = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 70), 1 << 70), st.floats(), st.decimals(allow_nan=False),
    texts, st.binary(max_size=300), st.datetimes(timezones=st.just(UTC)), st.uuids(),
)  # fmt: skip
values = st.recursive(
    simple,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
identifiers = st.one_of(texts, st.binary(max_size=300), st.integers(0, (1 << 64) - 1), st.uuids())
anything = st.fixed_dictionaries(
    {},
    optional={
        "topic": texts,
        "persistent": st.booleans(),
        **dict.fromkeys(("content_type", "content_encoding", "reply_to", "subject", "app_id"), texts),
        "payload_format": st.sampled_from((0, 1)),
        "message_id": identifiers,
        "correlation_id": identifiers,
        "priority": st.integers(0, 255),
        "ttl_ms": st.integers(0, 1 << 64),
        "created_at_ms": st.integers(-(1 << 63), (1 << 63) - 1),
        "user_id": texts | st.binary(max_size=300),
        "group_id": texts,
        "group_sequence": st.integers(0, 1 << 32),
        "headers": st.lists(st.tuples(texts, values), max_size=4),
    },
)


@given(anything)
def test_every_protocol_can_write_whatever_the_model_holds(given_values: dict[str, Any]) -> None:
    made = properties(**given_values)
    raw = amqp.write(made)
    content.check_properties(raw)
    block = mqtt.write(made)
    decode_properties(block, c.PUBLISH)
    for template in (
        EnvelopeTemplate("q", PROPERTIES_AMQP, raw),
        EnvelopeTemplate("q", PROPERTIES_MQTT, block),
    ):
        fields_of(template)
        group_key(template)
        as_amqp(template)
        as_mqtt(template)


@pytest.mark.parametrize("size", [65_535, 65_536])
def test_texts_too_long_for_mqtt_are_left_out(size: int) -> None:
    text = "x" * size
    found = over_mqtt(properties(content_type=text, correlation_id=text, reply_to=text, headers=[(text, "")]))
    fits = size == 65_535
    assert (found.content_type == text) == fits
    assert (found.correlation_data == text.encode()) == fits
    assert (found.response_topic == text) == fits
    assert found.user_properties == ([(text, "")] if fits else [])
