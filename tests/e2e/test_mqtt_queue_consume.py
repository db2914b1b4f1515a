"""MQTT subscriptions to `$queue/...`: what a worker is sent, and how PUBACK settles it."""

import struct

import pytest

from tests.e2e import amqp
from tests.e2e import raw_mqtt as wire
from tests.e2e.mqtt import V5, V311, payloads, user_properties, user_property

pytestmark = pytest.mark.extension
VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])
WORKERS = ("consumer-group", "workers")
BY_PUBACK = ("ack", "puback")


@VERSIONS
def test_consumer_receives_waiting_and_new_messages(mqtt, channel, queue, version):
    amqp.publish(channel, queue, "waiting")
    consumer = mqtt(version=version)
    assert consumer.subscribe(f"$queue/{queue}/#", 1) == 1
    mqtt(version=version).publish(f"$queue/{queue}/eu/new", "coming")
    messages = consumer.take(2)
    assert payloads(messages) == ["waiting", "coming"]
    assert [message.topic for message in messages] == [f"$queue/{queue}", f"$queue/{queue}/eu/new"]
    assert {message.qos for message in messages} == {1}
    assert not any(message.retain or message.dup for message in messages)


def test_deliveries_have_the_queue_properties_after_the_publishers_own(mqtt, queue):
    consumer, publisher = mqtt(), mqtt()
    consumer.subscribe(f"$queue/{queue}", user=[WORKERS])
    for number in range(3):
        publisher.publish(f"$queue/{queue}/k", str(number), user=[("mine", "1"), ("mine", "2")])
    messages = consumer.take(3)
    for message in messages:
        offset = user_property(message, "offset")
        assert user_property(message, "message-id") == f"{queue}:{offset}"
        assert user_property(message, "group-id") == "workers"
        assert user_property(message, "queue") == queue
        assert user_property(message, "attempts") == "1"
        assert user_properties(message)[:2] == [("mine", "1"), ("mine", "2")]
    offsets = [int(user_property(message, "offset")) for message in messages]
    assert offsets == [offsets[0], offsets[0] + 1, offsets[0] + 2]


def test_forged_delivery_properties_are_overridden(mqtt, queue):
    consumer = mqtt()
    consumer.subscribe(f"$queue/{queue}", user=[WORKERS])
    forged = [("message-id", "other:99"), ("group-id", "nobody"), ("queue", "other"), ("attempts", "77")]
    mqtt().publish(f"$queue/{queue}", "x", user=forged)
    message = consumer.take_one()
    assert user_property(message, "queue") == queue
    assert user_property(message, "group-id") == "workers"
    assert consumer.settle("ack", message) == 0


@pytest.mark.parametrize(
    ("pattern", "received"),
    [
        ("", ["", "eu", "eu/a", "eu/a/b", "europe/a", "us/a"]),
        ("/#", ["", "eu", "eu/a", "eu/a/b", "europe/a", "us/a"]),
        ("/eu/#", ["eu", "eu/a", "eu/a/b"]),
        ("/eu/+", ["eu/a"]),
        ("/+/a", ["eu/a", "europe/a", "us/a"]),
        ("/eu", ["eu"]),
        ("/asia/#", []),
    ],
)
def test_pattern_selects_by_mqtt_rules(mqtt, queue, pattern, received):
    publisher, consumer = mqtt(), mqtt()
    for key in ("", "eu", "eu/a", "eu/a/b", "europe/a", "us/a"):
        publisher.publish(f"$queue/{queue}/{key}".rstrip("/"), key)
    assert consumer.subscribe(f"$queue/{queue}{pattern}", user=[WORKERS]) == 1
    assert payloads(consumer.take(len(received))) == received
    assert consumer.quiet()


def test_pattern_is_part_of_the_group_id(mqtt, queue):
    consumer = mqtt()
    consumer.subscribe(f"$queue/{queue}/eu/#", user=[WORKERS])
    mqtt().publish(f"$queue/{queue}/eu/x", "x")
    message = consumer.take_one()
    assert user_property(message, "group-id") == "workers@eu/#"
    assert consumer.settle("ack", message) == 0


@VERSIONS
def test_puback_settles_without_a_consumer_group(mqtt, channel, queue, version):
    """3.1.1 always, 5 without a consumer-group; the client ID is the group."""
    consumer = mqtt(version=version, client_id=f"{queue}-c", manual_ack=True)
    consumer.subscribe(f"$queue/{queue}", 1)
    amqp.publish(channel, queue, "done", "left", "left too")
    messages = consumer.take(3)
    consumer.puback(messages[0])
    consumer.publish("flush", "", 1)  # the PUBACK before it has arrived
    consumer.drop()
    again = mqtt(version=version, client_id=f"{queue}-c", manual_ack=True)
    again.subscribe(f"$queue/{queue}", 1)
    assert payloads(again.take(2)) == ["left", "left too"]
    assert again.quiet()


@VERSIONS
def test_qos_2_settles_by_pubcomp(raw_mqtt, mqtt, channel, queue, version):
    connection = raw_mqtt(version=version, client_id=f"{queue}-c")
    connection.send_bytes(wire.subscribe(f"$queue/{queue}", 2, version=version))
    assert connection.expect(wire.SUBACK).body[-1] == 2
    amqp.publish(channel, queue, "x")
    delivery = connection.expect(wire.PUBLISH)
    assert delivery.flags >> 1 & 3 == 2
    packet_id = struct.unpack_from(">H", delivery.body, 2 + len(f"$queue/{queue}"))[0]
    connection.send_bytes(wire.acknowledgement(wire.PUBREC, packet_id))
    assert connection.expect(wire.PUBREL).body[:2] == struct.pack(">H", packet_id)
    connection.send_bytes(wire.acknowledgement(wire.PUBCOMP, packet_id) + wire.packet(wire.PINGREQ, 0))
    connection.expect(wire.PINGRESP)
    connection.drop()
    again = mqtt(version=version, client_id=f"{queue}-c")
    again.subscribe(f"$queue/{queue}", 1)
    assert again.quiet()


