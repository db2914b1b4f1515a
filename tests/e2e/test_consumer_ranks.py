"""Consumer priorities, the single active consumer and exclusive consumers, over both protocols."""

import pytest

from tests.e2e import amqp
from tests.e2e.amqp import Collector


def test_consumer_of_higher_priority_is_served_first(channel, amqp_connect, queue):
    low = Collector(amqp_connect().channel(), queue)
    high = Collector(amqp_connect().channel(), queue, arguments={"x-priority": 10})
    amqp.publish(channel, queue, "a", "b", "c")
    high.wait(3)
    assert low.bodies() == []


def test_next_consumer_takes_over_when_the_single_active_consumer_leaves(channel, amqp_connect, name):
    channel.queue_declare(name, durable=True, arguments={"x-single-active-consumer": True})
    holder = amqp_connect().channel()
    holder.basic_qos(prefetch_count=2)
    first = Collector(holder, name)
    second = Collector(amqp_connect().channel(), name, ack=True)
    amqp.publish(channel, name, "a", "b", "c")
    first.wait(2)
    second.wait_quiet()
    assert second.bodies() == []
    holder._impl._consumers.clear()  # it would cancel them first, and "c" could go to the second one before
    holder._impl.close()
    holder.connection.process_data_events(0)
    second.wait(3)
    assert second.bodies() == ["a", "b", "c"]


def test_next_consumer_is_served_while_the_cancelled_one_still_holds_messages(channel, amqp_connect, name):
    channel.queue_declare(name, durable=True, arguments={"x-single-active-consumer": True})
    holder = amqp_connect().channel()
    holder.basic_qos(prefetch_count=2)
    first = Collector(holder, name)
    second = Collector(amqp_connect().channel(), name, ack=True)
    amqp.publish(channel, name, "a", "b", "c")
    first.wait(2)
    first.cancel()
    second.wait(1)
    assert second.bodies() == ["c"]
    holder.basic_nack(0, multiple=True, requeue=True)
    second.wait(3)
    assert second.bodies() == ["c", "a", "b"]
    channel.queue_delete(name)


def test_single_active_consumer_that_was_given_nothing_yet_stays_it_beside_a_higher_one(
    channel, amqp_connect, name
):
    channel.queue_declare(name, durable=True, arguments={"x-single-active-consumer": True})
    connection = amqp_connect()
    first = Collector(connection.channel(), name, ack=True)
    higher = Collector(amqp_connect().channel(), name, ack=True, arguments={"x-priority": 2})
    highest = Collector(amqp_connect().channel(), name, ack=True, arguments={"x-priority": 3})
    amqp.publish(channel, name, "a")
    assert first.wait(1)[0].body == b"a"
    connection.close()
    channel.queue_declare(name, passive=True)
    amqp.publish(channel, name, "b")
    assert highest.wait(1)[0].body == b"b"
    assert higher.bodies() == []


@pytest.mark.parametrize("arguments", [{}, {"x-single-active-consumer": True}])
def test_basic_get_beside_the_only_consumer_gets_what_that_has_no_credit_for(channel, name, arguments):
    channel.queue_declare(name, durable=True, arguments=arguments)
    channel.basic_qos(prefetch_count=1)
    Collector(channel, name, exclusive=not arguments).wait_quiet()
    amqp.publish(channel, name, "consumed", "got")
    assert channel.basic_get(name)[2] == b"got"
    channel.queue_delete(name)


def test_mqtt_consumer_of_higher_priority_is_served_first(mqtt, channel, queue):
    low = mqtt()
    low.subscribe(f"$queue/{queue}", user=[("consumer-group", "g")])
    high = mqtt()
    high.subscribe(f"$queue/{queue}", user=[("consumer-group", "g"), ("x-priority", "3")])
    amqp.publish(channel, queue, "a", "b")
    assert [message.payload for message in high.take(2)] == [b"a", b"b"]
    assert low.quiet()


def test_second_consumer_beside_an_exclusive_mqtt_consumer_is_refused(mqtt, queue):
    first = mqtt()
    user = [("consumer-group", "g"), ("exclusive", "true")]
    assert first.subscribe(f"$queue/{queue}", user=user) == 1
    assert mqtt().subscribe(f"$queue/{queue}", user=user) >= 0x80
    assert mqtt().subscribe(f"$queue/{queue}", user=[("exclusive", "perhaps")]) >= 0x80
