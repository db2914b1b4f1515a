"""What deliveries of a queue say of themselves: topics subscribed to, properties of the broker alone."""

import pytest

from tests.e2e import amqp
from tests.e2e.mqtt import V5, V311, payloads, user_properties

pytestmark = pytest.mark.extension
VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])


def original_topics(message):
    return [value for name, value in user_properties(message) if name == "original-topic"]


def test_publisher_s_properties_do_not_shadow_those_of_the_broker(mqtt, name):
    forged = ["message-id", "group-id", "queue", "offset", "attempts", "original-topic", "x-stream-offset"]
    consumer = mqtt()
    consumer.subscribe(f"$queue/{name}", user=[("consumer-group", "workers")])
    consumer.publish(f"$queue/{name}", "x", user=[*((key, "forged") for key in forged), ("mine", "kept")])
    message = consumer.take_one()
    told = user_properties(message)
    assert told[: len(forged) + 1] == [*((f"x-original-{key}", "forged") for key in forged), ("mine", "kept")]
    assert told[len(forged) + 1 :] == [
        ("message-id", f"{name}:0"),
        ("group-id", "workers"),
        ("queue", name),
        ("offset", "0"),
        ("attempts", "1"),
    ]
    first = dict(reversed(told))
    claim = [(key, first[key]) for key in ("message-id", "group-id")]
    assert consumer.publish(f"$queue/{name}/$ack", user=claim) == 0


def test_amqp_headers_do_not_shadow_properties_of_the_broker(mqtt, channel, queue):
    consumer = mqtt()
    consumer.subscribe(f"$queue/{queue}")
    amqp.publish(channel, queue, "x", headers={"attempts": "7", "group-id": "forged"})
    told = user_properties(consumer.take_one())
    assert ("x-original-attempts", "7") in told
    assert [value for name, value in told if name == "attempts"] == ["1"]
    assert ("group-id", "forged") not in told


@pytest.mark.parametrize("over", ["amqp", "mqtt"])
def test_forged_delivery_count_is_not_taken_for_the_broker_s(mqtt, channel, queue, over):
    collector = amqp.Collector(channel, queue, ack=True)
    if over == "amqp":
        for number in range(3):  # with properties that vary too
            amqp.publish(channel, queue, "x", headers={"x-delivery-count": 9, "number": number})
    else:
        for _ in range(3):
            mqtt().publish(f"$queue/{queue}", "x", user=[("x-delivery-count", "9")])
    collector.wait(3)
    for delivery in collector.deliveries:
        headers = delivery.properties.headers
        assert "x-delivery-count" not in headers
        assert str(headers["x-original-x-delivery-count"]) == "9"


@VERSIONS
@pytest.mark.parametrize(
    ("topic_filter", "routing_key", "topic"),
    [
        ("$queue/{q}/+", "eu", "$queue/{q}/eu"),
        ("$queue/{q}/#", "", "$queue/{q}"),
        ("$queue/{q}/#", "eu/1", "$queue/{q}/eu/1"),
        ("$queue/{q}", "eu/1", "$queue/{q}"),
        ("$share/g/$queue/{q}", "eu", "$queue/{q}"),
        ("$share/g/$queue/{q}/eu/+", "eu/1", "$queue/{q}/eu/1"),
    ],
)
def test_deliveries_have_a_topic_that_was_subscribed_to(
    mqtt, name, version, topic_filter, routing_key, topic
):
    consumer = mqtt(version=version)
    consumer.subscribe(topic_filter.format(q=name))
    published_to = f"$queue/{name}/{routing_key}".rstrip("/")
    consumer.publish(published_to, "x")
    message = consumer.take_one()
    assert message.topic == topic.format(q=name)
    if version == V5:
        assert original_topics(message) == ([] if published_to == message.topic else [published_to])


@pytest.mark.parametrize("over", ["amqp", "mqtt"])
def test_no_level_of_a_pattern_stands_for_an_empty_routing_key(mqtt, channel, queue, over):
    """Published to the queue itself, whatever the protocol."""
    consumer = mqtt()
    consumer.subscribe(f"$queue/{queue}/+")
    if over == "amqp":
        amqp.publish(channel, queue, "to the queue")
        amqp.publish(channel, f"$queue/{queue}/eu", "to a key")
    else:
        consumer.publish(f"$queue/{queue}", "to the queue")
        consumer.publish(f"$queue/{queue}/eu", "to a key")
    assert payloads(consumer.take(1)) == ["to a key"]
    assert consumer.quiet()


def test_delivery_by_a_second_binding_is_addressed_within_the_queue(mqtt, own_broker, name):
    bindings = ["$queue/orders/#", "$queue/sales/#"]
    broker = own_broker({"queues": [{"name": "orders", "topics": bindings}]})
    consumer = mqtt(broker)
    consumer.subscribe("$queue/orders/#")
    consumer.publish("$queue/sales/eu", "x")
    message = consumer.take_one()
    assert message.topic == "$queue/orders/$queue/sales/eu"
    assert original_topics(message) == ["$queue/sales/eu"]


def test_expiry_above_ten_years_is_that_of_ten_years(mqtt, name):
    consumer = mqtt()
    consumer.subscribe(f"$queue/{name}")
    assert consumer.publish(f"$queue/{name}", "x", MessageExpiryInterval=0xFFFFFFFF) == 0
    ten_years_s = 3_650 * 86_400
    assert ten_years_s - 10 <= consumer.take_one().properties.MessageExpiryInterval <= ten_years_s
