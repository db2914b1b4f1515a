"""Queues that capture ordinary topics: devices publish as they always did."""

import pytest

from tests.e2e.broker_process import BrokerFailed
from tests.e2e.mqtt import V5, V311


def config(*topics, **more):
    return {"queues": [{"name": "readings", "topics": list(topics), "capture": True, **more}]}


def test_captured_topics_fill_the_queue_and_reach_subscribers(own_broker, mqtt, amqp_connect):
    broker = own_broker(config("sensors/+/temp", "v1.2/#", "$queue/readings/#"))
    subscriber = mqtt(broker)
    subscriber.subscribe("sensors/#", 1)
    sender = mqtt(broker, version=V311)
    for topic in ("sensors/7/temp", "sensors/7/hum", "v1.2/a", "v1/2/a", "$queue/readings/x"):
        sender.publish(topic, topic)
    assert {message.topic for message in subscriber.take(2)} == {"sensors/7/temp", "sensors/7/hum"}
    broker.restart(kill=True)
    channel = amqp_connect(broker).channel()
    received = [channel.basic_get("readings", auto_ack=True)[2] for _ in range(4)]
    assert received == [b"sensors/7/temp", b"v1.2/a", b"$queue/readings/x", None]


def test_capture_ends_when_the_configuration_names_the_topic_no_more(own_broker, mqtt, amqp_connect):
    broker = own_broker(config("a/#", "b/#"))
    broker.config = config("b/#")
    broker.restart()
    sender = mqtt(broker)
    sender.publish("a/1", "a")
    sender.publish("b/1", "b")
    channel = amqp_connect(broker).channel()
    received = [channel.basic_get("readings", auto_ack=True)[2] for _ in range(2)]
    assert received == [b"b", None]


def test_full_queue_refuses_the_publish(own_broker, mqtt):
    broker = own_broker(config("s/#", limits={"max_depth": 1}))
    sender = mqtt(broker, version=V5)
    assert sender.publish("s/1", "1") == 0
    assert sender.publish("s/1", "2") == 0x97


@pytest.mark.parametrize("entry", [{"topics": ["s/#"]}, {"topics": ["$SYS/#"], "capture": True}])
def test_what_cannot_be_captured_is_refused_at_the_start(own_broker, entry):
    with pytest.raises(BrokerFailed):
        own_broker({"queues": [{"name": "q", **entry}]})
