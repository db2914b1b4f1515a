"""MQTT 5: forwarded properties, subscription options, reason codes, CONNACK."""

import pytest
from paho.mqtt.packettypes import PacketTypes

from tests.e2e import raw_mqtt as wire
from tests.e2e.mqtt import make_properties, payloads, user_properties


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
    assert client.quiet()


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
        while not member.quiet():
            member.take(1)
    publisher.publish(name, "last")
    assert sum(not member.quiet() for member in members) == 1


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


def aliased(topic, alias, payload=b"x", **options):
    return wire.publish(topic, payload, props=b"\x23" + alias.to_bytes(2, "big"), **options)


def test_topic_aliases_of_a_publisher_stand_for_its_topics(raw_mqtt, mqtt, name):
    """[MQTT-3.3.2-12]: and are not passed on"""
    subscriber = mqtt()
    subscriber.subscribe(f"{name}/#")
    connection = raw_mqtt()
    for topic, alias, payload in (
        ("a", 1, "1"),
        ("", 1, "2"),
        ("b", 2, "3"),
        ("", 1, "4"),
        ("b", 1, "5"),
        ("", 1, "6"),
    ):
        connection.send_bytes(aliased(topic and f"{name}/{topic}", alias, payload.encode()))
    messages = subscriber.take(6)
    assert [message.topic[-1] + message.payload.decode() for message in messages] == [
        "a1", "a2", "b3", "a4", "b5", "b6",
    ]  # fmt: skip
    assert not any(hasattr(message.properties, "TopicAlias") for message in messages)


def test_topic_alias_of_a_queue_stands_for_it(raw_mqtt, channel, queue):
    connection = raw_mqtt()
    connection.send_bytes(aliased(f"$queue/{queue}", 9, b"1", qos=1, packet_id=1))
    connection.send_bytes(aliased("", 9, b"2", qos=1, packet_id=2))
    for packet_id in (1, 2):
        assert connection.expect(wire.PUBACK).body[:2] == packet_id.to_bytes(2, "big")
    assert [channel.basic_get(queue, auto_ack=True)[2] for _ in range(2)] == [b"1", b"2"]


@pytest.mark.parametrize("session", [b"", b"\x11\x00\x00\x00\x3c"], ids=["passing", "lasting"])
def test_aliases_are_used_with_clients_that_allow_them(raw_mqtt, mqtt, name, session):
    """Section 3.1.2.11.5: the first topics get them, within the maximum [MQTT-3.1.2-26]"""
    connection = raw_mqtt(props=b"\x22\x00\x01" + session)
    connection.send_bytes(wire.subscribe(f"{name}/#", 1))
    connection.expect(wire.SUBACK)
    publisher = mqtt()
    for topic in ("a", "b", "a", "b"):
        publisher.publish(f"{name}/{topic}", "x")
    bodies = [connection.expect(wire.PUBLISH).body for _ in range(4)]
    lengths = [int.from_bytes(body[:2], "big") for body in bodies]
    assert lengths == [len(name) + 2, len(name) + 2, 0, len(name) + 2]
    assert [b"\x23\x00\x01" in body for body in bodies] == [True, False, True, False]


@pytest.mark.parametrize("qos", [1, 2])
def test_publish_that_nobody_is_subscribed_to_is_answered_with_0x10(raw_mqtt, mqtt, name, qos):
    """Section 3.4.2.1"""
    connection = raw_mqtt()
    connection.send_bytes(b"".join(wire.publish(name, qos=qos, packet_id=i) for i in (1, 2, 3)))
    answers = [connection.expect(wire.PUBACK if qos == 1 else wire.PUBREC).body for _ in range(3)]
    assert answers == [bytes((0, i, 0x10)) for i in (1, 2, 3)]
    mqtt().subscribe(name)
    connection.send_bytes(wire.publish(name, qos=qos, packet_id=4))
    assert connection.expect(wire.PUBACK if qos == 1 else wire.PUBREC).body == b"\x00\x04"


@pytest.mark.parametrize("topic", ["{}", "$queue/{}"])
def test_payload_that_is_not_the_text_it_is_said_to_be_is_refused(mqtt, name, topic):
    """Section 3.3.2.3.2: 0x99"""
    client = mqtt()
    client.subscribe(topic.format(name))
    for payload, code in (("größe".encode(), 0), (b"\xff", 0x99), (b"plain", 0)):
        assert client.publish(topic.format(name), payload, PayloadFormatIndicator=1) == code
    assert client.publish(topic.format(name), b"\xff", PayloadFormatIndicator=0) == 0
    assert [message.payload for message in client.take(3)] == ["größe".encode(), b"plain", b"\xff"]


def test_overlapping_subscriptions_give_one_copy_with_all_identifiers(mqtt, name):
    """[MQTT-3.3.4-2], [MQTT-3.3.4-3], [MQTT-3.3.4-4], [MQTT-3.3.5-1]"""
    client = mqtt()
    client.subscribe(f"{name}/#", 0, identifier=1)
    client.subscribe(f"{name}/+", 2, identifier=2)
    client.subscribe(f"{name}/a", 1)
    client.publish(f"{name}/a", "x", 2)
    message = client.take_one()
    assert (message.qos, sorted(message.properties.SubscriptionIdentifier)) == (2, [1, 2])
    assert client.quiet()


