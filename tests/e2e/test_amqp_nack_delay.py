"""`$nack` with a delay and `$extend` over AMQP, of deliveries the channel holds."""

from decimal import Decimal

import pika
import pytest

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.staging import call

pytestmark = pytest.mark.extension
BACK_OFF = {"x-retry-initial-backoff": 100, "x-retry-multiplier": Decimal("1.1"), "x-consumer-timeout": 900}


def settle(channel, queue, verb, **headers):
    """Without `reply_to`: returns when confirmed, raises when refused."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    channel.basic_publish("", f"$queue/{queue}/{verb}", b"", pika.BasicProperties(headers=named))


@pytest.mark.timed
def test_nack_with_delay_returns_the_message_after_that_time(broker, channel, queue):
    consumer = Collector(channel, queue)
    amqp.publish(channel, queue, "later", "sooner")
    first, second = consumer.wait(2)
    settle(channel, queue, "$nack", delivery_tag=first.tag, delay=7_000)
    assert call(channel, queue, "$nack", **{"delivery-tag": second.tag, "delay": 3_000}) == {"status": "ok"}
    broker.pass_time(2)
    assert len(consumer.wait_quiet()) == 2
    broker.pass_time(1.5)
    consumer.wait(3)
    assert len(consumer.wait_quiet()) == 3
    broker.pass_time(4)
    again = consumer.wait(4)[2:]
    assert amqp.bodies(again) == ["sooner", "later"]
    assert [delivery.headers["x-delivery-count"] for delivery in again] == [1, 1]
    for delivery in again:
        channel.basic_ack(delivery.tag)
    assert amqp.count(channel, queue) == 0


def test_nack_delay_survives_a_kill(own_broker, amqp_connect):
    broker = own_broker({"queues": [{"name": "jobs", "max_priority": 3}]}, timed=True)
    channel = amqp_connect(broker).channel()
    channel.confirm_delivery()
    amqp.publish(channel, "jobs", "a", priority=2)
    tag = Collector(channel, "jobs").wait(1)[0].tag
    channel.queue_declare("declared", durable=True, arguments=BACK_OFF)
    settle(channel, "jobs", "$nack", delivery_tag=tag, delay=6_000)
    amqp.until_settled(broker, channel, "declared")
    broker.restart(kill=True)
    channel = amqp_connect(broker).channel()
    channel.queue_declare("declared", durable=True, arguments=BACK_OFF)
    consumer = Collector(channel, "jobs")
    broker.pass_time(3)
    assert consumer.wait_quiet() == []
    broker.pass_time(3.1)
    assert consumer.wait(1)[0].body == b"a"


@pytest.mark.timed
def test_extended_lease_ends_after_its_new_time(broker, channel, name):
    channel.queue_declare(name, durable=True, arguments={"x-consumer-timeout": 2_000})
    consumer = Collector(channel, name)
    amqp.publish(channel, name, "a")
    tag = consumer.wait(1)[0].tag
    settle(channel, name, "$extend", delivery_tag=tag, lease=60_000)
    broker.pass_time(4)
    assert len(consumer.wait_quiet()) == 1
    settle(channel, name, "$extend", delivery_tag=tag)  # as the queue has it, from now
    broker.pass_time(2.1)
    assert consumer.wait(2)[1].method.redelivered
    answer = call(channel, name, "$extend", **{"delivery-tag": tag})
    assert answer["reason"] == f"the lease of delivery tag {tag} ended"


@pytest.mark.parametrize(
    ("verb", "headers", "reason"),
    [
        ("$nack", {}, "$nack needs the header delivery-tag, an integer, not None"),
        ("$nack", {"delivery-tag": "1"}, "$nack needs the header delivery-tag, an integer, not '1'"),
        ("$nack", {"delivery-tag": 9}, "unknown delivery-tag 9"),
        (
            "$nack",
            {"delivery-tag": 1, "delay": -1},
            "delay must be a whole number of milliseconds from 0, not -1",
        ),
        ("$nack", {"delivery-tag": 1, "delay": 1 << 60}, f"delay is at most 315360000000 ms, not {1 << 60}"),
        ("$extend", {"delivery-tag": 1, "delay": 1}, "delay is for $nack, not for $extend"),
        ("$extend", {"delivery-tag": 1, "lease": 0}, "lease must be 1 to 43200000 milliseconds, not 0"),
    ],
)
def test_invalid_nack_or_extend_is_refused_and_keeps_the_delivery(channel, queue, verb, headers, reason):
    consumer = Collector(channel, queue)
    amqp.publish(channel, queue, "a")
    consumer.wait(1)
    answer = call(channel, queue, verb, **headers)
    assert (answer["status"], answer["reason"]) == ("refused", reason)
    # the same reason again: the channel still holds the delivery
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        settle(channel, queue, verb, **headers)
    assert closed.value.reply_code == 406
    assert reason in closed.value.reply_text


def test_delivery_tag_of_another_queue_is_refused(channel, queue, name):
    channel.queue_declare(f"{name}-other", durable=True, exclusive=True)
    consumer = Collector(channel, queue)
    amqp.publish(channel, queue, "a")
    tag = consumer.wait(1)[0].tag
    answer = call(channel, f"{name}-other", "$nack", **{"delivery-tag": tag})
    assert answer["reason"] == f"delivery-tag {tag} is not of queue '{name}-other'"
