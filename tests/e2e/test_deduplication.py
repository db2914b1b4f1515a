"""Publishing once, by deduplication ID and by producer and sequence, over both protocols and a kill -9."""

import pytest
from pamqp import commands
from pamqp import header as pamqp_header

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.mqtt import MqttClient

pytestmark = pytest.mark.extension

CONFLICT = 0x83


def once(identity: str) -> dict[str, str]:
    return {"x-deduplication-id": identity}


def numbered(producer: str, sequence: int) -> dict[str, object]:
    return {"x-producer-id": producer, "x-producer-sequence": sequence}


def test_repeated_id_is_confirmed_and_not_queued(channel, queue):
    for _ in range(3):
        amqp.publish(channel, queue, "a", headers=once("order-1"))
    amqp.publish(channel, queue, "b", headers=once("order-2"))
    assert amqp.count(channel, queue) == 2
    assert Collector(channel, queue).wait(2)[0].headers["x-deduplication-id"] == "order-1"


def test_different_body_under_the_same_id_is_refused(channel, mqtt, queue):
    amqp.publish(channel, queue, "a", headers=once("order-1"))
    with pytest.raises(amqp.AMQPError):
        amqp.publish(channel, queue, "b", headers=once("order-1"))
    device = mqtt()
    topic, user = f"$queue/{queue}", [("x-deduplication-id", "order-1")]
    assert device.publish(topic, b"a", user=user) == 0
    assert device.publish(topic, b"b", user=user) == CONFLICT
    assert amqp.count(channel, queue) == 1


def test_sequence_that_does_not_rise_is_not_queued(channel, queue):
    for sequence in (1, 2, 2, 1, 5):
        amqp.publish(channel, queue, str(sequence), headers=numbered("press-7", sequence))
    amqp.publish(channel, queue, "other", headers=numbered("press-8", 1))
    assert Collector(channel, queue).wait(4)[-1].body == b"other"
    assert amqp.count(channel, queue) == 0


@pytest.mark.timed
def test_id_is_accepted_again_after_its_window(broker, channel, name):
    channel.queue_declare(name, durable=True, arguments={"x-deduplication-window": 5_000})
    collector = Collector(channel, name)
    amqp.publish(channel, name, "a", headers=once("x"))
    broker.pass_time(5.1)
    amqp.publish(channel, name, "a", headers=once("x"))
    assert collector.wait(2)


def test_deduplication_window_of_0_is_refused(channel, name):
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        channel.queue_declare(name, durable=True, arguments={"x-deduplication-window": 0})
    assert closed.value.reply_code == 406


def test_ids_and_sequences_survive_a_kill(own_broker, amqp_connect):
    process = own_broker()
    channel = amqp_connect(process).channel()
    channel.confirm_delivery()
    channel.queue_declare("jobs", durable=True)
    device = MqttClient(process.mqtt_port).connect()
    device.publish("$queue/jobs", b"device", user=[("x-deduplication-id", "d")])
    device.end()
    amqp.publish(channel, "jobs", "a", headers=numbered("p", 7))
    process.restart(kill=True)
    channel = amqp_connect(process).channel()
    channel.confirm_delivery()
    amqp.publish(channel, "jobs", "device", headers=once("d"))
    amqp.publish(channel, "jobs", "a", headers=numbered("p", 7))
    assert amqp.count(channel, "jobs") == 2
    with pytest.raises(amqp.AMQPError):
        amqp.publish(channel, "jobs", "b", headers=numbered("p", 7))


def test_negative_sequence_is_refused(channel, mqtt, queue):
    device = mqtt()
    user = [("x-producer-id", "p"), ("x-producer-sequence", "-1")]
    assert device.publish(f"$queue/{queue}", b"a", user=user) == 0x83
    assert amqp.count(channel, queue) == 0
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        amqp.publish(channel, queue, "a", headers=numbered("p", -1))
    assert closed.value.reply_code == 406


def test_publishes_after_a_refused_sequence_are_refused_after_a_kill(own_broker, amqp_connect):
    process = own_broker()
    channel = amqp_connect(process).channel()
    channel.confirm_delivery()
    channel.queue_declare("jobs", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    amqp.publish(channel, "jobs", "5", headers=numbered("p", 5))
    with pytest.raises(amqp.AMQPError):
        amqp.publish(channel, "jobs", "6", headers=numbered("p", 6))
    device = MqttClient(process.mqtt_port).connect()
    user = [("x-producer-id", "q"), ("x-producer-sequence", "2")]
    assert device.publish("$queue/jobs", b"2", user=user) == 0x97
    device.end()
    process.restart(kill=True)
    channel = amqp_connect(process).channel()
    channel.confirm_delivery()
    channel.queue_purge("jobs")
    for follower in (numbered("p", 7), numbered("q", 3)):
        with pytest.raises(amqp.AMQPError):
            amqp.publish(channel, "jobs", "late", headers=follower)
    amqp.publish(channel, "jobs", "6", headers=numbered("p", 6))
    assert amqp.count(channel, "jobs") == 1


@pytest.mark.parametrize("pattern", ["rp", "prr", "pprp", "rprprp", "pxrp", "pprxr", "rxp"])
def test_durable_refusals_between_confirms_are_each_sent_once(raw_amqp, channel, name, pattern):
    """p: accepted, r: refused because the queue is full, x: refused because of its body."""
    channel.queue_declare(name, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    amqp.publish(channel, name, "first", headers=once("x"))
    free = f"{name}-free"
    channel.queue_declare(free, durable=True, exclusive=True)
    connection = raw_amqp()
    connection.open_channel(confirm=True)
    burst: list[bytes] = []
    connection.send_bytes = burst.append
    for number, letter in enumerate(pattern, 1):
        if letter == "p":
            connection.publish(1, f"$queue/{free}", b"taken")
            continue
        identity = numbered("p", number) if letter == "r" else once("x")
        header = pamqp_header.ContentHeader(
            0, 5, commands.Basic.Properties(headers=identity, delivery_mode=2)
        )
        connection.publish(1, name, b"other", header.marshal()[12:])
    del connection.send_bytes
    connection.send_bytes(b"".join(burst))
    told: dict[int, str] = {}
    while len(told) < len(pattern):
        method = connection.expect((commands.Basic.Ack, commands.Basic.Nack))
        tags = range(1, method.delivery_tag) if method.multiple else ()
        kind = "p" if isinstance(method, commands.Basic.Ack) else "n"
        assert method.delivery_tag not in told
        for tag in (*[tag for tag in tags if tag not in told], method.delivery_tag):
            told[tag] = kind
    assert "".join(told[tag] for tag in sorted(told)) == pattern.replace("r", "n").replace("x", "n")
