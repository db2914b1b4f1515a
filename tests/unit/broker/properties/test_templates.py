"""Properties across protocols: what has a home on both sides arrives, in order, with duplicates."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.properties.amqp import routing_key
from broker.properties.templates import as_amqp, as_mqtt, as_mqtt_delivery
from protocols.amqp091 import content
from protocols.mqtt import constants as c
from protocols.mqtt.properties import Properties, decode_properties, encode_properties
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_MQTT, PROPERTIES_NONE, EnvelopeTemplate

T0 = 1_767_225_600_000


def amqp(headers=None, **fields):
    properties = content.Properties()
    for name, value in fields.items():
        setattr(properties, name, value)
    return content.encode_properties(properties, headers)


def from_amqp(raw):
    return decode_properties(as_mqtt(EnvelopeTemplate("t", PROPERTIES_AMQP, raw)), c.PUBLISH)


def from_mqtt(properties, persistent=True):
    block = encode_properties(properties, c.PUBLISH)
    raw = as_amqp(EnvelopeTemplate("t", PROPERTIES_MQTT, block, persistent=persistent))
    return content.decode_properties(raw), content.decode_headers(raw)


def test_amqp_to_mqtt():
    raw = amqp(
        [
            ("a", "1"),
            ("n", 7),
            ("yes", True),
            ("b", b"raw"),
            ("t", {"x": [1, "y"]}),
            ("a", "again"),
            ("none", None),
        ],
        content_type="text/plain",
        content_encoding="gzip",
        correlation_id="c-1",
        reply_to="answers/me",
        expiration="1500",
        priority=5,
        message_id="m-1",
        timestamp=datetime.fromtimestamp(1_700_000_000, UTC),
        message_type="order",
        user_id="guest",
        app_id="shop",
    )
    result = from_amqp(raw)
    assert result.content_type == "text/plain"
    assert result.correlation_data == b"c-1"
    assert result.response_topic == "answers/me"
    assert result.message_expiry_interval_s == 2
    assert result.user_properties == [
        ("a", "1"),
        ("n", "7"),
        ("yes", "true"),
        ("b", "raw"),
        ("t", '{"x":[1,"y"]}'),
        ("a", "again"),
        ("none", ""),
        ("content-encoding", "gzip"),
        ("priority", "5"),
        ("x-message-id", "m-1"),
        ("timestamp", "1700000000"),
        ("type", "order"),
        ("user-id", "guest"),
        ("app-id", "shop"),
    ]


def test_a_reply_to_that_is_no_topic_becomes_a_user_property():
    result = from_amqp(amqp(reply_to="a/#"))
    assert result.response_topic is None
    assert result.user_properties == [("reply-to", "a/#")]


def test_an_expiration_that_is_no_number_is_carried_along():
    result = from_amqp(amqp(expiration="soon"))
    assert result.message_expiry_interval_s is None
    assert result.user_properties == [("expiration", "soon")]


def test_mqtt_to_amqp():
    source = Properties(
        content_type="application/json",
        response_topic="answers/1",
        correlation_data=b"id-7",
        message_expiry_interval_s=3,
        payload_format_indicator=1,
        user_properties=[("k", "v"), ("k", "w"), ("a", "")],
    )
    properties, headers = from_mqtt(source)
    assert properties.content_type == "application/json"
    assert properties.reply_to == "answers/1"
    assert properties.correlation_id == "id-7"
    assert properties.expiration == "3000"
    assert properties.delivery_mode == 2
    assert headers == [("k", "v"), ("k", "w"), ("a", ""), ("x-payload-format", 1)]


@pytest.mark.parametrize("data", [b"\xff\xfe", b"", b"x" * 256])
def test_correlation_data_that_is_no_short_text_becomes_a_header(data):
    properties, headers = from_mqtt(Properties(correlation_data=data))
    assert not properties.correlation_id
    [(name, value)] = headers
    assert name == "x-correlation-data"
    assert (value.encode() if isinstance(value, str) else bytes(value)) == data


def test_qos_is_the_delivery_mode():
    assert from_mqtt(Properties(), persistent=False)[0].delivery_mode == 1
    assert as_amqp(EnvelopeTemplate("t", PROPERTIES_NONE, persistent=True)) == b"\x10\x00\x02"
    assert as_amqp(EnvelopeTemplate("t", PROPERTIES_NONE)) == b"\x00\x00"


def test_a_template_is_translated_once():
    template = EnvelopeTemplate(
        "t", PROPERTIES_MQTT, encode_properties(Properties(content_type="x"), c.PUBLISH)
    )
    assert as_amqp(template) is as_amqp(template)
    template = EnvelopeTemplate("t", PROPERTIES_AMQP, amqp(content_type="x"))
    assert as_mqtt(template) is as_mqtt(template)
    assert as_amqp(template) is template.properties


text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)


@given(st.lists(st.tuples(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=20), text)))
def test_user_properties_survive_both_ways(pairs):
    _, headers = from_mqtt(Properties(user_properties=pairs))
    assert headers == pairs
    assert from_amqp(amqp(pairs)).user_properties == pairs


def test_amqp_expiration_in_other_digits_is_kept_as_text():
    assert from_amqp(amqp(expiration="²")).user_properties == [("expiration", "²")]


@pytest.mark.parametrize(
    "raw",
    [
        amqp(content_type="a\0b"),
        amqp([("n\0", "\0" * 60_000)]),
        amqp([("n", "x" * 65_536)]),
        amqp(correlation_id="\0", reply_to="a\0b", message_type="\0"),
    ],
    ids=["content type", "header that grows", "header too long", "short strings"],
)
def test_what_mqtt_strings_cannot_hold_stops_no_message(raw):
    from_amqp(raw)


def test_a_routing_key_is_cut_between_characters():
    template = EnvelopeTemplate("a" + "é" * 200)
    assert routing_key(template.topic) == "a" + "é" * 127
    assert content.decode_headers(as_amqp(template)) == [("x-topic", template.topic)]
    assert routing_key("é" * 127) == "é" * 127


def test_mqtt_expiry_is_less_the_time_waited():
    block = b"\x01\x01\x02" + (100).to_bytes(4, "big") + b"\x26\x00\x01a\x00\x01b"
    template = EnvelopeTemplate("t", PROPERTIES_MQTT, block, expires_at_ms=100_000)
    for waited_ms, left_s in ((0, 100), (1, 100), (1_000, 99), (99_500, 1), (150_000, 1)):
        found = as_mqtt_delivery(template, T0, T0 + waited_ms)
        assert found == block[:3] + left_s.to_bytes(4, "big") + block[7:]
    plain = EnvelopeTemplate("t", PROPERTIES_MQTT, block)
    assert as_mqtt_delivery(plain, T0, T0 + 5_000) == block
