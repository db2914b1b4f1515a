"""Leases of AMQP consumers: renewed while the channel lives, ended by `consumer_timeout` for one message."""

import pytest

from tests.e2e import amqp
from tests.e2e.amqp import Collector

pytestmark = pytest.mark.extension


def test_slow_amqp_consumer_keeps_its_message_beyond_the_visibility_timeout(
    impatient_broker, amqp_connect, name
):
    channel = amqp_connect(impatient_broker).channel()
    channel.queue_declare(name, durable=True)
    amqp.publish(channel, name, "slow work")
    slow = Collector(channel, name)
    idle = Collector(amqp_connect(impatient_broker).channel(), name)
    slow.wait(1)
    for _ in range(3):
        impatient_broker.pass_time(0.6)
        slow.wait_quiet()
        idle.wait_quiet()
    assert (len(slow.deliveries), len(idle.deliveries)) == (1, 0)
    channel.basic_ack(slow.deliveries[0].tag)
    assert channel.queue_declare(name, passive=True).method.message_count == 0


def test_consumer_timeout_returns_one_message_and_keeps_the_channel(own_broker, amqp_connect):
    process = own_broker({"queue_manager": {"consumer_timeout": "1s"}}, timed=True)
    channel = amqp_connect(process).channel()
    channel.queue_declare("jobs", durable=True)
    consumer = Collector(channel, "jobs")
    amqp.publish(channel, "jobs", "stuck")
    first = consumer.wait(1)[0]
    process.pass_time(1.1)
    second = consumer.wait(2)[1]
    assert (second.body, second.method.redelivered) == (b"stuck", True)
    channel.basic_ack(first.tag)  # too late, which is no error
    channel.basic_ack(second.tag)
    amqp.publish(channel, "jobs", "next")
    assert consumer.wait(3)[2].body == b"next"
    channel.basic_ack(consumer.deliveries[2].tag)
    consumer.wait_quiet()  # so that it has come
    process.pass_time(1.5)
    consumer.wait_quiet()
    assert consumer.bodies() == ["stuck", "stuck", "next"]
    assert channel.is_open


@pytest.mark.timed
def test_consumer_timeout_of_a_consumer_overrides_that_of_the_queue(broker, channel, name):
    channel.queue_declare(name, durable=True, arguments={"x-consumer-timeout": 5_000})
    amqp.publish(channel, name, "a")
    of_the_queue = Collector(channel, name)
    of_the_queue.wait(1)
    broker.pass_time(5.1)
    channel.basic_ack(of_the_queue.wait(2)[1].tag)
    of_the_queue.cancel()
    consumer = Collector(channel, name, arguments={"x-consumer-timeout": 60_000})
    amqp.publish(channel, name, "b")
    consumer.wait(1)
    broker.pass_time(8)
    assert len(consumer.wait_quiet()) == 1


def test_messages_of_a_hung_consumer_go_to_a_busy_one_without_credit(own_broker, amqp_connect):
    process = own_broker({"queue_manager": {"consumer_timeout": "1s"}}, timed=True)
    channel = amqp_connect(process).channel()
    channel.queue_declare("jobs", durable=True)
    hung = amqp_connect(process).channel()
    hung.basic_qos(prefetch_count=2)
    stuck = Collector(hung, "jobs")
    amqp.publish(channel, "jobs", "a", "b", "c")
    stuck.wait(2)
    channel.basic_qos(prefetch_count=1)
    busy = Collector(channel, "jobs")
    busy.wait(1)
    process.pass_time(0.7)
    busy.wait_quiet()
    channel.basic_ack(busy.deliveries[0].tag)
    amqp.publish(channel, "jobs", "d")
    busy.wait(2)  # its one credit is gone when the leases end
    process.pass_time(0.5)
    stuck.wait_quiet()
    for count in (3, 4):
        channel.basic_ack(busy.deliveries[-1].tag)
        busy.wait(count)
    assert busy.bodies() == ["c", "d", "a", "b"]
    assert stuck.bodies() == ["a", "b"]


def test_consumer_that_acknowledges_too_late_receives_messages_again(own_broker, amqp_connect):
    process = own_broker({"queue_manager": {"consumer_timeout": "2s"}}, timed=True)
    channel = amqp_connect(process).channel()
    channel.queue_declare("jobs", durable=True)
    slow_channel = amqp_connect(process).channel()
    slow_channel.basic_qos(prefetch_count=1)
    slow = Collector(slow_channel, "jobs")
    amqp.publish(channel, "jobs", "a")
    slow.wait(1)
    channel.basic_qos(prefetch_count=1)
    other = Collector(channel, "jobs")
    process.pass_time(2.1)
    other.wait(1)  # the lease ended
    amqp.publish(channel, "jobs", "b")
    assert slow.wait_quiet()[1:] == []
    slow_channel.basic_ack(slow.deliveries[0].tag)
    slow.wait(2)
    assert slow.bodies() == ["a", "b"]
