"""Queues that keep only the newest message of each value of a header."""

from typing import Any

import httpx
import pika
import pytest

from tests.e2e import amqp
from tests.e2e.mqtt import payloads
from tests.waiting import until

pytestmark = pytest.mark.extension


def declare(channel: amqp.BlockingChannel, queue: str, **more: Any) -> None:
    channel.queue_declare(queue, durable=True, arguments={"x-last-value": "device", **more})


def say(channel: amqp.BlockingChannel, queue: str, device: Any, *bodies: str) -> None:
    amqp.publish(channel, queue, *bodies, headers={"device": device})


def drain(channel: amqp.BlockingChannel, queue: str) -> list[str]:
    found = []
    while (delivery := amqp.get(channel, queue)) is not None:
        found.append(delivery.body.decode())
    return found


def test_older_messages_with_the_same_value_go(channel, name):
    declare(channel, name)
    for number in range(3):
        say(channel, name, "a", f"a{number}")
        say(channel, name, 7, f"seven{number}")
        amqp.publish(channel, name, f"plain{number}")
    assert amqp.count(channel, name) == 5
    assert drain(channel, name) == ["plain0", "plain1", "a2", "seven2", "plain2"]


def test_what_a_consumer_holds_goes_when_it_comes_back(channel, amqp_connect, name):
    declare(channel, name, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"})
    channel.queue_declare(f"{name}-dead", durable=True)
    say(channel, name, "a", "old")
    say(channel, name, "b", "other")
    held = amqp.get(channel, name, auto_ack=False)
    other = amqp.get(channel, name, auto_ack=False)
    assert held is not None
    assert other is not None
    say(channel, name, "a", "new")
    assert amqp.count(channel, name) == 1
    channel.basic_nack(held.tag, requeue=True)
    channel.basic_nack(other.tag, requeue=True)
    until(lambda: amqp.count(channel, name) == 2)
    assert drain(channel, name) == ["other", "new"]
    assert amqp.count(channel, f"{name}-dead") == 0


def test_what_has_a_newer_one_and_has_expired_is_no_dead_letter_as_a_consumer_waits_for_it(channel, name):
    dead = f"{name}-dead"
    channel.queue_declare(dead, durable=True)
    more = {"x-message-ttl": 50, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    declare(channel, name, **more)
    say(channel, name, "a", "old")
    held = amqp.get(channel, name, auto_ack=False)
    assert held is not None
    say(channel, name, "a", "new")
    until(lambda: amqp.count(channel, dead) == 1)
    channel.basic_consume(name, lambda *_: None)
    channel.basic_nack(held.tag, requeue=True)
    amqp.publish(channel, dead, "behind it")
    assert drain(channel, dead) == ["new", "behind it"]


def test_devices_publish_by_user_property_and_groups_each_have_the_newest(mqtt, channel, name):
    declare(channel, name)
    device, early = mqtt(), mqtt(manual_ack=True)
    early.subscribe(f"$queue/{name}", user=[("consumer-group", "early"), ("ack", "puback")])
    for number in range(3):
        assert device.publish(f"$queue/{name}", f"m{number}", user=[("device", "m1")]) == 0
        assert early.take_one().payload == b"m%d" % number  # each is delivered at once
    say(channel, name, "m1", "over amqp")
    late = mqtt()
    late.subscribe(f"$queue/{name}", user=[("consumer-group", "late"), ("ack", "puback")])
    assert payloads(late.take(1)) == ["over amqp"]
    assert late.quiet()


def test_the_newest_are_known_after_a_kill(own_broker, amqp_connect, name):
    broker = own_broker(timed=True)
    channel = amqp_connect(broker).channel()
    channel.confirm_delivery()
    declare(channel, name)
    channel.queue_declare("other", durable=True)
    say(channel, name, "a", "a1", "a2")
    say(channel, name, "b", "b1")
    held = amqp.get(channel, name, auto_ack=False)
    assert held is not None
    assert held.body == b"a2"
    say(channel, name, "a", "a3")
    amqp.until_settled(broker, channel, "other")
    broker.kill9()
    broker.start()
    channel = amqp_connect(broker).channel()
    channel.confirm_delivery()
    say(channel, name, "b", "b2")
    assert drain(channel, name) == ["a3", "b2"]


def test_configuration_names_it_and_what_cannot_be_is_refused(own_broker, amqp_connect):
    broker = own_broker({"queues": [{"name": "states", "last_value": "device"}]})
    connection = amqp_connect(broker)
    channel = connection.channel()
    channel.confirm_delivery()
    say(channel, "states", "a", "1", "2")
    assert drain(channel, "states") == ["2"]
    for arguments in (
        {"x-max-priority": 3, "x-last-value": "device"},
        {"x-message-groups": "sticky", "x-last-value": "device"},
        {"x-queue-type": "stream", "x-last-value": "device"},
        {"x-last-value": ""},
        {"x-last-value": 7},
    ):
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            connection.channel().queue_declare("no", durable=True, arguments=arguments)
        assert refused.value.reply_code == 406
        assert "x-last-value" in refused.value.reply_text
    answer = httpx.put(
        f"{broker.http_url}/api/v1/queues/no", json={"last_value": "d", "max_priority": 2}, trust_env=False
    )
    assert answer.status_code == 400


def test_a_policy_gives_last_values_which_hold_over_a_kill(own_broker, amqp_connect):
    broker = own_broker()
    guest = ("guest", "guest")
    channel = amqp_connect(broker).channel()
    channel.confirm_delivery()
    for queue, arguments in (("newest", {}), ("ranked", {"x-max-priority": 3})):
        channel.queue_declare(queue, durable=True, arguments=arguments)
    url = f"{broker.http_url}/api/policies/%2F/p"
    body = {"pattern": "", "definition": {"last-value": "device"}}
    httpx.put(url, json=body, auth=guest, trust_env=False).raise_for_status()
    for queue in ("newest", "ranked"):
        say(channel, queue, "a", "a1", "a2")
        say(channel, queue, "b", "b1")
    assert (amqp.count(channel, "newest"), amqp.count(channel, "ranked")) == (2, 3)
    broker.kill9()
    broker.start()
    channel = amqp_connect(broker).channel()
    channel.confirm_delivery()
    say(channel, "newest", "a", "a3")
    assert drain(channel, "newest") == ["b1", "a3"]
    url = f"{broker.http_url}/api/policies/%2F/p"
    httpx.delete(url, auth=guest, trust_env=False).raise_for_status()
    say(channel, "newest", "c", "c1", "c2")
    assert amqp.count(channel, "newest") == 2
