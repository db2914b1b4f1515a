"""Codes and words of refusals that programs written for RabbitMQ look at: unmarked tests hold for both."""

import pytest
from pamqp import commands

from tests.e2e import amqp

INVALID = "PRECONDITION_FAILED - invalid arg '{argument}' for queue '{queue}' in vhost '/'"


@pytest.mark.parametrize(
    ("argument", "value", "why"),
    [
        ("x-priority", "high", ': "expected integer, got longstr"'),
        ("x-priority", True, ': "expected integer, got bool"'),
        ("x-cancel-on-ha-failover", "maybe", ": {unacceptable_type,longstr}"),
        ("x-stream-offset", "first", " of queue type rabbit_classic_queue"),
    ],
)
def test_consumer_argument_that_cannot_be_had_is_told_as_rabbitmq_does(channel, name, argument, value, why):
    channel.queue_declare(name, exclusive=True)
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        channel.basic_consume(name, lambda *_: None, arguments={argument: value})
    told = INVALID.format(argument=argument, queue=name) + why
    assert (closed.value.reply_code, closed.value.reply_text) == (406, told)


def test_priority_of_a_consumer_may_be_any_integer(channel, queue):
    low = amqp.Collector(channel, queue, arguments={"x-priority": -(1 << 40)})
    high = amqp.Collector(channel, queue, arguments={"x-priority": 1 << 40})
    amqp.publish(channel, queue, "a")
    assert (high.wait(1)[0].body, low.deliveries) == (b"a", [])


@pytest.mark.parametrize(
    "method",
    [
        commands.Basic.Consume(queue=""),
        commands.Basic.Get(queue=""),
        commands.Queue.Purge(queue=""),
        commands.Queue.Bind(queue="", exchange="amq.direct"),
    ],
)
def test_no_name_before_a_queue_was_declared_is_404(raw_amqp, method):
    client = raw_amqp()
    client.open_channel()
    client.send(1, method)
    closed = client.expect(commands.Channel.Close)
    assert (closed.reply_code, closed.reply_text) == (404, "NOT_FOUND - no previously declared queue")


@pytest.mark.parametrize("exclusive_first", [True, False])
def test_exclusive_consumer_beside_another_is_403(channel, name, exclusive_first):
    channel.queue_declare(name, exclusive=True)
    channel.basic_consume(name, lambda *_: None, exclusive=exclusive_first)
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        channel.basic_consume(name, lambda *_: None, exclusive=not exclusive_first)
    told = f"ACCESS_REFUSED - queue '{name}' in vhost '/' in exclusive use"
    assert (closed.value.reply_code, closed.value.reply_text) == (403, told)


@pytest.mark.extension
def test_message_whose_properties_the_consumer_cannot_be_sent_is_failed_and_dead_lettered(
    amqp_connect, channel, name
):
    """Section 4.2.6.1: they are one frame, and the client has said how large one may be."""
    channel.queue_declare(f"{name}-dead", exclusive=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"}
    channel.queue_declare(name, durable=True, arguments=arguments)
    small = amqp_connect(frame_max=4096).channel()
    consumer = amqp.Collector(small, name)
    amqp.publish(channel, name, "a", headers={"h": "y" * 6_000})
    amqp.publish(channel, name, "b", headers={"h": "y"})
    assert consumer.wait(1)[0].body == b"b"
    letters = amqp.Collector(channel, f"{name}-dead")
    assert letters.wait(1)[0].body == b"a"
    channel.queue_delete(name)
