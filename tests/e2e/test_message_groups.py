"""Message groups with real clients: one consumer per key, in order, and when a key is released."""

import json

import pytest

from tests.e2e import amqp
from tests.e2e.amqp import Collector

pytestmark = pytest.mark.extension


@pytest.fixture(name="grouped")
def _grouped(channel, name):
    channel.queue_declare(name, durable=True, arguments={"x-message-groups": "sticky"})
    yield name
    if channel.is_open:
        channel.queue_delete(name)


def publish(channel, queue, *bodies):
    """The key of a body is its first letter."""
    for body in bodies:
        amqp.publish(channel, queue, body, headers={"JMSXGroupID": body[0]})


def member(amqp_connect, queue, prefetch=0, **options):
    channel = amqp_connect().channel()
    channel.basic_qos(prefetch_count=prefetch)
    return Collector(channel, queue, **options)


def test_key_stays_with_its_consumer_while_others_have_credit(channel, amqp_connect, grouped):
    first = member(amqp_connect, grouped, 1)
    second = member(amqp_connect, grouped, 1)
    publish(channel, grouped, "a1")
    owner, other = (first, second) if first.wait_quiet() else (second, first)
    owner.wait(1)
    publish(channel, grouped, "a2", "b1", "a3")
    other.wait(1)
    other.wait_quiet()
    assert other.bodies() == ["b1"]
    for count in (1, 2, 3):
        owner.wait(count)
        owner.channel.basic_ack(owner.deliveries[-1].tag)
    assert owner.bodies() == ["a1", "a2", "a3"]


def test_messages_of_a_consumer_that_left_go_to_another_in_order(channel, amqp_connect, grouped):
    connection = amqp_connect()
    holder = connection.channel()
    holder.basic_qos(prefetch_count=2)
    first = Collector(holder, grouped)
    publish(channel, grouped, "a1", "a2", "a3")
    first.wait(2)
    second = member(amqp_connect, grouped, 1, ack=True)
    publish(channel, grouped, "a4")
    assert second.wait_quiet() == []
    connection.close()
    second.wait(4)
    assert second.bodies() == ["a1", "a2", "a3", "a4"]
    assert [delivery.method.redelivered for delivery in second.deliveries] == [True, True, False, False]


def test_nacked_message_returns_to_the_consumer_of_its_key(channel, amqp_connect, grouped):
    first = member(amqp_connect, grouped, 2)
    publish(channel, grouped, "a1", "a2", "a3")
    first.wait(2)
    second = member(amqp_connect, grouped)
    first.channel.basic_nack(first.deliveries[0].tag)
    first.wait(3)
    assert first.bodies() == ["a1", "a2", "a1"]
    assert second.wait_quiet() == []


def test_sequence_minus_one_releases_the_key(channel, amqp_connect, grouped):
    first = member(amqp_connect, grouped, 2)
    publish(channel, grouped, "a1")
    first.wait(1)
    amqp.publish(channel, grouped, "a2", headers={"JMSXGroupID": "a", "JMSXGroupSeq": -1})
    publish(channel, grouped, "a3")
    first.wait(2)
    second = member(amqp_connect, grouped)
    assert second.wait_quiet() == [], "the messages before are not settled"
    publish(channel, grouped, "b1")
    second.wait(1)
    first.channel.basic_ack(first.deliveries[0].tag)
    first.channel.basic_ack(first.deliveries[1].tag)
    found = [*first.wait_quiet(), *second.wait_quiet()]
    assert sorted(amqp.bodies(found)) == ["a1", "a2", "a3", "b1"]


def test_basic_get_skips_keys_bound_to_others(channel, amqp_connect, grouped):
    first = member(amqp_connect, grouped, 1)
    publish(channel, grouped, "a1", "a2", "b1", "b2")
    first.wait(1)
    got = [amqp_connect().channel() for _ in range(2)]
    method, _, body = got[0].basic_get(grouped)
    assert (method.message_count, body) == (2, b"b1")
    assert got[1].basic_get(grouped)[0] is None, "b is bound to who has b1"
    assert got[0].basic_get(grouped)[2] == b"b2"


def test_mqtt_consumers_share_keys_in_order(channel, mqtt, name):
    channel.queue_declare(name, durable=True, arguments={"x-message-groups": "sticky"})
    members = [mqtt(), mqtt()]
    for each in members:
        each.subscribe(f"$queue/{name}", user=[("consumer-group", "g")])
    publisher = mqtt()
    keys = [f"device-{number % 5}" for number in range(50)]
    for number, key in enumerate(keys):
        publisher.publish(f"$queue/{name}", json.dumps([key, number]), user=[("group-id", key)])
    shares = []
    for each in members:
        taken = []
        while not each.quiet():
            message = each.take_one()
            each.settle("ack", message)
            taken.append(json.loads(message.payload))
        shares.append(taken)
    assert sorted(number for share in shares for _, number in share) == list(range(50))
    assert not {key for key, _ in shares[0]} & {key for key, _ in shares[1]}
    assert all(share == sorted(share, key=lambda pair: pair[1]) for share in shares)
    assert {len({key for key, _ in share}) for share in shares} == {2, 3}


def test_rebalance_gives_keys_to_a_new_consumer(channel, amqp_connect, name):
    channel.queue_declare(name, durable=True, arguments={"x-message-groups": "rebalance"})
    first = member(amqp_connect, name, 4, ack=True)
    publish(channel, name, *[f"{key}1" for key in "abcd"])
    first.wait(4)
    second = member(amqp_connect, name, 4, ack=True)
    publish(channel, name, *[f"{key}2" for key in "abcd"])
    second.wait(2)
    first.wait(6)
    assert {body[0] for body in first.bodies()[4:]} | {body[0] for body in second.bodies()} == set("abcd")


def test_unknown_message_groups_value_is_406(channel, name):
    with pytest.raises(amqp.ChannelClosedByBroker, match="x-message-groups"):
        channel.queue_declare(name, durable=True, arguments={"x-message-groups": "always"})


def test_order_of_each_key_survives_a_kill(own_broker, amqp_connect):
    broker = own_broker({"queues": [{"name": "orders", "message_groups": "sticky"}]})
    publisher = amqp_connect(broker).channel()
    publisher.confirm_delivery()
    first = amqp_connect(broker).channel()
    first.basic_qos(prefetch_count=3)
    holder = Collector(first, "orders")
    publish(publisher, "orders", *[f"{key}{number}" for number in range(6) for key in "abc"])
    holder.wait(3)
    broker.restart(kill=True)
    channel = amqp_connect(broker).channel()
    channel.basic_qos(prefetch_count=2)
    after = Collector(channel, "orders", ack=True)
    after.wait(18)
    for key in "abc":
        assert [body for body in after.bodies() if body[0] == key] == [f"{key}{n}" for n in range(6)]


def test_consumers_with_filters_are_refused(channel, mqtt, grouped):
    code = mqtt().subscribe(f"$queue/{grouped}", user=[("consumer-group", "g"), ("selector", "a = 1")])
    assert code == 0x83
    with pytest.raises(amqp.ChannelClosedByBroker, match="message groups") as closed:
        Collector(channel, grouped, arguments={"x-jms-selector": "a = 1"})
    assert closed.value.reply_code == 406
