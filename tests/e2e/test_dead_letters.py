"""Dead letters over AMQP, as RabbitMQ has them: unmarked tests hold for both."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.e2e import amqp
from tests.e2e.mqtt import user_property
from tests.waiting import until


def declare_pair(channel, name, **arguments):
    """A queue and its dead-letter queue; gives their names."""
    dead = f"{name}-dead"
    channel.queue_declare(dead, durable=True)
    channel.queue_declare(
        name,
        durable=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead, **arguments},
    )
    return name, dead


def get(channel, queue):
    """The next message of a queue, as a Delivery, once there is one."""
    return until(lambda: amqp.get(channel, queue, auto_ack=False), told=lambda: f"nothing in {queue}")


def died_in(deliveries):
    return [(death["queue"], death["reason"], death["count"]) for death in deliveries.headers["x-death"]]


def test_rejected_message_is_dead_lettered_with_its_death(channel, name):
    queue, dead = declare_pair(channel, name)
    amqp.publish(
        channel,
        queue,
        "hello",
        headers={"mine": 1},
        correlation_id="c-1",
        expiration="60000",
        content_type="text/plain",
    )
    first = get(channel, queue)
    assert not first.method.redelivered
    channel.basic_reject(first.tag, requeue=False)
    letter = get(channel, dead)
    assert letter.body == b"hello"
    assert (letter.method.exchange, letter.method.routing_key) == ("", dead)
    assert not letter.method.redelivered
    assert letter.properties.correlation_id == "c-1"
    assert letter.properties.content_type == "text/plain"
    assert letter.properties.delivery_mode == 2
    assert letter.properties.expiration is None
    assert letter.headers["mine"] == 1
    [death] = letter.headers["x-death"]
    at = death.pop("time")
    assert abs(at.replace(tzinfo=UTC) - datetime.now(UTC)) < timedelta(seconds=5)
    expected = {
        "count": 1,
        "reason": "rejected",
        "queue": queue,
        "exchange": "",
        "routing-keys": [queue],
        "original-expiration": "60000",
    }
    assert {name: death[name] for name in expected} == expected
    assert letter.headers["x-first-death-queue"] == queue
    assert letter.headers["x-first-death-reason"] == "rejected"
    assert letter.headers["x-first-death-exchange"] == ""
    channel.basic_ack(letter.tag)


def test_death_history_counts_and_begins_with_the_newest(channel, name):
    queue, dead = declare_pair(channel, name)
    channel.queue_declare(
        f"{name}-back",
        durable=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue},
    )
    amqp.publish(channel, f"{name}-back", "x")
    for source in (f"{name}-back", queue):
        channel.basic_reject(get(channel, source).tag, requeue=False)
    letter = get(channel, dead)
    assert died_in(letter) == [(queue, "rejected", 1), (f"{name}-back", "rejected", 1)]
    assert letter.headers["x-first-death-queue"] == f"{name}-back"
    channel.basic_publish("", queue, letter.body, letter.properties)
    channel.basic_ack(letter.tag)
    channel.basic_reject(get(channel, queue).tag, requeue=False)
    assert died_in(get(channel, dead)) == [(queue, "rejected", 1)]  # a publisher's own history does not count


def test_without_dead_letter_routing_key_the_messages_own_key_decides(channel, name):
    """So a rejected message returns to its own queue: a reject permits the cycle."""
    channel.queue_declare(name, durable=True, arguments={"x-dead-letter-exchange": ""})
    amqp.publish(channel, name, "x")
    channel.basic_reject(get(channel, name).tag, requeue=False)
    again = get(channel, name)
    assert died_in(again) == [(name, "rejected", 1)]


@pytest.mark.extension  # RabbitMQ's classic queues have no delivery limit
def test_message_beyond_the_delivery_limit_is_dead_lettered(channel, name):
    queue, dead = declare_pair(
        channel, name, **{"x-delivery-limit": 1, "x-dead-letter-strategy": "at-least-once"}
    )
    amqp.publish(channel, queue, "x")
    for redelivered in (False, True):
        delivery = get(channel, queue)
        assert delivery.method.redelivered == redelivered
        channel.basic_nack(delivery.tag, requeue=True)
    letter = get(channel, dead)
    assert died_in(letter) == [(queue, "delivery_limit", 1)]
    assert letter.headers["x-last-death-reason"] == "delivery_limit"
    assert letter.headers["x-last-death-queue"] == queue
    death = letter.headers["x-death"][0]
    assert (death["topic"], death["offset"], death["group"], death["attempts"]) == (queue, 0, "", 2)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"x-dead-letter-routing-key": "dead"}, "x-dead-letter-routing-key"),
        ({"x-dead-letter-exchange": 1}, "x-dead-letter-exchange"),
        ({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": 5}, "x-dead-letter-routing-key"),
        pytest.param(
            {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "$queue/b"},
            "x-dead-letter-routing-key",
            marks=pytest.mark.extension,
        ),
        pytest.param(
            {"x-dead-letter-strategy": "perhaps"}, "x-dead-letter-strategy", marks=pytest.mark.extension
        ),
    ],
)
def test_refused_dead_letter_arguments_create_no_queue(amqp_connect, name, arguments, word):
    """Other brokers have refused a declaration and carried it out."""
    connection = amqp_connect()
    with pytest.raises(amqp.ChannelClosedByBroker) as refused:
        connection.channel().queue_declare(name, durable=True, arguments=arguments)
    assert refused.value.reply_code == 406
    assert word in refused.value.reply_text
    with pytest.raises(amqp.ChannelClosedByBroker) as missing:
        connection.channel().queue_declare(name, passive=True)
    assert missing.value.reply_code == 404


@pytest.mark.extension
def test_message_rejected_over_mqtt_is_dead_lettered_with_user_properties(channel, mqtt, name):
    queue, dead = declare_pair(channel, name)
    reader = mqtt()
    reader.subscribe(f"$queue/{dead}", user=[("consumer-group", "readers")])
    worker = mqtt()
    worker.subscribe(f"$queue/{queue}/eu/#", user=[("consumer-group", "workers")])
    mqtt().publish(f"$queue/{queue}/eu/1", "x", 1, user=[("mine", "1")])
    assert worker.settle("reject", worker.take_one()) == 0
    letter = reader.take_one()
    assert (letter.topic, letter.payload) == (f"$queue/{dead}", b"x")
    assert user_property(letter, "mine") == "1"
    assert user_property(letter, "x-first-death-reason") == "rejected"
    death = json.loads(user_property(letter, "x-death") or "")[0]
    assert (death["reason"], death["topic"]) == ("rejected", f"$queue/{queue}/eu/1")
    assert death["group"] == "workers@eu/#"


@pytest.mark.extension
def test_dead_letter_in_the_configured_queue_survives_a_kill(own_broker, amqp_connect):
    broker = own_broker({"queues": [{"name": "orders", "dlq": {}}]}, timed=True)
    channel = amqp_connect(broker).channel()
    channel.confirm_delivery()
    channel.queue_declare("other", durable=True)
    amqp.publish(channel, "orders", "a", "b")
    channel.basic_reject(get(channel, "orders").tag, requeue=False)
    get(channel, "orders.dlq")  # is there, claimed
    amqp.until_settled(broker, channel, "other")
    broker.restart(kill=True)
    channel = amqp_connect(broker).channel()
    letter = get(channel, "orders.dlq")
    assert (letter.body, died_in(letter)) == (b"a", [("orders", "rejected", 1)])
    assert get(channel, "orders").body == b"b"
    assert channel.basic_get("orders")[0] is None


def test_a_dead_letter_exchange_that_was_deleted_receives_again_once_it_is_declared_and_bound(channel, name):
    exchange, dead = f"{name}-exchange", f"{name}-dead"
    channel.queue_declare(name, arguments={"x-dead-letter-exchange": exchange})
    channel.queue_declare(dead)
    for round_number in range(2):
        channel.exchange_declare(exchange, "fanout")
        channel.queue_bind(dead, exchange)
        amqp.publish(channel, name, f"received {round_number}")
        channel.basic_reject(channel.basic_get(name)[0].delivery_tag, requeue=False)
        channel.exchange_delete(exchange)
        amqp.publish(channel, name, f"not received {round_number}")
        channel.basic_reject(channel.basic_get(name)[0].delivery_tag, requeue=False)
    assert [channel.basic_get(dead, auto_ack=True)[2] for _ in range(3)] == [
        b"received 0",
        b"received 1",
        None,
    ]
    for queue in (name, dead):
        channel.queue_delete(queue)