@VERSIONS
def test_qos_0_delivery_is_done_when_sent(mqtt, channel, queue, version):
    consumer = mqtt(version=version, client_id=f"{queue}-c")
    assert consumer.subscribe(f"$queue/{queue}", 0) == 0
    amqp.publish(channel, queue, "a", "b")
    messages = consumer.take(2)
    assert [(message.payload, message.qos) for message in messages] == [(b"a", 0), (b"b", 0)]
    consumer.drop()
    again = mqtt(version=version, client_id=f"{queue}-c")
    again.subscribe(f"$queue/{queue}", 1)
    assert again.quiet()


def test_ack_property_puback_settles_by_puback_in_a_group(mqtt, channel, queue):
    consumer = mqtt(manual_ack=True)
    consumer.subscribe(f"$queue/{queue}", user=[WORKERS, BY_PUBACK])
    amqp.publish(channel, queue, "done", "left")
    done, _ = consumer.take(2)
    consumer.puback(done)
    consumer.publish("flush", "", 1)
    consumer.drop()
    again = mqtt()
    again.subscribe(f"$queue/{queue}", user=[WORKERS, BY_PUBACK])
    assert payloads(again.take(1)) == ["left"]
    assert again.quiet()


def test_ack_property_explicit_needs_ack_without_a_group(mqtt, channel, queue):
    consumer = mqtt(client_id=f"{queue}-c")
    consumer.subscribe(f"$queue/{queue}", user=[("ack", "explicit")])
    amqp.publish(channel, queue, "done", "only PUBACKed")
    done, _ = consumer.take(2)
    assert user_property(done, "group-id") == f"{queue}-c"
    assert consumer.settle("ack", done) == 0
    consumer.drop()
    again = mqtt(client_id=f"{queue}-c")
    again.subscribe(f"$queue/{queue}", user=[("ack", "explicit")])
    assert payloads(again.take(1)) == ["only PUBACKed"]
    assert again.quiet()


def test_unknown_ack_property_is_refused(mqtt, queue):
    assert mqtt().subscribe(f"$queue/{queue}", user=[("ack", "sometimes")]) >= 0x80


@pytest.mark.parametrize("topic_filter", ["$queue/", "$queue//a", "$queue/{}/$ack", "$queue/+", "$queue/#"])
def test_filters_that_name_no_queue_are_refused(mqtt, queue, topic_filter):
    assert mqtt().subscribe(topic_filter.format(queue)) >= 0x80


def test_receive_maximum_limits_unsettled_messages(raw_mqtt, mqtt, channel, queue):
    """Messages beyond the credit of one consumer go to another."""
    narrow = raw_mqtt(props=b"\x21\x00\x02")
    props = wire.user_property(*WORKERS) + wire.user_property(*BY_PUBACK)
    narrow.send_bytes(wire.subscribe(f"$queue/{queue}", 1, props=props))
    narrow.expect(wire.SUBACK)
    amqp.publish(channel, queue, *(str(number) for number in range(10)))
    for _ in range(2):
        narrow.expect(wire.PUBLISH)
    narrow.quiet()
    wide = mqtt()
    wide.subscribe(f"$queue/{queue}", user=[WORKERS, BY_PUBACK])
    assert payloads(wide.take(8)) == [str(number) for number in range(2, 10)]


def test_prefetch_property_limits_unsettled_messages(mqtt, channel, queue):
    consumer = mqtt()
    consumer.subscribe(f"$queue/{queue}", user=[WORKERS, ("prefetch", "2")])
    amqp.publish(channel, queue, "a", "b", "c", "d")
    first, _ = consumer.take(2)
    assert consumer.quiet()
    consumer.settle("ack", first)
    assert payloads(consumer.take(1)) == ["c"]
    assert consumer.quiet()


def test_unsubscribe_returns_unsettled_messages(mqtt, channel, queue):
    consumer = mqtt()
    consumer.subscribe(f"$queue/{queue}", user=[WORKERS])
    amqp.publish(channel, queue, "a")
    consumer.take(1)
    assert consumer.unsubscribe(f"$queue/{queue}") == 0
    amqp.publish(channel, queue, "b")
    assert consumer.quiet()
    other = mqtt()
    other.subscribe(f"$queue/{queue}", user=[WORKERS])
    assert payloads(other.take(2)) == ["a", "b"]


@pytest.mark.timed
def test_consumer_receives_a_message_after_a_pause(broker, mqtt, channel, queue):
    consumer = mqtt(version=V311)
    consumer.subscribe(f"$queue/{queue}", 1)
    amqp.publish(channel, queue, "first")
    consumer.take_one()
    broker.pass_time(8)
    assert consumer.quiet()
    amqp.publish(channel, queue, "after the pause")
    assert payloads(consumer.take(1)) == ["after the pause"]


@VERSIONS
def test_thousand_messages_arrive_in_order(mqtt, raw_mqtt, queue, version):
    consumer = mqtt(version=version)
    consumer.subscribe(f"$queue/{queue}", 1)
    publisher = raw_mqtt(version=version)
    for number in range(1_000):
        data = wire.publish(f"$queue/{queue}/k", b"%d" % number, version=version, qos=1, packet_id=number + 1)
        publisher.send_bytes(data)
    assert payloads(consumer.take(1_000, 15)) == [str(number) for number in range(1_000)]
    assert consumer.quiet()
