"""Scheduled messages over both protocols, over a kill and over years."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.mqtt import MqttClient

pytestmark = pytest.mark.extension

FIFTY_DAYS_MS = 50 * 86_400_000  # more than 32 bits of milliseconds
YEARS_MS = 30 * 365 * 86_400_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_scheduled_messages_are_delivered_in_order_of_their_times(channel, queue):
    sent_ms = now_ms()
    collector = Collector(channel, queue, ack=True)
    amqp.publish(channel, queue, "third", headers={"x-delay": 1_200})
    amqp.publish(channel, queue, "first", headers={"deliver-at": sent_ms + 900})
    amqp.publish(channel, queue, "second", headers={"deliver-at": sent_ms + 1_000})
    amqp.publish(channel, queue, "at once", headers={"x-delay": 0})
    collector.wait(4)
    assert collector.bodies() == ["at once", "first", "second", "third"]
    assert now_ms() >= sent_ms + 1_200


def test_scheduled_message_is_neither_counted_nor_purged(channel, queue):
    amqp.publish(channel, queue, "later", headers={"x-delay": 1_000})
    assert amqp.count(channel, queue) == 0
    assert channel.queue_purge(queue).method.message_count == 0
    assert Collector(channel, queue).wait(1)[0].headers["x-delay"] == 1_000


def test_mqtt_user_properties_schedule_messages(mqtt, channel, queue):
    device = mqtt()
    sent_ms = now_ms()
    at = str(sent_ms + 800)
    assert device.publish(f"$queue/{queue}/eu", b"later", user=[("x-delay", "1000")]) == 0
    assert device.publish(f"$queue/{queue}/eu", b"sooner", user=[("deliver-at", at)]) == 0
    consumer = mqtt()
    consumer.subscribe(f"$queue/{queue}", user=[("consumer-group", "g")])
    assert [message.payload for message in consumer.take(2)] == [b"sooner", b"later"]
    assert now_ms() >= sent_ms + 1_000


def test_amqp_timestamp_schedules_a_message(channel, queue):
    at = datetime.now(UTC) + timedelta(seconds=2)  # whole seconds on the wire
    amqp.publish(channel, queue, "later", headers={"deliver-at": at})
    collector = Collector(channel, queue)
    assert collector.listen(0.5) == []
    collector.wait(1)
    assert now_ms() >= int(at.timestamp()) * 1_000


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