def test_messages_of_a_share_group_go_to_another_member_when_one_dies(raw_mqtt, mqtt, name):
    """Section 4.8.2: what was not acknowledged; but not QoS 2 [MQTT-4.8.2-5]"""
    dying = raw_mqtt(props=b"\x21\x00\x04")
    dying.send_bytes(wire.subscribe(f"$share/g/{name}", 2))
    dying.expect(wire.SUBACK)
    publisher = mqtt()
    for number in range(6):
        publisher.publish(name, str(number), 2 if number == 1 else 1)
    for _ in range(4):
        dying.expect(wire.PUBLISH)
    staying = mqtt()
    staying.subscribe(f"$share/g/{name}", 1)
    dying.drop()
    assert sorted(payloads(staying.take(5))) == ["0", "2", "3", "4", "5"]
    assert staying.quiet()


@pytest.mark.parametrize("root", ["$other", "$queues", "$a"])
def test_topics_that_begin_with_another_dollar_word_are_ordinary(mqtt, name, root):
    """[MQTT-4.7.2-1]: but leading wildcards do not match them"""
    client, wild = mqtt(), mqtt()
    assert client.subscribe(f"{root}/{name}") == 1
    wild.subscribe(f"+/{name}")
    wild.subscribe("#", retainHandling=2)
    assert client.publish(f"{root}/{name}", "x", retain=True) == 0
    assert client.take_one().topic == f"{root}/{name}"
    assert wild.quiet()
    client.publish(f"{root}/{name}", "", retain=True)


@pytest.mark.parametrize("version", [wire.V311, wire.V5])
@pytest.mark.parametrize(
    ("flags", "after"),
    [
        (0x04, wire.string("") + wire.string("x")),
        (0x04, wire.string("a/+") + wire.string("x")),
        (0x04, wire.string(b"\xff") + wire.string("x")),
        (0x04, wire.string("t")),
        (0x04, b""),
        (0x04, wire.string("$SYS/x") + wire.string("x")),
        (0x04, wire.string("$queue/q/$ack") + wire.string("x")),
        (0x1C, wire.string("t") + wire.string("x")),
        (0x20, b""),
    ],
)
def test_will_that_is_not_valid_refuses_the_client(raw_mqtt, version, flags, after):
    """[MQTT-3.1.2-9], [MQTT-3.1.2-11] to [MQTT-3.1.2-13], [MQTT-3.1.3-11]"""
    connection = raw_mqtt(version=None)
    block = b"\x00" if version == wire.V5 and flags & 4 else b""
    connection.send_bytes(wire.connect(version, "c", flags=0x02 | flags, after=block + after))
    code = connection.farewell()
    assert (code or 0) >= 0x80 if version == wire.V5 else code in (None, 3)


def test_will_payload_that_is_no_text_refuses_the_client(raw_mqtt):
    connection = raw_mqtt(version=None)
    after = b"\x02\x01\x01" + wire.string("t") + wire.string(b"\xff")
    connection.send_bytes(wire.connect(client_id="c", flags=0x06, after=after))
    assert connection.farewell() == 0x99


def test_unknown_authentication_method_refuses_the_client(raw_mqtt):
    """[MQTT-4.12.0-1]"""
    connection = raw_mqtt(version=None)
    connection.send_bytes(wire.connect(client_id="c", props=b"\x15" + wire.string("none-such")))
    assert connection.farewell() == 0x8C


def test_client_of_mqtt_3_1_is_served(raw_mqtt, mqtt, name):
    """`MQIsdp`, level 3"""
    connection = raw_mqtt(version=None)
    body = wire.string("MQIsdp") + bytes((3, 0x02, 0, 60)) + wire.string("old-device")
    connection.send_bytes(wire.packet(wire.CONNECT, 0, body))
    assert connection.expect(wire.CONNACK).body == b"\x00\x00"
    connection.send_bytes(wire.subscribe(name, 1, version=wire.V311))
    connection.expect(wire.SUBACK)
    mqtt().publish(name, "x")
    assert connection.expect(wire.PUBLISH).body.endswith(b"x")


def will_of(topic, delay_s):
    return {
        "topic": topic,
        "payload": "gone",
        "qos": 1,
        "properties": make_properties(PacketTypes.WILLMESSAGE, WillDelayInterval=delay_s),
    }


@pytest.mark.timed
def test_will_waits_for_its_delay_but_not_longer_than_the_session(broker, mqtt, name):
    """[MQTT-3.1.3-9], section 3.1.3.2.2"""
    watcher = mqtt()
    watcher.subscribe(f"{name}/#")
    for client_id, delay_s, expiry_s in (
        ("at-once", 0, 60),
        ("no-session", 60, 0),
        ("session-ends", 60, 5),
        ("waits", 5, 60),
    ):
        client = mqtt(
            client_id=f"{name}-{client_id}",
            will=will_of(f"{name}/{client_id}", delay_s),
            SessionExpiryInterval=expiry_s,
        )
        client.drop()
    assert {message.topic for message in watcher.take(2)} == {f"{name}/at-once", f"{name}/no-session"}
    assert watcher.quiet()
    broker.pass_time(5.1)
    assert {message.topic for message in watcher.take(2)} == {f"{name}/session-ends", f"{name}/waits"}


@pytest.mark.timed
@pytest.mark.parametrize("clean", [False, True])
def test_will_is_cancelled_by_a_client_that_is_back_in_time(broker, mqtt, name, clean):
    """[MQTT-3.1.3-9]: unless it ends the session, and thus its delay"""
    watcher = mqtt()
    watcher.subscribe(name)
    options = {"client_id": f"{name}-c", "SessionExpiryInterval": 60}
    mqtt(will=will_of(name, 5), **options).drop()
    back = mqtt(clean=clean, **options)
    assert back.session_present is not clean
    if clean:
        assert watcher.take_one().payload == b"gone"
    else:
        broker.pass_time(5.1)
        assert watcher.quiet()
