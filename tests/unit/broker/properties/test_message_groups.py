"""The keys of message groups in AMQP headers and MQTT user properties."""

import pytest

from broker.properties.message_groups import group_key
from broker.properties.templates import as_mqtt
from config import limits
from protocols.amqp091.content import Properties as AmqpProperties
from protocols.amqp091.content import encode_properties as encode_amqp
from protocols.mqtt import constants as c
from protocols.mqtt.properties import Properties as MqttProperties
from protocols.mqtt.properties import encode_properties as encode_mqtt
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_MQTT, EnvelopeTemplate


def amqp(*headers):
    raw = encode_amqp(AmqpProperties(), list(headers) or None)
    return EnvelopeTemplate("q", PROPERTIES_AMQP, raw)


def mqtt(*pairs):
    properties = MqttProperties()
    properties.user_properties = list(pairs)
    return EnvelopeTemplate("$queue/q", PROPERTIES_MQTT, encode_mqtt(properties, c.PUBLISH))


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], ("", False)),
        ([("JMSXGroupID", "a")], ("a", False)),
        ([("x-group-id", "a")], ("a", False)),
        ([("group-id", "c"), ("x-group-id", "b"), ("JMSXGroupID", "a")], ("a", False)),
        ([("JMSXGroupID", ""), ("x-group-id", "b")], ("b", False)),
        ([("JMSXGroupID", "")], ("", False)),
        ([("JMSXGroupID", 17)], ("17", False)),
        ([("JMSXGroupID", b"\xffa")], ("\\xffa", False)),
        ([("JMSXGroupID", {"a": 1})], ("", False)),
        ([("JMSXGroupID", True)], ("", False)),
        ([("other", "JMSXGroupID")], ("", False)),
        ([("JMSXGroupID", "a"), ("JMSXGroupSeq", -1)], ("a", True)),
        ([("JMSXGroupID", "a"), ("JMSXGroupSeq", "-1")], ("a", True)),
        ([("JMSXGroupID", "a"), ("JMSXGroupSeq", 1)], ("a", False)),
        ([("JMSXGroupSeq", -1)], ("", False)),
    ],
)
def test_amqp_headers(headers, expected) -> None:
    assert group_key(amqp(*headers)) == expected


def test_mqtt_user_properties() -> None:
    assert group_key(mqtt(("group-id", "a"), ("group-id", "b"))) == ("a", False)
    assert group_key(mqtt(("group-id", "a"), ("group-sequence", "-1"))) == ("a", True)
    assert group_key(mqtt(("x", "group-id"))) == ("", False)
    assert group_key(EnvelopeTemplate("$queue/q")) == ("", False)


def test_a_long_key_is_told_by_its_digest() -> None:
    longest = "ä" * (limits.MESSAGE_GROUP_KEY_BYTES_MAX // 2)
    assert group_key(mqtt(("group-id", longest)))[0] == longest
    longer = [group_key(mqtt(("group-id", longest + end)))[0] for end in ("äa", "äb")]
    assert [len(key) for key in longer] == [64, 64]
    assert longer[0] != longer[1]


def test_the_answer_is_kept_beside_the_translations() -> None:
    template = amqp(("JMSXGroupID", "a"))
    assert b"JMSXGroupID" in as_mqtt(template)
    assert group_key(template) is group_key(template)
    assert b"JMSXGroupID" in as_mqtt(template)
