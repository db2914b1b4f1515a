"""MQTT publishes to `$queue/...`: acknowledged when safe, refused with a reason when malformed."""

import pytest

from tests.e2e import amqp
from tests.e2e import raw_mqtt as wire
from tests.e2e.mqtt import V5, V311, payloads

pytestmark = pytest.mark.extension
VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])


def drain(channel, queue: str) -> list[str]:
    drained = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        drained.append(got[2].decode())
    return drained


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledged_publish_is_in_the_queue(mqtt, channel, queue, version, qos):
    publisher = mqtt(version=version)
    for number in range(10):
        assert publisher.publish(f"$queue/{queue}/key", str(number), qos) == 0
        assert amqp.count(channel, queue) == number + 1
    assert drain(channel, queue) == [str(number) for number in range(10)]


@VERSIONS
def test_qos_0_publish_is_enqueued(mqtt, channel, queue, version):
    publisher = mqtt(version=version)
    for number in range(10):
        publisher.publish(f"$queue/{queue}", str(number), 0)
    publisher.publish(f"$queue/{queue}", "last", 1)  # comes after them
    assert drain(channel, queue) == [*(str(number) for number in range(10)), "last"]


def test_repeated_qos_2_publish_is_enqueued_once(raw_mqtt, channel, queue):
    connection = raw_mqtt(version=V311)
    first = wire.publish(f"$queue/{queue}", b"once", version=V311, qos=2, packet_id=5)
    again = wire.publish(f"$queue/{queue}", b"once", version=V311, qos=2, packet_id=5, dup=True)
    connection.send_bytes(first)
    connection.expect(wire.PUBREC)
    connection.send_bytes(again)
    connection.expect(wire.PUBREC)
    connection.send_bytes(wire.acknowledgement(wire.PUBREL, 5))
    connection.expect(wire.PUBCOMP)
    assert drain(channel, queue) == ["once"]


def test_acknowledgements_come_in_order(raw_mqtt, channel, queue):
    """[MQTT-4.6.0-2]"""
    connection = raw_mqtt()
    packets = [wire.publish(f"$queue/{queue}/k", b"%d" % pid, qos=1, packet_id=pid) for pid in range(1, 301)]
    connection.send_bytes(b"".join(packets))
    acknowledged = [int.from_bytes(connection.expect(wire.PUBACK).body[:2], "big") for _ in range(300)]
    assert acknowledged == list(range(1, 301))
    assert drain(channel, queue) == [str(number) for number in range(1, 301)]


def test_publish_with_retain_flag_is_enqueued_and_not_retained(mqtt, channel, queue):
    publisher = mqtt()
    publisher.publish(f"$queue/{queue}", "once", retain=True)
    assert drain(channel, queue) == ["once"]
    later = mqtt()
    later.subscribe(f"$queue/{queue}", user=[("consumer-group", "g"), ("ack", "puback")])
    # the new group begins at the oldest message that is still kept, if any is
    while not later.quiet():
        assert not later.take_one().retain


def test_queue_publishes_do_not_reach_plain_subscribers(mqtt, queue):
    watcher, publisher = mqtt(), mqtt()
    watcher.subscribe("#", 0)
    watcher.subscribe("+/+/#", 0)
    publisher.publish(f"$queue/{queue}/k", "for workers")
    publisher.publish(f"{queue}/plain", "for all")
    seen: list[str] = []
    while "for all" not in seen:
        seen += payloads(watcher.take(1))
    assert "for workers" not in seen


def test_plain_publishes_do_not_reach_queues(mqtt, channel, queue):
    publisher = mqtt()
    publisher.publish(f"queue/{queue}", "x")
    publisher.publish(queue, "x")
    assert amqp.count(channel, queue) == 0


@VERSIONS
def test_large_and_empty_payloads_are_enqueued_unchanged(mqtt, channel, queue, version):
    publisher = mqtt(version=version)
    publisher.publish(f"$queue/{queue}", b"", 1)
    publisher.publish(f"$queue/{queue}", b"x" * 2_000_000, 1)
    assert [len(body) for body in drain(channel, queue)] == [0, 2_000_000]


MALFORMED = [
    "$queue/",
    "$queue//key",
    "$queue/{}/$ack/more",
    "$queue/{}/$nack/$ack",
    "$queue/{}/a/$reject/b",
    "$queue/{}/$unknown",
    "$queue/{}/$acks",
    "$queue/$ack",
]


@pytest.mark.parametrize("topic", MALFORMED)
def test_malformed_addresses_are_refused_with_a_reason(mqtt, channel, queue, topic):
    publisher = mqtt()
    assert publisher.publish(topic.format(queue), "x", 1) >= 0x80
    assert publisher.publish(f"$queue/{queue}", "fine", 1) == 0, "still connected"
    assert drain(channel, queue) == ["fine"]


@pytest.mark.parametrize("topic", MALFORMED)
def test_malformed_address_at_qos_2_is_refused_in_pubrec(raw_mqtt, channel, queue, topic):
    """PUBREC says it, and the exchange ends there: the packet id is free again."""
    connection = raw_mqtt()
    for _ in range(2):
        connection.send_bytes(wire.publish(topic.format(queue), b"x", qos=2, packet_id=9))
        answer = connection.expect(wire.PUBREC)
        assert answer.body[:2] == b"\x00\x09"
        assert answer.body[2] >= 0x80
    connection.send_bytes(wire.publish(f"$queue/{queue}", b"fine", qos=2, packet_id=9))
    answer = connection.expect(wire.PUBREC)
    assert answer.body[2:3] in (b"", b"\x00")
    assert amqp.count(channel, queue) == 1


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1])
def test_malformed_address_does_not_prevent_later_publishes(mqtt, channel, queue, version, qos):
    """3.1.1 has no reasons: acknowledged and counted, or the connection ends; QoS 0 just is dropped."""
    publisher = mqtt(version=version)
    try:
        publisher.publish(f"$queue/{queue}/$unknown", "x", qos)
    except AssertionError:
        assert version == V311
        assert publisher.disconnected.is_set()
        publisher = mqtt(version=version)
    publisher.publish(f"$queue/{queue}", "fine", 1)
    assert drain(channel, queue) == ["fine"]


def test_auto_created_queue_keeps_messages_published_before_its_first_consumer(mqtt, name):
    publisher = mqtt()
    for number in range(5):
        assert publisher.publish(f"$queue/{name}/k", str(number)) == 0
    consumer = mqtt()
    assert consumer.subscribe(f"$queue/{name}", user=[("consumer-group", "g"), ("ack", "puback")]) == 1
    assert payloads(consumer.take(5)) == list("01234")


@VERSIONS
def test_publish_and_subscribe_without_auto_create_are_refused(strict_broker, mqtt, raw_mqtt, version):
    """0x87 or 0x90 in MQTT 5; never a silent drop: 3.1.1 gets SUBACK 0x80 and no PUBACK."""
    client = mqtt(strict_broker, version=version)
    assert client.publish("$queue/there", "x", 1) == 0
    assert client.subscribe("$queue/not-there", 1) in ((0x80,) if version == V311 else (0x87, 0x8F, 0x90))
    connection = raw_mqtt(strict_broker, version=version)
    connection.send_bytes(wire.publish("$queue/not-there", b"x", version=version, qos=1, packet_id=3))
    if version == V5:
        answer = connection.expect(wire.PUBACK)
        assert answer.body[2] in (0x87, 0x90)
    else:
        try:
            answer = connection.read(1)
        except TimeoutError:
            answer = None
        assert answer is None
