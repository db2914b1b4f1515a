"""Requests and replies between AMQP 1.0 and the other protocols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest

from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from tests.e2e import amqp
from tests.e2e.mqtt import MqttClient
from tests.e2e.raw_amqp10 import RawAmqp10, message

Connect = Callable[..., RawAmqp10]

REPLY_TO = "amq.rabbitmq.reply-to"


def asked(raw_amqp10: Connect, channel: amqp.BlockingChannel, queue: str) -> tuple[RawAmqp10, str]:
    """A client of AMQP 1.0 that was asked by one of 0.9.1, and where its answer is to go."""
    client = raw_amqp10()
    client.begin()
    client.attach_receiver(f"/queues/{queue}", credit=1)
    properties = pika.BasicProperties(reply_to=REPLY_TO, correlation_id="c")
    channel.basic_publish("", queue, b"question", properties)
    reply_to = client.receive().sections[0x73][4]
    assert reply_to.startswith(f"/queues/{REPLY_TO}.")
    return client, reply_to


@pytest.mark.parametrize("is_anonymous", [True, False], ids=["anonymous", "target"])
def test_a_requester_of_amqp_0_9_1_is_answered_directly(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, queue: str, is_anonymous: bool
) -> None:
    replies = amqp.Collector(channel, REPLY_TO, auto_ack=True)
    client, reply_to = asked(raw_amqp10, channel, queue)
    client.attach_sender(None if is_anonymous else reply_to)
    for number in range(3):
        to = {"to": reply_to} if is_anonymous else {}
        client.transfer(message(b"answer %d" % number, correlation_id="c", **to))
    assert client.outcomes(3) == dict.fromkeys(range(3), p.Accepted())
    got = replies.wait(3)
    assert [(each.body, each.properties.correlation_id) for each in got] == [
        (b"answer %d" % number, "c") for number in range(3)
    ]


def test_replies_to_a_requester_that_is_gone_are_released(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, queue: str
) -> None:
    replies = amqp.Collector(channel, REPLY_TO, auto_ack=True)
    client, reply_to = asked(raw_amqp10, channel, queue)
    client.attach_sender(reply_to)
    replies.cancel()
    client.transfer(message(b"late"))
    assert client.outcomes(1) == {0: p.Released()}
    target = p.Target(reply_to)
    attach = p.Attach("other", 5, c.SENDER, source=p.Source(), target=target, initial_delivery_count=0)
    assert client.attach(attach).target is None
    detach = client.expect(p.Detach)
    assert detach.error is not None
    assert detach.error.condition == c.NOT_FOUND


def asking(raw_amqp10: Connect, queue: str) -> RawAmqp10:
    """A client of AMQP 1.0 that asked, and waits for its answer at a queue of its own."""
    client = raw_amqp10()
    client.begin()
    source = p.Source(dynamic=True, capabilities=("temporary-queue",))
    answer = client.attach(p.Attach("answers", 1, c.RECEIVER, source=source, target=p.Target()))
    client.give_credit(1)
    client.attach_sender(f"/queues/{queue}")
    client.transfer(message(b"question", reply_to=answer.source.address, correlation_id="c"))
    client.outcomes(1)
    return client


def test_a_requester_is_answered_by_amqp_0_9_1(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, queue: str
) -> None:
    client = asking(raw_amqp10, queue)
    _, properties, _ = channel.basic_get(queue, auto_ack=True)
    answer = pika.BasicProperties(correlation_id=properties.correlation_id)
    channel.basic_publish("", properties.reply_to, b"answer", answer)
    got = client.receive()
    assert (got.body, got.sections[0x73][5]) == (b"answer", "c")


def test_a_requester_is_answered_by_mqtt_5(
    raw_amqp10: Connect, mqtt: Callable[..., MqttClient], queue: str
) -> None:
    responder = mqtt(version=5)
    responder.subscribe(f"$queue/{queue}", qos=1)
    client = asking(raw_amqp10, queue)
    question: Any = responder.take_one()
    assert question.properties.CorrelationData == b"c"
    responder.publish(question.properties.ResponseTopic, b"answer", qos=1)
    assert client.receive().body == b"answer"
