"""Queues declared with `x-queue-type: quorum`: which attempts count, how retries wait, who is cancelled."""

from typing import Any

import pika
import pytest

from tests.e2e import amqp
from tests.e2e.amqp import ChannelClosedByBroker
from tests.waiting import until


@pytest.fixture
def quorum(channel, name):
    """Declares quorum queues that are gone after the test: `quorum({"x-delivery-limit": 2})`."""
    made: list[Any] = []

    def declare(arguments=None):
        made.append(f"{name}-{len(made)}")
        channel.queue_declare(
            made[-1], durable=True, arguments={"x-queue-type": "quorum", **(arguments or {})}
        )
        return made[-1]

    yield declare
    for each in made:
        channel.queue_delete(each)


def take(channel, queue):
    return amqp.Delivery(*channel.basic_get(queue))


def test_nack_and_recover_are_no_attempts_and_reject_and_a_lost_channel_are(amqp_connect, channel, quorum):
    """As observed of RabbitMQ 4.3.6."""
    queue = quorum()
    amqp.publish(channel, queue, "x")
    connection = amqp_connect()
    mine = connection.channel()
    told: list[Any] = []
    for verb in ("nack", "nack", "reject", "recover", "close", "nack"):
        found = take(mine, queue)
        assert found.method.redelivered is bool(told)
        told.append((found.headers.get("x-acquired-count"), found.headers.get("x-delivery-count")))
        if verb == "nack":
            mine.basic_nack(found.tag)
        elif verb == "reject":
            mine.basic_reject(found.tag)
        elif verb == "recover":
            mine.basic_recover(requeue=True)
        else:
            mine.close()
            mine = connection.channel()
    assert told == [(None, None), (1, None), (2, None), (3, 1), (4, 1), (5, 2)]


def test_what_is_nacked_comes_back_beyond_the_limit_and_what_is_rejected_goes_at_it(channel, quorum):
    queue = quorum({"x-delivery-limit": 2})
    amqp.publish(channel, queue, "x")
    for _ in range(5):
        channel.basic_nack(take(channel, queue).tag)
    for _ in range(3):
        channel.basic_reject(take(channel, queue).tag)
    assert amqp.get(channel, queue) is None


@pytest.mark.parametrize("arguments", [{}, {"x-delivery-limit": -1}])
def test_a_quorum_queue_gives_up_after_twenty_returns_unless_it_has_no_limit(channel, quorum, arguments):
    queue = quorum(arguments)
    amqp.publish(channel, queue, "x")
    for _ in range(21):
        channel.basic_reject(take(channel, queue).tag)
    assert (amqp.get(channel, queue) is None) is (not arguments)


def test_a_nack_counts_in_a_classic_queue(channel, name):
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "classic", "x-delivery-limit": 1})
    amqp.publish(channel, name, "x")
    channel.basic_nack(take(channel, name).tag)
    found = take(channel, name)
    assert found.headers == {"x-delivery-count": 1}
    channel.basic_nack(found.tag)
    assert amqp.get(channel, name) is None
    channel.queue_delete(name)


def test_what_does_not_count_is_known_after_a_crash(own_broker):
    broker = own_broker(timed=True)
    channel = amqp.connect(broker.amqp_port).channel()
    channel.confirm_delivery()
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 2})
    amqp.publish(channel, "q", "x")
    for _ in range(4):
        channel.basic_nack(take(channel, "q").tag)
    channel.basic_reject(take(channel, "q").tag)
    amqp.publish(channel, "q", "behind it")
    channel.queue_declare("other", durable=True)
    amqp.until_settled(broker, channel, "other")
    broker.kill9()
    broker.start()
    channel = amqp.connect(broker.amqp_port).channel()
    found = take(channel, "q")
    assert found.headers == {"x-acquired-count": 5, "x-delivery-count": 1}
    channel.basic_reject(found.tag)
    channel.basic_reject(take(channel, "q").tag)
    assert take(channel, "q").body == b"behind it"


@pytest.mark.timed
@pytest.mark.parametrize(
    ("kind", "waits"),
    [("all", [4, 4, 6]), ("failed", [0, 4, 6]), ("returned", [4, 0, 0])],
)
def test_delayed_retries_wait_longer_with_each_failure(broker, channel, quorum, kind, waits):
    ms = {"x-delayed-retry-min": 4_000, "x-delayed-retry-max": 6_000}
    queue = quorum({"x-delayed-retry-type": kind, **ms})
    amqp.publish(channel, queue, "x")
    for give_back, wait_s in zip(("nack", "reject", "reject"), waits, strict=True):
        tag = take(channel, queue).tag
        channel.basic_nack(tag) if give_back == "nack" else channel.basic_reject(tag)
        if wait_s:
            broker.pass_time(wait_s - 1.5)
            assert channel.basic_get(queue) == (None, None, None)
            broker.pass_time(2)
            until(lambda: amqp.count(channel, queue))
    assert take(channel, queue).body == b"x"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"x-delayed-retry-type": "nope"}, "'nope' is not a valid delayed retry type"),
        ({"x-delayed-retry-min": -1}, "x-delayed-retry-min"),
        ({"x-delayed-retry-min": 3, "x-delayed-retry-max": 2}, "x-delayed-retry-min 3 is longer"),
        ({"x-delayed-retry-min": 3, "x-retry-initial-backoff": 2}, "two ways to say the same"),
    ],
)
@pytest.mark.extension  # RabbitMQ takes them and does nothing
def test_delayed_retries_that_cannot_be_are_refused(channel, name, arguments, reason):
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum", **arguments})
    assert (closed.value.reply_code, reason in closed.value.reply_text) == (406, True)


def test_delayed_retries_of_a_classic_queue_are_refused(channel, name):
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.queue_declare(name, durable=True, arguments={"x-delayed-retry-type": "all"})
    assert closed.value.reply_text.endswith("of queue type rabbit_classic_queue")


def test_a_consumer_whose_lease_ended_is_cancelled_and_its_channel_stays(channel, amqp_connect, quorum):
    queue = quorum({"x-consumer-timeout": 300})
    amqp.publish(channel, queue, "x")
    late = amqp_connect().channel()
    cancelled: list[Any] = []
    came: list[Any] = []
    late.add_on_cancel_callback(cancelled.append)
    late.basic_consume(queue, lambda *delivery: came.append(delivery[1].delivery_tag), consumer_tag="slow")
    for _ in range(40):
        late.connection.process_data_events(0.25)
        if cancelled:
            break
    assert [frame.method.consumer_tag for frame in cancelled] == ["slow"]
    assert came == [1]
    found = take(channel, queue)
    assert found.headers == {"x-acquired-count": 1}  # it does not count
    channel.basic_ack(found.tag)
    late.basic_publish("", queue, b"y", pika.BasicProperties())
    assert take(late, queue).body == b"y"
