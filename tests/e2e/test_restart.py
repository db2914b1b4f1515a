"""What survives SIGTERM and kill -9: one restart each, checked by many tests."""

from collections.abc import Iterator
from typing import Any

import pika
import pytest

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import MqttClient, payloads

pytestmark = pytest.mark.extension

BIG = bytes(range(256)) * 1_000
CONFIG = {"queues": [{"name": "configured"}]}


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def in_group(channel, queue: str, group: str, **options: Any) -> Collector:
    return Collector(channel, queue, arguments={"x-consumer-group": group}, **options)


def prepare(process: BrokerProcess) -> list[pika.BlockingConnection]:
    """Bring the broker into the state the tests expect; the connections stay open, holding claims."""
    connection = amqp.connect(process.amqp_port)
    channel = connection.channel()
    channel.confirm_delivery()
    for name in (
        "plain",
        "acked",
        "held",
        "counted",
        "rejected",
        "purged",
        "deleted",
        "mqtt",
        "groups",
        "bodies",
    ):
        channel.queue_declare(name, durable=True)
    amqp.publish(channel, "plain", *numbers(200), type="t", headers={"n": 1, "s": "x"}, correlation_id="c")
    amqp.publish(channel, "bodies", b"", BIG)
    amqp.publish(channel, "configured", "kept")

    settling = connection.channel()
    amqp.publish(channel, "acked", *numbers(10))
    for _ in range(10):
        settling.basic_get("acked")
    for tag in (1, 2, 3, 5, 6, 8):  # leaves 3, 6, 8, 9
        settling.basic_ack(tag)

    amqp.publish(channel, "rejected", "bad", "good")
    settling.basic_reject(settling.basic_get("rejected")[0].delivery_tag, requeue=False)
    amqp.publish(channel, "counted", "tried twice")
    for _ in range(2):
        settling.basic_nack(settling.basic_get("counted")[0].delivery_tag, requeue=True)

    amqp.publish(channel, "purged", *numbers(5))
    channel.queue_purge("purged")
    amqp.publish(channel, "deleted", "x")
    channel.queue_delete("deleted")

    channel.queue_declare("transient")
    channel.queue_declare("temporary", auto_delete=True)
    channel.queue_declare("private", exclusive=True)
    amqp.publish(channel, "transient", "lost")

    groups = connection.channel()
    first, second = in_group(groups, "groups", "first"), in_group(groups, "groups", "second")
    europe = in_group(groups, "$queue/groups/eu/#", "workers", ack=True)
    for number in range(6):
        amqp.publish(channel, f"$queue/groups/{'eu' if number % 2 else 'us'}", str(number))
    first.wait(6)
    second.wait(6)
    europe.wait(3)
    groups.basic_ack(first.deliveries[1].tag)
    groups.basic_ack(first.deliveries[4].tag)

    device = MqttClient(process.mqtt_port).connect()
    for number in range(20):
        device.publish("$queue/mqtt/k", str(number), 1 + number % 2, user=[("k", str(number))])
    device.end()

    holding = amqp.connect(process.amqp_port)
    amqp.publish(channel, "held", "a", "b", "c")
    Collector(holding.channel(), "held").wait(3)
    channel.queue_declare("other")
    amqp.until_settled(process, channel, "other")
    return [connection, holding]


@pytest.fixture(scope="module", params=["SIGTERM", "kill -9"])
def restarted(request, tmp_path_factory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("restart"), CONFIG, timed=True).start()
    try:
        connections = prepare(process)
        process.restart(kill=request.param == "kill -9")
        for connection in connections:
            amqp.close_quietly(connection, 1)
        yield process
    finally:
        process.kill9()


@pytest.fixture
def reading(restarted, amqp_connect):
    return amqp_connect(restarted).channel()


def drain(channel, queue: str) -> list[amqp.Delivery]:
    drained = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        drained.append(amqp.Delivery(*got))
    return drained


def test_confirmed_messages_survive_in_order_with_properties(reading):
    deliveries = drain(reading, "plain")
    assert amqp.bodies(deliveries) == numbers(200)
    for delivery in deliveries:
        properties = delivery.properties
        assert (properties.type, properties.headers, properties.correlation_id, properties.delivery_mode) == (
            "t",
            {"n": 1, "s": "x"},
            "c",
            2,
        )
        assert delivery.method.redelivered is False


def test_bodies_of_any_size_survive(reading):
    assert [delivery.body for delivery in drain(reading, "bodies")] == [b"", BIG]


def test_acked_messages_are_not_delivered_again(reading):
    deliveries = drain(reading, "acked")
    assert amqp.bodies(deliveries) == ["3", "6", "8", "9"]
    assert all(delivery.method.redelivered for delivery in deliveries)


def test_unacked_messages_return_in_order_redelivered_and_counted(reading):
    deliveries = Collector(reading, "held", ack=True).wait(3)
    assert amqp.bodies(deliveries) == ["a", "b", "c"]
    assert [delivery.method.redelivered for delivery in deliveries] == [True] * 3
    assert [delivery.headers.get("x-delivery-count") for delivery in deliveries] == [1] * 3


def test_delivery_count_continues_after_the_restart(reading):
    (delivery,) = drain(reading, "counted")
    assert delivery.method.redelivered
    assert delivery.headers["x-delivery-count"] == 2


def test_rejected_messages_are_not_delivered_again(reading):
    assert amqp.bodies(drain(reading, "rejected")) == ["good"]


def test_purged_messages_are_not_delivered_again(reading):
    assert drain(reading, "purged") == []


@pytest.mark.parametrize("name", ["deleted", "transient", "temporary", "private"])
def test_deleted_and_transient_queues_are_gone(reading, name):
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        reading.queue_declare(name, passive=True)
    assert closed.value.reply_code == 404


def test_configured_queue_keeps_its_message_once(reading):
    assert amqp.bodies(drain(reading, "configured")) == ["kept"]


def test_mqtt_publishes_survive(reading):
    deliveries = drain(reading, "mqtt")
    assert amqp.bodies(deliveries) == numbers(20)
    assert [delivery.headers["k"] for delivery in deliveries] == numbers(20)


def test_each_group_continues_where_it_was(reading):
    first = in_group(reading, "groups", "first", ack=True)
    second = in_group(reading, "groups", "second", ack=True)
    europe = in_group(reading, "$queue/groups/eu/#", "workers", ack=True)
    first.wait(4)
    second.wait(6)
    europe.wait_quiet()
    assert first.bodies() == ["0", "2", "3", "5"]
    assert second.bodies() == numbers(6)
    assert europe.bodies() == []


def test_queue_keeps_its_durability(reading, restarted, amqp_connect):
    assert reading.queue_declare("plain", durable=True).method.queue == "plain"
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        reading.queue_declare("plain", durable=False)
    assert closed.value.reply_code == 406


def test_offsets_rise_over_restarts(reading, restarted, amqp_connect, mqtt):
    """New messages come after those from before the restarts."""
    device = mqtt(restarted)
    device.publish("$queue/configured", "first")
    device.disconnect()
    restarted.restart(kill=True)
    device = mqtt(restarted)
    device.publish("$queue/configured", "second")
    device.subscribe("$queue/configured", user=[("consumer-group", "fresh")])
    messages: list[Any] = []  # the new group begins with what is kept
    while "second" not in payloads(messages):
        messages += device.take(1)
    offsets = [int(dict(message.properties.UserProperty)["offset"]) for message in messages]
    assert payloads(messages)[-2:] == ["first", "second"]
    assert offsets == sorted(set(offsets))
