"""Consumer groups and routing-key patterns over AMQP: what only SluiceMQ's queues do."""

import time

import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.e2e import amqp
from tests.e2e.amqp import Collector

pytestmark = pytest.mark.extension


def in_group(channel, queue: str, group: str, **options) -> Collector:
    return Collector(channel, queue, arguments={"x-consumer-group": group}, **options)


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def test_each_group_receives_every_message(channel, amqp_connect, queue):
    connection = amqp_connect()
    first = in_group(connection.channel(), queue, "billing", ack=True)
    second = in_group(connection.channel(), queue, "shipping", ack=True)
    amqp.publish(channel, queue, *numbers(50))
    for group in (first, second):
        group.wait(50)
        assert group.bodies() == numbers(50)


def test_new_group_begins_at_the_oldest_message(channel, amqp_connect, queue):
    amqp.publish(channel, queue, *numbers(10))
    connection = amqp_connect()
    for group in ("billing", "shipping"):
        consumer = in_group(connection.channel(), queue, group)
        consumer.wait(10)
        assert consumer.bodies() == numbers(10)


def test_consumers_of_a_group_share_the_messages(channel, amqp_connect, queue):
    members = []
    for _ in range(3):
        consuming = amqp_connect().channel()
        consuming.basic_qos(prefetch_count=10)
        members.append(in_group(consuming, queue, "workers", ack=True))
    other = in_group(amqp_connect().channel(), queue, "auditors", ack=True)
    amqp.publish(channel, queue, *numbers(60))
    other.wait(60)
    for member in members:
        member.wait(5)
    for _ in range(20):
        for member in members:
            member.wait_quiet()
    assert sorted(body for member in members for body in member.bodies()) == sorted(numbers(60))
    assert other.bodies() == numbers(60)


def test_default_group_receives_every_message_beside_named_groups(channel, amqp_connect, queue):
    connection = amqp_connect()
    plain = Collector(connection.channel(), queue, ack=True)
    named = in_group(connection.channel(), queue, "workers", ack=True)
    amqp.publish(channel, queue, *numbers(5))
    assert [consumer.wait(5) and consumer.bodies() for consumer in (plain, named)] == [numbers(5)] * 2


def test_settling_in_one_group_leaves_the_other_unsettled(channel, amqp_connect, queue):
    connection = amqp_connect()
    holding = in_group(connection.channel(), queue, "holding")
    acking = in_group(connection.channel(), queue, "acking", ack=True)
    amqp.publish(channel, queue, "a", "b")
    holding.wait(2)
    acking.wait(2)
    connection.close()
    again = amqp_connect()
    returned = in_group(again.channel(), queue, "holding").wait(2)
    assert amqp.bodies(returned) == ["a", "b"]
    assert all(delivery.method.redelivered for delivery in returned)
    assert in_group(again.channel(), queue, "acking").wait_quiet() == []


def test_claims_of_a_lost_connection_return_to_their_group_only(channel, amqp_connect, queue):
    leaving = amqp_connect()
    staying = in_group(amqp_connect().channel(), queue, "other", ack=True)
    in_group(leaving.channel(), queue, "workers")
    amqp.publish(channel, queue, "x")
    staying.wait(1)
    leaving.close()
    assert len(staying.wait_quiet()) == 1
    assert in_group(amqp_connect().channel(), queue, "workers").wait(1)[0].body == b"x"


def test_deliveries_to_a_group_have_group_and_offset_headers(channel, amqp_connect, queue):
    consumer = in_group(amqp_connect().channel(), queue, "workers", ack=True)
    amqp.publish(channel, queue, "a", "b", "c", headers={"mine": 1})
    deliveries = consumer.wait(3)
    assert [delivery.headers["x-group-id"] for delivery in deliveries] == ["workers"] * 3
    offsets = [delivery.headers["x-offset"] for delivery in deliveries]
    assert offsets == [offsets[0], offsets[0] + 1, offsets[0] + 2]
    assert all(delivery.headers["mine"] == 1 for delivery in deliveries)


def test_deliveries_without_a_group_have_no_added_headers(channel, queue):
    amqp.publish(channel, queue, "x", headers={"mine": 1})
    assert Collector(channel, queue, ack=True).wait(1)[0].headers == {"mine": 1}


@pytest.mark.parametrize(
    ("pattern", "received"),
    [
        ("", ["", "eu", "eu/a", "eu/a/b", "europe/a", "us", "us/a"]),
        ("/#", ["", "eu", "eu/a", "eu/a/b", "europe/a", "us", "us/a"]),
        ("/eu", ["eu"]),
        ("/eu/#", ["eu", "eu/a", "eu/a/b"]),
        ("/eu/+", ["eu/a"]),
        ("/+", ["eu", "us"]),
        ("/+/a", ["eu/a", "europe/a", "us/a"]),
        ("/+/a/#", ["eu/a", "eu/a/b", "europe/a", "us/a"]),
        ("/asia/#", []),
    ],
)
def test_pattern_selects_by_mqtt_rules(channel, amqp_connect, queue, pattern, received):
    keys = ["", "eu", "eu/a", "eu/a/b", "europe/a", "us", "us/a"]
    for key in keys:
        amqp.publish(channel, f"$queue/{queue}/{key}".rstrip("/"), key)
    consumer = Collector(
        amqp_connect().channel(), f"$queue/{queue}{pattern}", arguments={"x-consumer-group": "g"}
    )
    consumer.wait(len(received))
    consumer.wait_quiet()
    assert consumer.bodies() == received


