"""Filters of consumers and groups, with real clients."""

import pytest

from tests.e2e import amqp
from tests.e2e.amqp import Collector

pytestmark = pytest.mark.extension


def send(channel, queue, *messages):
    for region, qty in messages:
        amqp.publish(channel, queue, f"{region}{qty}", headers={"region": region, "qty": qty})


def consume(amqp_connect, queue, **arguments):
    arguments = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    return Collector(amqp_connect().channel(), queue, ack=True, arguments=arguments)


def test_each_consumer_receives_what_its_selector_accepts(channel, amqp_connect, queue):
    eu = consume(amqp_connect, queue, jms_selector="region = 'eu' AND qty > 10")
    us = consume(amqp_connect, queue, application_properties_filter={"region": "us"})
    send(channel, queue, ("eu", 5), ("eu", 11), ("us", 1), ("asia", 12), ("eu", 12))
    assert amqp.bodies(eu.wait(2)) == ["eu11", "eu12"]
    assert amqp.bodies(us.wait(1)) == ["us1"]
    rest = Collector(amqp_connect().channel(), queue, ack=True)
    assert amqp.bodies(rest.wait(2)) == ["eu5", "asia12"]


def test_message_must_match_property_filter_and_selector(channel, amqp_connect, queue):
    orders = consume(
        amqp_connect, queue, jms_selector="JMSPriority > 4", properties_filter={"subject": "&p:order."}
    )
    amqp.publish(channel, queue, "a", type="order.new", priority=3)
    amqp.publish(channel, queue, "b", type="order.new", priority=7)
    amqp.publish(channel, queue, "c", type="refund", priority=7)
    assert amqp.bodies(orders.wait(1)) == ["b"]
    assert amqp.bodies(orders.wait_quiet()) == ["b"]


def test_invalid_selector_is_406_with_its_column(amqp_connect, queue):
    with pytest.raises(amqp.ChannelClosedByBroker, match=r"x-jms-selector: selector, column 15: ") as closed:
        consume(amqp_connect, queue, jms_selector="region = 'eu' >")
    assert closed.value.reply_code == 406
    with pytest.raises(amqp.ChannelClosedByBroker, match="x-properties-filter") as closed:
        consume(amqp_connect, queue, properties_filter={"nonsense": "x"})
    assert closed.value.reply_code == 406


def test_mqtt_consumers_filter_by_user_properties(mqtt, queue):
    user = [("consumer-group", "g"), ("ack", "puback")]
    eu = mqtt()
    eu.subscribe(f"$queue/{queue}", user=[*user, ("selector", "region = 'eu'")])
    us = mqtt()
    us.subscribe(f"$queue/{queue}", user=[*user, ("x-application-properties-filter", '{"region": "us"}')])
    publisher = mqtt()
    for region in ("eu", "us", "asia", "eu"):
        publisher.publish(f"$queue/{queue}", region, user=[("region", region)])
    assert [message.payload for message in eu.take(2)] == [b"eu", b"eu"]
    assert [message.payload for message in us.take(1)] == [b"us"]
    assert mqtt().subscribe(f"$queue/{queue}", user=[*user, ("selector", "region = ")]) == 0x83


def test_group_selector_applies_to_its_consumers(channel, amqp_connect, mqtt, queue):
    eu = consume(amqp_connect, queue, consumer_group="eu", group_selector="region = 'eu'")
    send(channel, queue, ("us", 1), ("eu", 2), ("eu", 3))
    assert amqp.bodies(eu.wait(2)) == ["eu2", "eu3"]
    user = [("consumer-group", "eu"), ("x-group-selector", "region = 'us'")]
    assert mqtt().subscribe(f"$queue/{queue}", user=user) == 0x83
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        consume(amqp_connect, queue, consumer_group="eu", group_selector="region = 'us'")
    assert closed.value.reply_code == 406


def test_messages_that_no_filter_accepted_survive_a_kill(own_broker, amqp_connect, name):
    broker = own_broker(timed=True)
    channel = amqp_connect(broker).channel()
    channel.queue_declare(name, durable=True)
    channel.queue_declare("other", durable=True)
    channel.confirm_delivery()
    arguments = {"x-jms-selector": "region = 'eu'"}
    eu = Collector(amqp_connect(broker).channel(), name, ack=True, arguments=arguments)
    send(channel, name, ("us", 1), ("eu", 2), ("us", 3), ("eu", 4))
    eu.wait(2)
    eu.wait_quiet()
    assert amqp.count(channel, name) == 2
    amqp.until_settled(broker, channel, "other")
    broker.restart(kill=True)
    rest = Collector(amqp_connect(broker).channel(), name, ack=True)
    assert amqp.bodies(rest.wait(2)) == ["us1", "us3"]
    assert amqp.bodies(rest.wait_quiet()) == ["us1", "us3"]
