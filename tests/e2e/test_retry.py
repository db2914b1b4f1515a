"""Back-off by the retry policy of the queue and by `delay` of `$nack`, over a kill."""

import time
from decimal import Decimal

import pytest

from tests.e2e import amqp
from tests.e2e.mqtt import payloads, user_property

pytestmark = pytest.mark.extension
WORKERS = ("consumer-group", "workers")
CONFIG = {
    "queues": [
        {"name": "slow", "retry": {"initial_backoff": "400ms", "multiplier": 2, "max_backoff": "10s"}},
        {"name": "slower", "retry": {"initial_backoff": "2s"}},
    ]
}


def test_back_off_delays_a_nacked_message_over_a_kill(own_broker, amqp_connect):
    broker = own_broker(CONFIG, timed=True)
    channel = amqp_connect(broker).channel()
    channel.confirm_delivery()
    amqp.publish(channel, "slow", "a", "b")
    amqp.publish(channel, "slower", "c")
    consumer = amqp.Collector(channel, "slow")
    first, second = consumer.wait(2)
    assert not first.method.redelivered
    begin = time.monotonic()
    channel.basic_nack(first.tag, requeue=True)
    channel.basic_ack(second.tag)
    again = consumer.wait(3)[2]
    assert time.monotonic() - begin > 0.35
    assert (again.body, again.method.redelivered, again.headers["x-delivery-count"]) == (b"a", True, 1)
    channel.basic_ack(again.tag)

    method, _, _ = channel.basic_get("slower")
    nacked = time.time()
    channel.basic_nack(method.delivery_tag, requeue=True)
    amqp.until_settled(broker, channel, "slow")
    broker.restart(kill=True)
    channel = amqp_connect(broker).channel()
    consumer = amqp.Collector(channel, "slower")
    [after] = consumer.wait(1, timeout_s=20)
    assert time.time() + broker.ahead_s - nacked > 1.9
    assert (after.body, after.method.redelivered, after.headers["x-delivery-count"]) == (b"c", True, 1)


def test_messages_of_a_closed_channel_return_without_back_off(own_broker, amqp_connect):
    broker = own_broker(CONFIG)
    connection = amqp_connect(broker)
    channel = connection.channel()
    channel.confirm_delivery()
    amqp.publish(channel, "slower", "a")
    amqp.Collector(channel, "slower").wait(1)
    channel.close()
    begin = time.monotonic()
    [again] = amqp.Collector(connection.channel(), "slower").wait(1)
    assert time.monotonic() - begin < 1
    assert again.method.redelivered


def test_nack_with_delay_returns_the_message_after_that_time(mqtt, channel, queue):
    consumer = mqtt()
    consumer.subscribe(f"$queue/{queue}", user=[WORKERS])
    amqp.publish(channel, queue, "a", "b")
    first, second = consumer.take(2)
    begin = time.monotonic()
    assert consumer.settle("nack", first, user=[("delay", "300")]) == 0
    assert consumer.settle("nack", second, user=[("delay", "1s")]) == 0
    message = consumer.take_one()
    assert 0.25 < time.monotonic() - begin < 0.9
    assert (message.payload, user_property(message, "attempts")) == (b"a", "2")
    assert payloads([consumer.take_one()]) == ["b"]
    assert 0.9 < time.monotonic() - begin < 3


@pytest.mark.parametrize("delay", ["soon", "-1", "1.5s", "99999999999999999999", "5000d", ""])
def test_invalid_delay_is_refused_and_changes_nothing(mqtt, channel, queue, delay):
    consumer = mqtt()
    consumer.subscribe(f"$queue/{queue}", user=[WORKERS])
    amqp.publish(channel, queue, "a")
    message = consumer.take_one()
    assert consumer.settle("nack", message, user=[("delay", delay)]) == 0x90
    assert consumer.settle("ack", message, user=[("delay", "1s")]) == 0x90
    assert consumer.settle("ack", message) == 0


def test_extended_lease_holds_and_a_kill_returns_the_message(own_broker, mqtt, amqp_connect):
    """The extended lease outlasts the visibility timeout; after the kill the message has its attempts."""
    broker = own_broker(
        {"queue_manager": {"visibility_timeout": "1s"}, "queues": [{"name": "q"}]}, timed=True
    )
    channel = amqp_connect(broker).channel()
    channel.confirm_delivery()
    amqp.publish(channel, "q", "a")
    consumer = mqtt(broker)
    consumer.subscribe("$queue/q", user=[WORKERS])
    message = consumer.take_one()
    assert consumer.settle("extend", message, user=[("lease", "60000")]) == 0
    broker.pass_time(1.8)
    assert consumer.quiet()
    assert consumer.settle("extend", message) == 0
    broker.restart(kill=True)
    consumer = mqtt(broker)
    consumer.subscribe("$queue/q", user=[WORKERS])
    again = consumer.take_one()
    assert (again.payload, user_property(again, "attempts")) == (b"a", "2")


def test_back_off_declared_over_amqp_delays_a_nacked_message(channel, name):
    arguments = {
        "x-retry-initial-backoff": 400,
        "x-retry-max-backoff": 500,
        "x-retry-multiplier": Decimal("1.5"),
    }
    for _ in range(2):
        channel.queue_declare(name, durable=True, arguments=arguments)
    consumer = amqp.Collector(channel, name)
    amqp.publish(channel, name, "a")
    begin = time.monotonic()
    channel.basic_nack(consumer.wait(1)[0].tag)
    assert consumer.wait(2)[1].body == b"a"
    assert 0.35 < time.monotonic() - begin < 1.5
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        channel.queue_declare(name, durable=True, arguments={**arguments, "x-retry-multiplier": 2})
    assert (closed.value.reply_code, "x-retry-multiplier" in closed.value.reply_text) == (406, True)


def test_declared_visibility_timeout_ends_the_lease_of_an_mqtt_consumer(mqtt, channel, name):
    channel.queue_declare(name, durable=True, arguments={"x-visibility-timeout": 300})
    amqp.publish(channel, name, "a")
    device = mqtt()
    device.subscribe(f"$queue/{name}", user=[WORKERS])
    again = device.take(2)[1]
    assert user_property(again, "attempts") == "2"
