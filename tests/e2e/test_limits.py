"""Configured limits and policies of queues are enforced, and the publisher told, over either protocol."""

import time
from collections.abc import Iterator

import pytest
from pika.exceptions import NackError

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import user_property

pytestmark = pytest.mark.extension
QUOTA_EXCEEDED = 0x97

CONFIG = {
    "queues": [
        {"name": "small", "limits": {"max_message_size": "100B"}},
        {"name": "short", "limits": {"max_depth": 3}},
        {"name": "short-mqtt", "limits": {"max_depth": 3}},
        {"name": "twice", "retry": {"max_retries": 1}},
        {"name": "lease", "visibility_timeout": "500ms"},
        {"name": "memory", "type": "ephemeral"},
    ]
}


@pytest.fixture(scope="module")
def limited(tmp_path_factory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("limits"), CONFIG).start()
    yield process
    process.kill9()


@pytest.fixture
def publishing(limited, amqp_connect):
    channel = amqp_connect(limited).channel()
    channel.confirm_delivery()
    return channel


def test_message_above_the_size_limit_is_refused_over_amqp(publishing):
    amqp.publish(publishing, "small", b"x" * 100)
    with pytest.raises((NackError, amqp.ChannelClosedByBroker)):
        amqp.publish(publishing, "small", b"x" * 101)


def test_message_above_the_size_limit_is_refused_over_mqtt(limited, mqtt, publishing):
    publishing.queue_purge("small")
    client = mqtt(limited)
    assert client.publish("$queue/small", b"x" * 100) == 0
    assert client.publish("$queue/small", b"x" * 101) == QUOTA_EXCEEDED
    assert amqp.count(publishing, "small") == 1


def test_full_queue_refuses_over_amqp(publishing):
    amqp.publish(publishing, "short", "a", "b", "c")
    with pytest.raises(NackError):
        amqp.publish(publishing, "short", "d")
    method, _, body = publishing.basic_get("short", auto_ack=True)
    assert body == b"a"
    amqp.publish(publishing, "short", "e")
    assert [publishing.basic_get("short", auto_ack=True)[2] for _ in range(3)] == [b"b", b"c", b"e"]
    assert method.message_count == 2


def test_full_queue_refuses_over_mqtt(limited, mqtt):
    client = mqtt(limited)
    assert [client.publish("$queue/short-mqtt", str(number)) for number in range(4)] == [
        0,
        0,
        0,
        QUOTA_EXCEEDED,
    ]


def test_message_is_not_delivered_beyond_max_retries(publishing):
    amqp.publish(publishing, "twice", "bad", "good")
    consumer = Collector(publishing, "twice")
    for position, expected in enumerate(["bad", "good", "bad"]):
        delivery = consumer.wait(position + 1)[position]
        assert delivery.body == expected.encode()
        if expected == "bad":
            publishing.basic_nack(delivery.tag, requeue=True)
        elif position == 1:
            good = delivery
    publishing.basic_ack(good.tag)
    consumer.wait_quiet()
    assert sorted(consumer.bodies()) == ["bad", "bad", "good"]


def test_visibility_timeout_of_a_queue_ends_its_leases(limited, mqtt):
    client = mqtt(limited)
    client.subscribe("$queue/lease", user=[("consumer-group", "g")])
    client.publish("$queue/lease", "x")
    began = time.monotonic()
    client.take(1)
    again = client.take_one(3)
    assert time.monotonic() - began < 2
    assert user_property(again, "attempts") == "2"


def test_configured_ephemeral_queue_keeps_messages(publishing):
    amqp.publish(publishing, "memory", "x")
    assert publishing.basic_get("memory", auto_ack=True)[2] == b"x"
