"""Queues with priorities, over both protocols."""

import pytest

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.mqtt import MqttClient

pytestmark = pytest.mark.extension


@pytest.fixture
def ranked(channel, name):
    channel.queue_declare(name, durable=True, arguments={"x-max-priority": 9})
    yield name
    if channel.is_open:
        channel.queue_delete(name)


def test_message_of_the_highest_priority_is_delivered_first(channel, ranked):
    for body, priority in (("low", 1), ("none", None), ("high", 9), ("above", 200), ("low 2", 1)):
        amqp.publish(channel, ranked, body, priority=priority)
    assert amqp.count(channel, ranked) == 5
    collector = Collector(channel, ranked, ack=True)
    collector.wait(5)
    assert collector.bodies() == ["high", "above", "low", "low 2", "none"]
    assert collector.deliveries[0].properties.priority == 9


def test_later_message_of_higher_priority_overtakes_waiting_ones(channel, amqp_connect, ranked):
    consuming = amqp_connect().channel()
    consuming.basic_qos(prefetch_count=1)
    collector = Collector(consuming, ranked)
    amqp.publish(channel, ranked, "a", "b", priority=2)
    collector.wait(1)
    amqp.publish(channel, ranked, "urgent", priority=7)
    consuming.basic_nack(collector.deliveries[0].tag)
    collector.wait(2)
    assert collector.bodies() == ["a", "urgent"]
    consuming.basic_ack(collector.deliveries[1].tag)
    collector.wait(3)
    consuming.basic_ack(collector.deliveries[2].tag)
    collector.wait(4)
    assert collector.bodies() == ["a", "urgent", "a", "b"]
    assert collector.deliveries[2].headers["x-delivery-count"] == 1


def test_basic_get_purge_and_delete_cover_all_priorities(channel, name):
    channel.queue_declare(name, arguments={"x-max-priority": 31})
    amqp.publish(channel, name, "a")
    amqp.publish(channel, name, "b", "c", priority=31)
    method, _, body = channel.basic_get(name)
    assert (body, method.message_count) == (b"b", 2)
    assert channel.queue_purge(name).method.message_count == 2
    channel.basic_nack(method.delivery_tag)
    assert amqp.count(channel, name) == 1
    assert channel.queue_delete(name).method.message_count == 1


def test_mqtt_publishes_are_delivered_by_priority(mqtt, channel, ranked):
    device = mqtt()
    for body, priority in ((b"1", "1"), (b"5", "5"), (b"0", "0")):
        device.publish(f"$queue/{ranked}", body, user=[("priority", priority)])
    consumer = mqtt()
    consumer.subscribe(f"$queue/{ranked}", user=[("consumer-group", "g")])
    messages = consumer.take(3)
    assert [message.payload for message in messages] == [b"5", b"1", b"0"]
    assert consumer.settle("reject", messages[0]) == 0
    assert consumer.settle("ack", messages[1]) == 0


def test_max_priority_above_31_means_31(channel, name):
    channel.queue_declare(name, arguments={"x-max-priority": 255})
    channel.queue_declare(name, arguments={"x-max-priority": 255})
    for body, priority in (("30", 30), ("31", 31), ("255", 255), ("0", 0)):
        amqp.publish(channel, name, body, priority=priority)
    collector = Collector(channel, name, ack=True)
    collector.wait(4)
    assert collector.bodies() == ["31", "255", "30", "0"]
    assert [delivery.properties.priority for delivery in collector.deliveries] == [31, 255, 30, 0]


def test_max_priority_above_255_is_refused(channel, name):
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        channel.queue_declare(name, durable=True, arguments={"x-max-priority": 256})
    assert closed.value.reply_code == 406


def test_priorities_survive_a_kill(own_broker, amqp_connect):
    process = own_broker({"queues": [{"name": "jobs", "max_priority": 3, "dlq": "dead"}]})
    channel = amqp_connect(process).channel()
    channel.confirm_delivery()
    amqp.publish(channel, "jobs", "a", "b", priority=1)
    amqp.publish(channel, "jobs", "c", priority=3)
    channel.basic_reject(channel.basic_get("jobs")[0].delivery_tag, requeue=False)
    device = MqttClient(process.mqtt_port).connect()
    device.publish("$queue/jobs", b"d", user=[("priority", "2")])
    device.end()
    process.restart(kill=True)
    channel = amqp_connect(process).channel()
    collector = Collector(channel, "jobs", ack=True)
    collector.wait(3)
    assert collector.bodies() == ["d", "a", "b"]
    dead = Collector(channel, "dead", ack=True).wait(1)
    assert (dead[0].body, dead[0].headers["x-first-death-queue"]) == (b"c", "jobs")