def test_pattern_without_a_group_selects_for_the_default_group(channel, amqp_connect, queue):
    amqp.publish(channel, f"$queue/{queue}/us/1", "us")
    consumer = Collector(amqp_connect().channel(), f"$queue/{queue}/eu/#", ack=True)
    amqp.publish(channel, f"$queue/{queue}/eu/1", "eu")
    consumer.wait(1)
    consumer.wait_quiet()
    assert consumer.bodies() == ["eu"]


def test_patterns_of_one_group_progress_independently(channel, amqp_connect, queue):
    connection = amqp_connect()
    europe = in_group(connection.channel(), f"$queue/{queue}/eu/#", "workers", ack=True)
    large = in_group(connection.channel(), f"$queue/{queue}/+/large", "workers", ack=True)
    for key in ("eu/large", "eu/small", "us/large"):
        amqp.publish(channel, f"$queue/{queue}/{key}", key)
    europe.wait(2)
    large.wait(2)
    assert europe.bodies() == ["eu/large", "eu/small"]
    assert large.bodies() == ["eu/large", "us/large"]
    assert europe.deliveries[0].headers["x-group-id"] == "workers@eu/#"


def test_messages_that_do_not_match_a_pattern_delay_nothing(channel, amqp_connect, queue):
    for number in range(300):
        amqp.publish(channel, f"$queue/{queue}/{'eu' if number % 100 == 99 else 'us'}/x", str(number))
    consumer = in_group(amqp_connect().channel(), f"$queue/{queue}/eu/#", "g", ack=True)
    consumer.wait(3)
    assert consumer.bodies() == ["99", "199", "299"]


def test_delivery_has_the_address_published_to(channel, amqp_connect, queue):
    consumer = in_group(amqp_connect().channel(), f"$queue/{queue}/eu/#", "g", ack=True)
    amqp.publish(channel, f"$queue/{queue}/eu/berlin", "x")
    assert consumer.wait(1)[0].method.routing_key == f"$queue/{queue}/eu/berlin"


def test_publish_reaches_every_bound_queue(own_broker, amqp_connect):
    process = own_broker(
        {
            "queues": [
                {"name": "orders", "topics": ["$queue/orders/#"]},
                {"name": "audit", "topics": ["$queue/orders/#", "$queue/audit/#"]},
                {"name": "germany", "topics": ["$queue/orders/de/#"]},
            ]
        }
    )
    channel = amqp_connect(process).channel()
    channel.confirm_delivery()
    amqp.publish(channel, "$queue/orders/de/1", "de")
    amqp.publish(channel, "$queue/orders/fr/1", "fr")
    amqp.publish(channel, "$queue/audit", "audit only")
    expected = {"orders": ["de", "fr"], "audit": ["de", "fr", "audit only"], "germany": ["de"]}
    for name, wanted in expected.items():
        consumer = Collector(channel, name, ack=True)
        consumer.wait(len(wanted))
        consumer.wait_quiet()
        assert consumer.bodies() == wanted


@pytest.mark.parametrize("group", [None, "named"])
def test_consumers_may_be_told_where_messages_are_and_since_when(channel, amqp_connect, queue, group):
    before_ms = time.time() * 1_000 - 1
    amqp.publish(channel, queue, *numbers(3))
    amqp.publish(channel, queue, "3", headers={"k": "v"})
    amqp.publish(channel, queue, "4", headers={"k": "w"}, message_id="m")
    arguments = {"x-tell-offset": True, **({"x-consumer-group": group} if group else {})}
    first = Collector(amqp_connect().channel(), queue, arguments=arguments)
    told = [delivery.headers for delivery in first.wait(5)]
    assert [headers["x-offset"] for headers in told] == list(range(5))
    assert all(before_ms <= headers["x-timestamp"] <= time.time() * 1_000 + 1 for headers in told)
    assert {headers.get("x-group-id") for headers in told} == {group}
    assert [headers.get("k") for headers in told[3:]] == ["v", "w"]
    first.channel.basic_recover(requeue=True)
    again = [delivery.headers for delivery in first.wait(10)[5:]]
    assert [(headers["x-offset"], headers["x-timestamp"]) for headers in again] == [
        (headers["x-offset"], headers["x-timestamp"]) for headers in told
    ]
    assert again[0]["x-delivery-count"] == 1


def test_a_consumer_that_is_not_plain_about_it_is_refused(channel, queue):
    with pytest.raises(ChannelClosedByBroker, match="x-tell-offset"):
        channel.basic_consume(queue, lambda *_: None, arguments={"x-tell-offset": "yes"})
