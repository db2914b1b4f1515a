"""Consumer groups over MQTT: named by user property, by `$share`, by client ID."""

import pytest

from tests.e2e import amqp
from tests.e2e import raw_mqtt as wire
from tests.e2e.mqtt import V5, V311, payloads, user_property

pytestmark = pytest.mark.extension
VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def taken_by(clients, count: int) -> list[list[str]]:
    """What each client received, once all have `count` together."""
    received: list[list[str]] = [[] for _ in clients]
    for _ in range(500):
        for got, client in zip(received, clients, strict=True):
            if not client.quiet():
                got += payloads(client.take(1))
        if sum(map(len, received)) >= count:
            break
    return received


def in_group(mqtt, queue: str, group: str, **options):
    client = mqtt(**options)
    assert client.subscribe(f"$queue/{queue}", user=[("consumer-group", group), ("ack", "puback")]) == 1
    return client


def test_consumers_of_a_group_share_the_messages(mqtt, channel, queue):
    members = [in_group(mqtt, queue, "workers") for _ in range(3)]
    amqp.publish(channel, queue, *numbers(90))
    received = taken_by(members, 90)
    assert sorted(sum(received, []), key=int) == numbers(90)
    assert min(len(got) for got in received) >= 10
    assert all(got == sorted(got, key=int) for got in received)


def test_each_group_receives_every_message(mqtt, channel, queue):
    first, second = in_group(mqtt, queue, "billing"), in_group(mqtt, queue, "shipping")
    amqp.publish(channel, queue, *numbers(20))
    assert payloads(first.take(20)) == numbers(20)
    assert payloads(second.take(20)) == numbers(20)


@VERSIONS
def test_clients_without_a_group_each_receive_every_message(mqtt, channel, queue, version):
    clients = [mqtt(version=version) for _ in range(2)]
    for client in clients:
        client.subscribe(f"$queue/{queue}", 1)
    amqp.publish(channel, queue, *numbers(10))
    for client in clients:
        assert payloads(client.take(10)) == numbers(10)


def test_client_id_is_the_group_id(mqtt, channel, queue):
    client = mqtt(client_id=f"{queue}-device")
    client.subscribe(f"$queue/{queue}")
    amqp.publish(channel, queue, "x")
    assert user_property(client.take_one(), "group-id") == f"{queue}-device"


@VERSIONS
def test_share_names_the_group(mqtt, channel, queue, version):
    members = [mqtt(version=version) for _ in range(2)]
    for member in members:
        assert member.subscribe(f"$share/workers/$queue/{queue}", 1) == 1
    alone = mqtt(version=version)
    alone.subscribe(f"$share/auditors/$queue/{queue}/#", 1)
    amqp.publish(channel, queue, *numbers(40))
    assert payloads(alone.take(40)) == numbers(40)
    received = taken_by(members, 40)
    assert sorted(sum(received, []), key=int) == numbers(40)
    assert all(received)


def test_share_with_a_pattern_selects_by_routing_key(mqtt, channel, queue):
    member = mqtt()
    member.subscribe(f"$share/workers/$queue/{queue}/eu/#", 1)
    for key in ("eu", "us/1", "eu/1"):
        amqp.publish(channel, f"$queue/{queue}/{key}", key)
    messages = member.take(2)
    assert payloads(messages) == ["eu", "eu/1"]
    assert user_property(messages[0], "group-id") == "workers@eu/#"
    assert member.quiet()


def test_share_name_and_property_name_the_same_group(mqtt, channel, queue):
    by_share = mqtt()
    by_share.subscribe(f"$share/workers/$queue/{queue}", user=[("ack", "puback")])
    by_property = in_group(mqtt, queue, "workers")
    amqp.publish(channel, queue, *numbers(40))
    received = taken_by([by_share, by_property], 40)
    assert sorted(sum(received, []), key=int) == numbers(40)
    assert all(received)


@pytest.mark.parametrize("topic_filter", ["$share//$queue/{}", "$share/a+b/$queue/{}", "$share/g"])
def test_malformed_shares_are_refused(raw_mqtt, queue, topic_filter):
    """[MQTT-4.8.2-1], [MQTT-4.8.2-2]: in SUBACK, or by the end of the connection"""
    connection = raw_mqtt()
    connection.send_bytes(wire.subscribe(topic_filter.format(queue)))
    answer = connection.read()
    assert answer is not None
    assert answer.kind in (wire.SUBACK, wire.DISCONNECT)
    assert answer.body[-1 if answer.kind == wire.SUBACK else 0] >= 0x80


def test_messages_of_a_lost_consumer_go_to_another(mqtt, channel, queue):
    """No message waits in the session of a client that is gone."""
    dying = in_group(mqtt, queue, "workers", manual_ack=True)
    staying = in_group(mqtt, queue, "workers")
    amqp.publish(channel, queue, *numbers(30))
    held = len(payloads(dying.take(1)))
    assert held == 1
    dying.drop()
    received = taken_by([staying], 30)[0]
    assert sorted(received, key=int) == numbers(30)


def test_group_without_consumers_keeps_messages(mqtt, channel, queue):
    """Kept while no consumer is connected."""
    first = in_group(mqtt, queue, "workers")
    first.disconnect()
    amqp.publish(channel, queue, *numbers(10))
    assert payloads(in_group(mqtt, queue, "workers").take(10)) == numbers(10)


def test_mqtt_and_amqp_consumers_share_one_group(mqtt, channel, amqp_connect, queue):
    device = in_group(mqtt, queue, "workers")
    consuming = amqp_connect().channel()
    worker = amqp.Collector(consuming, queue, ack=True, arguments={"x-consumer-group": "workers"})
    amqp.publish(channel, queue, *numbers(40))
    received: list[str] = []
    for _ in range(100):
        worker.wait_quiet()
        if not device.quiet():
            received += payloads(device.take(1))
        if len(received) + len(worker.deliveries) == 40:
            break
    assert sorted(received + worker.bodies(), key=int) == numbers(40)
    assert received
    assert worker.deliveries
