"""The exchange amq.topic and MQTT's topics are one space."""

import pika
import pytest

from tests.e2e import amqp
from tests.e2e.mqtt import V5, V311, MqttClient, payloads, user_properties
from tests.e2e.test_amqp_exchanges import take_all

pytestmark = pytest.mark.extension


@pytest.mark.parametrize(
    ("binding", "taken", "left"),
    [
        ("{}.*.up", ["{}/a/up", "{}/b.c/up"], ["{}/up", "{}/a/b/up"]),
        ("{}.#", ["{}", "{}/a/b", "{}//a"], ["x{}"]),
        ("{}.v1/2", ["{}/v1.2"], ["{}/v1/2"]),
    ],
)
def test_a_binding_takes_what_devices_publish(mqtt, channel, queue, name, binding, taken, left):
    device = mqtt()
    channel.queue_bind(queue, "amq.topic", binding.format(name))
    for topic in (*taken, *left):
        device.publish(topic.format(name), topic)
    assert take_all(channel, queue) == taken


def test_properties_and_the_topic_come_along(mqtt, channel, queue, name):
    channel.queue_bind(queue, "amq.topic", f"{name}.#")
    mqtt().publish(f"{name}/a", "{}", user=[("tenant", "acme")], ContentType="application/json")
    method, properties, body = channel.basic_get(queue, auto_ack=True)
    assert (method.exchange, method.routing_key, body) == ("amq.topic", f"{name}.a", b"{}")
    assert (properties.content_type, properties.headers) == ("application/json", {"tenant": "acme"})
    assert properties.delivery_mode == 2


def test_a_binding_takes_effect_at_once_and_ends_at_once(mqtt, channel, queue, name):
    device = mqtt()
    device.publish(f"{name}/t", "before")
    channel.queue_bind(queue, "amq.topic", f"{name}.t")
    device.publish(f"{name}/t", "bound")
    channel.queue_unbind(queue, "amq.topic", f"{name}.t")
    device.publish(f"{name}/t", "after")
    assert take_all(channel, queue) == ["bound"]


def test_bindings_and_subscriptions_take_effect_between_publishes_alike(mqtt, channel, queue, name):
    topic = f"{name}/t"
    device, first, second = mqtt(), mqtt(), mqtt()
    first.subscribe(topic, 1)
    for body in ("one", "two"):
        device.publish(topic, body)
    channel.queue_bind(queue, "amq.topic", f"{name}.t")
    device.publish(topic, "bound")
    channel.queue_unbind(queue, "amq.topic", f"{name}.t")
    device.publish(topic, "unbound")
    second.subscribe(topic, 1)
    device.publish(topic, "both")
    assert payloads(first.take(5)) == ["one", "two", "bound", "unbound", "both"]
    assert payloads(second.take(1)) == ["both"]
    assert take_all(channel, queue) == ["bound"]


def test_what_was_answered_is_there_after_a_crash(own_broker):
    broker = own_broker()
    connection = amqp.connect(broker.amqp_port)
    channel = connection.channel()
    channel.queue_declare("kept", durable=True)
    channel.queue_bind("kept", "amq.topic", "devices.#")
    device = MqttClient(broker.mqtt_port).connect()
    for number in range(50):
        device.publish(f"devices/{number}", str(number))
    broker.kill9()
    broker.start()
    connection = amqp.connect(broker.amqp_port)
    assert take_all(connection.channel(), "kept") == [str(number) for number in range(50)]
    amqp.close_quietly(connection)


def test_a_session_gets_what_was_confirmed_while_its_client_was_away(own_broker):
    broker = own_broker()
    session = {"client_id": "away", "clean": False, "SessionExpiryInterval": 3_600}
    client = MqttClient(broker.mqtt_port, **session).connect()
    client.subscribe("alarms/#", qos=1)
    client.drop()
    connection = amqp.connect(broker.amqp_port)
    channel = connection.channel()
    channel.confirm_delivery()
    for number in range(20):
        properties = pika.BasicProperties(delivery_mode=2)
        channel.basic_publish("amq.topic", f"alarms.{number}", str(number), properties, mandatory=True)
    broker.kill9()
    broker.start()
    again = MqttClient(broker.mqtt_port, **session).connect()
    assert payloads(again.take(20)) == [str(number) for number in range(20)]
    again.end()


@pytest.mark.parametrize("version", [V311, V5])
def test_subscribers_hear_what_amqp_publishes(mqtt, channel, name, version):
    listener = mqtt(version=version)
    listener.subscribe(f"{name}/+/up", qos=1)
    channel.confirm_delivery()
    properties = pika.BasicProperties(content_type="text/plain", headers={"n": 1}, delivery_mode=2)
    channel.basic_publish("amq.topic", f"{name}.a.up", b"heard", properties, mandatory=True)
    [message] = listener.take(1)
    assert (message.topic, message.payload, message.qos) == (f"{name}/a/up", b"heard", 1)
    if version == V5:
        assert message.properties.ContentType == "text/plain"
        assert user_properties(message) == [("n", "1")]


def test_nobody_is_told_twice(mqtt, channel, queue, name):
    listener = mqtt()
    listener.subscribe(f"{name}/#", qos=1)
    channel.queue_bind(queue, "amq.topic", f"{name}.#")
    channel.basic_publish("amq.topic", f"{name}.a", b"amqp")
    mqtt().publish(f"{name}/a", "mqtt")
    assert sorted(payloads(listener.take(2))) == ["amqp", "mqtt"]
    assert listener.quiet()
    assert take_all(channel, queue) == ["amqp", "mqtt"]


def test_a_mandatory_publish_that_nobody_hears_comes_back(mqtt, channel, name):
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("amq.topic", f"{name}.a", b"x", mandatory=True)


def test_exchanges_in_between_lead_to_topics_and_from_them(mqtt, channel, queue, name):
    channel.exchange_declare(f"{name}-in", "fanout", auto_delete=True)
    channel.exchange_bind("amq.topic", f"{name}-in")
    channel.exchange_declare(f"{name}-out", "headers")
    channel.exchange_bind(f"{name}-out", "amq.topic", f"{name}.#")
    channel.queue_bind(queue, f"{name}-out", "", {"tenant": "acme"})
    listener = mqtt()
    listener.subscribe(f"{name}/#", qos=1)
    channel.basic_publish(f"{name}-in", f"{name}.a", b"1", pika.BasicProperties(headers={"tenant": "acme"}))
    assert payloads(listener.take(1)) == ["1"]
    listener.publish(f"{name}/b", "2", user=[("tenant", "acme")])
    listener.publish(f"{name}/b", "3", user=[("tenant", "other")])
    assert take_all(channel, queue) == ["1", "2"]
    channel.exchange_delete(f"{name}-out")
    channel.exchange_delete(f"{name}-in")


def test_a_full_queue_answers_quota_exceeded_and_the_others_keep_it(mqtt, channel, queue, name):
    channel.queue_declare(
        f"{name}-full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"}, exclusive=True
    )
    for each in (queue, f"{name}-full"):
        channel.queue_bind(each, "amq.topic", f"{name}.t")
    device = mqtt()
    device.publish(f"{name}/t", "1")
    assert device.publish(f"{name}/t", "2") == 0x97
    assert take_all(channel, queue) == ["1", "2"]
    assert take_all(channel, f"{name}-full") == ["1"]
