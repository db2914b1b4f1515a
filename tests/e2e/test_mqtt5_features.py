"""MQTT 5: forwarded properties, subscription options, reason codes, CONNACK."""

import pytest

from tests.e2e import raw_mqtt as wire
from tests.e2e.mqtt import payloads, user_properties


def test_publish_properties_arrive_unaltered(mqtt, name):
    """Section 3.3.2.3: forwarded unaltered, user properties in order with duplicates"""
    subscriber, publisher = mqtt(), mqtt()
    subscriber.subscribe(name)
    pairs = [("b", "1"), ("a", "2"), ("b", "1"), ("", ""), ("größe", "温度")]
    publisher.publish(
        name,
        "{}",
        user=pairs,
        ContentType="application/json",
        ResponseTopic="answers/here",
        CorrelationData=b"\x00\xff",
        PayloadFormatIndicator=1,
    )
    message = subscriber.take_one()
    assert user_properties(message) == pairs
    received = message.properties
    assert received.ContentType == "application/json"
    assert received.ResponseTopic == "answers/here"
    assert received.CorrelationData == b"\x00\xff"
    assert received.PayloadFormatIndicator == 1


def test_remaining_message_expiry_is_forwarded(mqtt, name):
    """[MQTT-3.3.2-6]"""
    subscriber, publisher = mqtt(), mqtt()
    subscriber.subscribe(name)
    publisher.publish(name, "x", MessageExpiryInterval=100)
    assert 98 <= subscriber.take_one().properties.MessageExpiryInterval <= 100


def test_properties_are_left_out_for_311_subscribers(mqtt, name):
    subscriber, publisher = mqtt(version=4), mqtt()
    subscriber.subscribe(name)
    publisher.publish(name, "x", user=[("a", "b")], ContentType="text/plain")
    assert subscriber.take_one().payload == b"x"


def test_no_local_suppresses_own_publishes(mqtt, name):
    """[MQTT-3.8.3-3]"""
    client, other = mqtt(), mqtt()
    client.subscribe(name, noLocal=True)
    client.publish(name, "my own")
    other.publish(name, "of another")
    assert payloads(client.take(1)) == ["of another"]
    assert client.quiet(0.1)


def test_subscription_identifiers_are_delivered_or_refused(raw_mqtt, mqtt, name):
    """[MQTT-3.3.4-3]; unless CONNACK says 0 for their availability"""
    client = mqtt()
    available = getattr(client.connack_properties, "SubscriptionIdentifierAvailable", 1)
    if available:
        client.subscribe(f"{name}/a", identifier=7)
        client.subscribe(f"{name}/b", identifier=268_435_455)
        client.publish(f"{name}/a", "a")
        client.publish(f"{name}/b", "b")
        assert [message.properties.SubscriptionIdentifier for message in client.take(2)] == [
            [7],
            [268_435_455],
        ]
    else:
        connection = raw_mqtt()
        connection.send_bytes(wire.subscribe(name, props=b"\x0b\x07"))
        assert connection.farewell() == 0xA1


def test_shared_subscriptions_share_or_are_refused(mqtt, name):
    """Section 4.8.2; unless CONNACK says 0 for their availability"""
    members = [mqtt(), mqtt()]
    available = getattr(members[0].connack_properties, "SharedSubscriptionAvailable", 1)
    codes = [member.subscribe(f"$share/g/{name}") for member in members]
    if not available:
        assert codes == [0x9E, 0x9E]
        return
    assert codes == [1, 1]
    publisher = mqtt()
    for number in range(40):
        publisher.publish(name, str(number))
    for member in members:
        member.take(1)
        while not member.quiet(0.1):
            member.take(1)
    publisher.publish(name, "last")
    assert sum(not member.quiet(0.1) for member in members) == 1


def test_unsubscribe_without_a_subscription_is_answered_with_0x11(mqtt, name):
    """[MQTT-3.11.3-2]: 0x11"""
    client = mqtt()
    assert client.unsubscribe(name) == 0x11
    client.subscribe(name)
    assert client.unsubscribe(name) == 0


def test_suback_has_a_code_for_each_filter(raw_mqtt, name):
    connection = raw_mqtt()
    body = b"\x00\x09\x00" + b"".join(wire.string(f"{name}/{qos}") + bytes([qos]) for qos in (0, 1, 2))
    connection.send_bytes(wire.packet(wire.SUBSCRIBE, 2, body))
    suback = connection.expect(wire.SUBACK)
    assert suback.body[:2] == b"\x00\x09"
    assert suback.body[-3:] == b"\x00\x01\x02"


def test_suback_comes_before_retained_messages(raw_mqtt, name):
    connection = raw_mqtt()
    connection.send_bytes(wire.publish(name, b"kept", retain=True) + wire.subscribe(name, 0))
    connection.expect(wire.SUBACK)
    assert connection.expect(wire.PUBLISH).flags & 1


def test_connack_offers_all_qualities_retain_and_wildcards(mqtt):
    properties = mqtt().connack_properties
    assert getattr(properties, "MaximumQoS", 2) == 2
    assert getattr(properties, "RetainAvailable", 1) == 1
    assert getattr(properties, "WildcardSubscriptionAvailable", 1) == 1


def test_response_arrives_with_its_correlation_data(mqtt, name):
    """Section 4.10"""
    requester, responder = mqtt(), mqtt()
    requester.subscribe(f"{name}/answers")
    responder.subscribe(f"{name}/requests")
    requester.publish(f"{name}/requests", "ping", ResponseTopic=f"{name}/answers", CorrelationData=b"42")
    request = responder.take_one().properties
    responder.publish(request.ResponseTopic, "pong", CorrelationData=request.CorrelationData)
    answer = requester.take_one()
    assert (answer.payload, answer.properties.CorrelationData) == (b"pong", b"42")


@pytest.mark.extension
def test_enhanced_authentication_is_refused(raw_mqtt):
    """[MQTT-4.12.0-1]: 0x8C bad authentication method"""
    connection = raw_mqtt(version=None)
    connection.send_bytes(wire.connect(client_id="x", props=b"\x15" + wire.string("SCRAM-SHA-1")))
    assert connection.farewell() == 0x8C
