"""Scheduled messages over both protocols, over a kill and over years."""

import time
from datetime import UTC, datetime

import pytest

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.mqtt import MqttClient

pytestmark = pytest.mark.extension

FIFTY_DAYS_MS = 50 * 86_400_000  # more than 32 bits of milliseconds
YEARS_MS = 30 * 365 * 86_400_000


def now_ms(broker=None) -> int:
    """The time of our clock, or of the broker's."""
    ahead_s = broker.ahead_s if broker else 0.0
    return time.time_ns() // 1_000_000 + int(ahead_s * 1_000)


@pytest.mark.timed
def test_scheduled_messages_are_delivered_in_order_of_their_times(broker, channel, queue):
    sent_ms = now_ms(broker)
    collector = Collector(channel, queue, ack=True)
    amqp.publish(channel, queue, "third", headers={"x-delay": 9_000})
    amqp.publish(channel, queue, "first", headers={"deliver-at": sent_ms + 6_000})
    amqp.publish(channel, queue, "second", headers={"deliver-at": sent_ms + 7_000})
    amqp.publish(channel, queue, "at once", headers={"x-delay": 0})
    collector.wait(1)
    broker.pass_time(5)
    assert amqp.bodies(collector.wait_quiet()) == ["at once"]
    broker.pass_time(5)
    collector.wait(4)
    assert collector.bodies() == ["at once", "first", "second", "third"]


@pytest.mark.timed
def test_scheduled_message_is_neither_counted_nor_purged(broker, channel, queue):
    amqp.publish(channel, queue, "later", headers={"x-delay": 5_000})
    assert amqp.count(channel, queue) == 0
    assert channel.queue_purge(queue).method.message_count == 0
    broker.pass_time(5.1)
    assert Collector(channel, queue).wait(1)[0].headers["x-delay"] == 5_000


@pytest.mark.timed
def test_mqtt_user_properties_schedule_messages(broker, mqtt, channel, queue):
    device = mqtt()
    at = str(now_ms(broker) + 6_000)
    assert device.publish(f"$queue/{queue}/eu", b"later", user=[("x-delay", "8000")]) == 0
    assert device.publish(f"$queue/{queue}/eu", b"sooner", user=[("deliver-at", at)]) == 0
    consumer = mqtt()
    consumer.subscribe(f"$queue/{queue}", user=[("consumer-group", "g")])
    broker.pass_time(5)
    assert consumer.quiet()
    broker.pass_time(4)
    assert [message.payload for message in consumer.take(2)] == [b"sooner", b"later"]


@pytest.mark.timed
def test_amqp_timestamp_schedules_a_message(broker, channel, queue):
    at = datetime.fromtimestamp(now_ms(broker) / 1_000 + 8, UTC)  # whole seconds on the wire
    amqp.publish(channel, queue, "later", headers={"deliver-at": at})
    collector = Collector(channel, queue)
    broker.pass_time(5)
    assert collector.wait_quiet() == []
    broker.pass_time(4)
    collector.wait(1)


def test_invalid_delay_is_refused(mqtt, channel, queue):
    assert mqtt().publish(f"$queue/{queue}", b"", user=[("x-delay", "soon")]) >= 0x80
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        amqp.publish(channel, queue, "x", headers={"x-delay": "soon"})
    assert closed.value.reply_code == 406
    assert "x-delay" in closed.value.reply_text


def test_scheduled_messages_survive_a_kill(own_broker, amqp_connect):
    process = own_broker()
    channel = amqp_connect(process).channel()
    channel.confirm_delivery()
    channel.queue_declare("jobs", durable=True)
    device = MqttClient(process.mqtt_port).connect()
    due_ms = now_ms() + 2_000
    device.publish("$queue/jobs", b"device", user=[("deliver-at", str(due_ms))])
    amqp.publish(channel, "jobs", *map(str, range(50)), headers={"deliver-at": due_ms})
    amqp.publish(channel, "jobs", "fifty days", headers={"x-delay": FIFTY_DAYS_MS})
    amqp.publish(channel, "jobs", "years", headers={"x-delay": YEARS_MS})
    amqp.publish(channel, "jobs", "past", headers={"deliver-at": 1})
    device.end()
    process.restart(kill=True)
    collector = Collector(amqp_connect(process).channel(), "jobs", ack=True)
    collector.wait(52)
    assert now_ms() >= due_ms
    assert collector.bodies() == ["past", "device", *map(str, range(50))]
    assert len(collector.wait_quiet()) == 52
