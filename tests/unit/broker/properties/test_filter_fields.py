"""broker.properties.filter_fields: messages as filters see them."""

from datetime import UTC, datetime
from decimal import Decimal

from broker.properties.filter_fields import fields_of
from config import limits
from protocols.amqp091.content import Properties, encode_properties
from protocols.mqtt import constants as mqtt
from protocols.mqtt.properties import Properties as MqttProperties
from protocols.mqtt.properties import encode_properties as encode_mqtt
from queue_manager.filters import parse_selector
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_MQTT, EnvelopeTemplate


def amqp(headers=(), persistent=True, **values):
    source = Properties()
    for name, value in values.items():
        setattr(source, name, value)
    raw = encode_properties(source, list(headers))
    return fields_of(EnvelopeTemplate("rk", PROPERTIES_AMQP, raw, persistent=persistent))


def from_mqtt(**values):
    block = encode_mqtt(MqttProperties(**values), mqtt.PUBLISH)
    return fields_of(EnvelopeTemplate("t", PROPERTIES_MQTT, block))


def test_defaults():
    for fields in (fields_of(EnvelopeTemplate("rk")), amqp(persistent=False), from_mqtt()):
        assert fields == {"JMSPriority": 4, "header.priority": 4, "JMSDeliveryMode": "NON_PERSISTENT"}


def test_amqp_properties_have_two_names():
    fields = amqp(
        [("JMSXGroupID", "g"), ("JMSXGroupSeq", 3)],
        message_id="m1",
        correlation_id="c1",
        message_type="order",
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        user_id="guest",
        priority=0,
        reply_to="back",
        content_type="text/plain",
        content_encoding="gzip",
    )
    for jms, name, value in (
        ("JMSMessageID", "message-id", "m1"),
        ("JMSCorrelationID", "correlation-id", "c1"),
        ("JMSType", "subject", "order"),
        ("JMSTimestamp", "creation-time", 1_767_225_600_000),
        ("JMSXUserID", "user-id", "guest"),
        ("JMSXGroupID", "group-id", "g"),
        ("JMSXGroupSeq", "group-sequence", 3),
    ):
        assert fields[jms] == fields[f"properties.{name}"] == value
    assert fields["properties.reply-to"] == "back"
    assert fields["properties.content-type"] == "text/plain"
    assert fields["properties.content-encoding"] == "gzip"
    assert (fields["JMSPriority"], fields["JMSDeliveryMode"]) == (0, "PERSISTENT")


def test_headers_keep_their_types():
    headers = [
        ("text", "x"), ("flag", True), ("count", 5), ("part", 1.5), ("raw", b"\xff"),
        ("money", Decimal("2.5")), ("nothing", None), ("a.b-c", 1),
    ]  # fmt: skip
    fields = amqp(headers)
    assert {name: fields.get(name) for name, _ in headers} == {
        "text": "x", "flag": True, "count": 5, "part": 1.5, "raw": b"\xff", "money": 2.5, "nothing": None,
        "a.b-c": None,
    }  # fmt: skip
    assert fields["application-properties.a.b-c"] == 1
    selector = parse_selector("flag AND count = 5 AND nothing IS NULL AND part > 1 AND text = 'x'")
    assert selector is not None
    assert selector.matches(fields)


def test_a_header_named_like_a_property_does_not_replace_it():
    fields = amqp(
        [("JMSPriority", 9), ("JMSType", "fake"), ("properties.subject", "fake")], message_type="real"
    )
    assert (fields["JMSPriority"], fields["JMSType"], fields["properties.subject"]) == (4, "real", "real")
    assert fields["application-properties.JMSPriority"] == 9
    assert "JMSMessageID" not in amqp([("JMSMessageID", "fake")])


def test_a_header_with_a_dot_reaches_no_filter_of_another_section():
    fields = amqp([("properties.to", "x"), ("application-properties.region", "eu"), ("header.priority", 9)])
    assert "properties.to" not in fields
    assert "application-properties.region" not in fields
    assert fields["header.priority"] == 4
    assert fields["application-properties.properties.to"] == "x"


def test_mqtt_user_properties_are_texts_and_the_first_counts():
    fields = from_mqtt(
        user_properties=[("qty", "5"), ("qty", "6"), ("type", "order"), ("group-id", "g"), ("priority", "7")],
        correlation_data=b"c1",
        response_topic="back",
        content_type="text/plain",
    )
    assert fields["qty"] == fields["application-properties.qty"] == "5"
    assert (fields["JMSType"], fields["JMSXGroupID"], fields["JMSPriority"]) == ("order", "g", 7)
    assert (fields["JMSCorrelationID"], fields["properties.reply-to"]) == ("c1", "back")
    assert "JMSCorrelationID" not in from_mqtt(correlation_data=b"\xff")


def test_of_too_many_properties_none_are_seen():
    size = 60_000
    pairs = [(f"n{index}", "x" * size) for index in range(limits.FILTER_PROPERTIES_BYTES_MAX // size + 1)]
    assert set(from_mqtt(user_properties=pairs)) == {"JMSPriority", "header.priority", "JMSDeliveryMode"}
