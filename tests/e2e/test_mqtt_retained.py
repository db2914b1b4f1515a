"""Retained messages."""

import pytest

from tests.e2e.mqtt import V5, V311, payloads

VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])


@VERSIONS
def test_new_subscriber_receives_the_last_retained_message(mqtt, name, version):
    """[MQTT-3.3.1-6], [MQTT-3.3.1-8]"""
    publisher = mqtt(version=version)
    publisher.publish(name, "old", retain=True)
    publisher.publish(name, "new", retain=True)
    publisher.publish(name, "not retained")
    subscriber = mqtt(version=version)
    subscriber.subscribe(name)
    message = subscriber.take_one()
    assert (message.payload, message.retain, message.qos) == (b"new", True, 1)
    assert subscriber.quiet()


@VERSIONS
def test_live_messages_are_not_flagged_retained(mqtt, name, version):
    """[MQTT-3.3.1-9]"""
    subscriber, publisher = mqtt(version=version), mqtt(version=version)
    subscriber.subscribe(name)
    publisher.publish(name, "x", retain=True)
    assert not subscriber.take_one().retain


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_empty_payload_clears_the_retained_message(mqtt, name, version, qos):
    """[MQTT-3.3.1-10], [MQTT-3.3.1-11]"""
    publisher, live = mqtt(version=version), mqtt(version=version)
    publisher.publish(name, "x", qos, retain=True)
    live.subscribe(name)
    live.take_one()
    publisher.publish(name, "", qos, retain=True)
    assert live.take_one().payload == b"", "subscribers see the empty message as any other"
    later = mqtt(version=version)
    later.subscribe(name)
    assert later.quiet()


def test_wildcard_subscription_receives_all_matching_retained_messages(mqtt, name):
    publisher, subscriber = mqtt(), mqtt()
    for key in ("a", "b", "a/b", "c/d"):
        publisher.publish(f"{name}/{key}", key, retain=True)
    subscriber.subscribe(f"{name}/+")
    assert sorted(payloads(subscriber.take(2))) == ["a", "b"]
    assert subscriber.quiet()
    subscriber.subscribe(f"{name}/#")
    assert sorted(payloads(subscriber.take(4))) == ["a", "a/b", "b", "c/d"]


@pytest.mark.parametrize(("kept", "asked"), [(0, 1), (1, 0), (2, 1), (1, 2)])
def test_retained_message_has_the_lower_quality_of_service(mqtt, name, kept, asked):
    publisher, subscriber = mqtt(), mqtt()
    publisher.publish(name, "x", kept, retain=True)
    subscriber.subscribe(name, asked)
    assert subscriber.take_one().qos == min(kept, asked)


@VERSIONS
def test_second_subscription_receives_the_retained_message_again(mqtt, name, version):
    """[MQTT-3.8.4-3]"""
    client = mqtt(version=version)
    client.publish(name, "x", retain=True)
    for _ in range(2):
        client.subscribe(name)
        assert client.take_one().payload == b"x"


def test_retained_message_outlives_its_publisher(mqtt, name):
    publisher = mqtt()
    publisher.publish(name, "x", retain=True)
    publisher.disconnect()
    subscriber = mqtt()
    subscriber.subscribe(name)
    assert subscriber.take_one().payload == b"x"


def test_retain_as_published_keeps_the_flag(mqtt, name):
    """MQTT 5 section 3.8.3.1"""
    publisher, subscriber = mqtt(), mqtt()
    subscriber.subscribe(f"{name}/kept", retainAsPublished=True)
    subscriber.subscribe(f"{name}/cleared", retainAsPublished=False)
    for key in ("kept", "cleared"):
        publisher.publish(f"{name}/{key}", key, retain=True)
        publisher.publish(f"{name}/{key}", key, retain=False)
    flags = [(message.payload.decode(), message.retain) for message in subscriber.take(4)]
    assert flags == [("kept", True), ("kept", False), ("cleared", False), ("cleared", False)]


@pytest.mark.parametrize(("handling", "first", "second"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
def test_retain_handling_decides_when_retained_messages_are_sent(mqtt, name, handling, first, second):
    """MQTT 5 section 3.8.3.1: at every subscribe, at a new one only, never."""
    client = mqtt()
    client.publish(name, "x", retain=True)
    for expected in (first, second):
        client.subscribe(name, retainHandling=handling)
        assert len(client.take(expected)) == expected
        assert client.quiet()


def test_retained_message_keeps_its_properties(mqtt, name):
    publisher, subscriber = mqtt(), mqtt()
    publisher.publish(name, "x", retain=True, user=[("a", "1"), ("a", "2")], ContentType="text/plain")
    subscriber.subscribe(name)
    message = subscriber.take_one()
    assert message.properties.ContentType == "text/plain"
    assert message.properties.UserProperty == [("a", "1"), ("a", "2")]


def test_retained_messages_survive_kill_9(own_broker, mqtt, name):
    broker = own_broker()
    sender = mqtt(broker)
    sender.publish(f"{name}/kept", "kept", retain=True, MessageExpiryInterval=600, user=[("k", "v")])
    sender.publish(f"{name}/cleared", "gone", retain=True)
    sender.publish(f"{name}/cleared", b"", retain=True)
    broker.restart(kill=True)
    client = mqtt(broker)
    client.subscribe(f"{name}/#", 1)
    message = client.take_one()
    assert (message.topic, message.payload, message.retain, message.qos) == (f"{name}/kept", b"kept", True, 1)
    assert 500 < message.properties.MessageExpiryInterval <= 600
    assert message.properties.UserProperty == [("k", "v")]
    assert client.quiet()
