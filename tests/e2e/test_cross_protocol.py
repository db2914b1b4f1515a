"""One queue, two protocols: what is published over one arrives over the other, properties included."""

from collections.abc import Callable
from typing import Any

import pika
import pytest

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.mqtt import V311, payloads, user_properties

pytestmark = pytest.mark.extension
STAMPED = {"message-id", "group-id", "queue", "offset", "attempts"}


def publishers_own(message) -> list[tuple[str, str]]:
    """The user properties of a delivery without those the broker adds."""
    return [pair for pair in user_properties(message) if pair[0] not in STAMPED]


@pytest.fixture
def device(mqtt, queue):
    """An MQTT 5 consumer of the queue."""
    client = mqtt()
    assert client.subscribe(f"$queue/{queue}/#") == 1
    return client


def over_amqp(channel, queue) -> amqp.Delivery:
    return amqp.Delivery(*channel.basic_get(queue, auto_ack=True))


def test_mqtt_publishes_arrive_over_amqp_in_order(mqtt, channel, queue):
    consumer = Collector(channel, queue, ack=True)
    publisher = mqtt()
    for number in range(100):
        publisher.publish(f"$queue/{queue}/k", str(number))
    consumer.wait(100)
    assert consumer.bodies() == [str(number) for number in range(100)]


def test_amqp_publishes_arrive_over_mqtt_in_order(device, channel, queue):
    amqp.publish(channel, queue, *(str(number) for number in range(100)))
    assert payloads(device.take(100)) == [str(number) for number in range(100)]


def test_mqtt_properties_arrive_over_amqp(mqtt, channel, queue):
    mqtt().publish(
        f"$queue/{queue}/eu/created",
        "{}",
        user=[("tenant", "acme"), ("größe", "xl")],
        ContentType="application/json",
        ResponseTopic="answers/here",
        CorrelationData=b"c-1",
        MessageExpiryInterval=3600,
    )
    delivery = over_amqp(channel, queue)
    properties = delivery.properties
    assert properties.content_type == "application/json"
    assert properties.reply_to == "answers/here"
    assert properties.correlation_id == "c-1"
    assert properties.delivery_mode == 2
    assert 3_590_000 <= int(properties.expiration) <= 3_600_000
    assert delivery.headers["tenant"] == "acme"
    assert delivery.headers["größe"] == "xl"
    assert delivery.method.routing_key.endswith("eu/created")


def test_user_properties_arrive_over_amqp_in_order(mqtt, channel, queue):
    pairs = [("z", "1"), ("a", "2"), ("m", "3")]
    mqtt().publish(f"$queue/{queue}", "x", user=pairs)
    headers = over_amqp(channel, queue).headers
    assert [(key, value) for key, value in headers.items() if key in "zam"] == pairs


@pytest.mark.parametrize(("qos", "modes"), [(0, (None, 1)), (1, (2,)), (2, (2,))])
def test_quality_of_service_arrives_as_delivery_mode(mqtt, channel, queue, qos, modes):
    """Absent is as good as 1: not persistent."""
    publisher = mqtt()
    publisher.publish(f"$queue/{queue}", "x", qos)
    publisher.publish("flush", "", 1)
    assert over_amqp(channel, queue).properties.delivery_mode in modes


def test_mqtt_311_publish_arrives_over_amqp_as_persistent(mqtt, channel, queue):
    mqtt(version=V311).publish(f"$queue/{queue}/k", b"\x00\xff", 1)
    delivery = over_amqp(channel, queue)
    assert delivery.body == b"\x00\xff"
    assert delivery.properties.delivery_mode == 2
    assert delivery.properties.content_type is None


def test_amqp_properties_arrive_over_mqtt(device, channel, queue):
    properties = pika.BasicProperties(
        content_type="application/json",
        reply_to="answers",
        correlation_id="c-1",
        delivery_mode=2,
        expiration="3600000",
        headers={"tenant": "acme", "größe": "xl"},
    )
    channel.basic_publish("", f"$queue/{queue}/eu/created", b"{}", properties)
    message = device.take_one()
    assert message.topic == f"$queue/{queue}/eu/created"
    assert message.properties.ContentType == "application/json"
    assert message.properties.ResponseTopic == "answers"
    assert message.properties.CorrelationData == b"c-1"
    assert 3_590 <= message.properties.MessageExpiryInterval <= 3_600
    assert publishers_own(message) == [("tenant", "acme"), ("größe", "xl")]


def test_publish_by_queue_name_arrives_with_the_topic_of_the_queue(device, channel, queue):
    amqp.publish(channel, queue, "x")
    assert device.take_one().topic == f"$queue/{queue}"


def test_headers_arrive_over_mqtt_as_text(device, channel, queue):
    headers = {"text": "t", "number": 42, "yes": True, "no": False, "big": 2**40}
    amqp.publish(channel, queue, "x", headers=headers)
    received = dict(publishers_own(device.take_one()))
    assert received["text"] == "t"
    assert received["number"] == "42"
    assert received["big"] == str(2**40)
    assert received["yes"].lower() == "true"
    assert received["no"].lower() == "false"


def test_headers_without_a_text_form_leave_the_message_deliverable(device, channel, queue):
    headers = {"table": {"a": [1, {"b": None}]}, "bytes": b"\xff\x00", "void": None, "last": "here"}
    amqp.publish(channel, queue, "x", headers=headers)
    message = device.take_one()
    assert message.payload == b"x"
    assert ("last", "here") in publishers_own(message)
    amqp.publish(channel, queue, "next")
    assert device.take_one().payload == b"next"


def test_reply_to_that_is_no_topic_is_left_out_over_mqtt(device, channel, queue):
    """[MQTT-3.3.2-14]: a response topic holds no wildcards, so this one cannot be passed on."""
    amqp.publish(channel, queue, "x", reply_to="a/#", correlation_id="c")
    message = device.take_one()
    assert message.payload == b"x"
    assert getattr(message.properties, "ResponseTopic", None) is None


def test_message_with_binary_correlation_data_arrives_over_amqp(mqtt, channel, queue):
    mqtt().publish(f"$queue/{queue}", "x", CorrelationData=b"\xff\xfe\x00")
    assert over_amqp(channel, queue).body == b"x"


def test_mqtt_publish_arrives_over_mqtt_with_all_properties(mqtt, device, queue):
    pairs = [("a", "1"), ("b", "2"), ("a", "1")]
    mqtt().publish(
        f"$queue/{queue}/k",
        "x",
        user=pairs,
        ContentType="text/plain",
        ResponseTopic="r",
        CorrelationData=b"\x00\xff",
        PayloadFormatIndicator=1,
    )
    message = device.take_one()
    assert publishers_own(message) == pairs
    assert message.properties.ContentType == "text/plain"
    assert message.properties.ResponseTopic == "r"
    assert message.properties.CorrelationData == b"\x00\xff"
    assert message.properties.PayloadFormatIndicator == 1


def test_groups_of_both_protocols_receive_every_message(mqtt, channel, amqp_connect, queue):
    device = mqtt()
    device.subscribe(f"$queue/{queue}", user=[("consumer-group", "devices"), ("ack", "puback")])
    worker = Collector(amqp_connect().channel(), queue, ack=True, arguments={"x-consumer-group": "workers"})
    for number in range(20):
        if number % 2:
            amqp.publish(channel, queue, str(number))
        else:
            device.publish(f"$queue/{queue}", str(number))
    expected = [str(number) for number in range(20)]
    assert payloads(device.take(20)) == expected
    worker.wait(20)
    assert worker.bodies() == expected


def test_claim_of_a_lost_mqtt_client_is_redelivered_over_amqp(mqtt, channel, amqp_connect, queue):
    """The AMQP delivery says that it is redelivered."""
    device = mqtt(manual_ack=True)
    device.subscribe(f"$queue/{queue}", user=[("consumer-group", "workers"), ("ack", "puback")])
    amqp.publish(channel, queue, "x")
    device.take_one()
    device.drop()
    worker = Collector(amqp_connect().channel(), queue, arguments={"x-consumer-group": "workers"})
    delivery = worker.wait(1)[0]
    assert delivery.method.redelivered
    assert delivery.headers["x-delivery-count"] == 1


@pytest.mark.parametrize("levels", ["answers/{}", "{}"])
def test_a_worker_answers_the_response_topic_of_a_device_by_reply_to(mqtt, channel, queue, levels):
    topic = levels.format(queue)
    requester = mqtt()
    requester.subscribe(topic)
    channel.queue_delete(topic)
    requester.publish(f"$queue/{queue}", "?", ResponseTopic=topic, CorrelationData=b"7")
    request = over_amqp(channel, queue)
    properties = pika.BasicProperties(correlation_id=request.properties.correlation_id)
    channel.basic_publish("", request.properties.reply_to, b"!", properties, mandatory=True)
    answer = requester.take_one()
    assert (answer.topic, answer.payload, answer.properties.CorrelationData) == (topic, b"!", b"7")
    requester.unsubscribe(topic)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", request.properties.reply_to, b"!", properties, mandatory=True)


def test_a_queue_of_the_name_of_a_response_topic_gets_the_answers(mqtt, channel, queue):
    topic = f"answers/{queue}"
    requester = mqtt()
    requester.subscribe(topic)
    channel.basic_publish("", topic, b"to the topic", mandatory=True)
    assert requester.take_one().payload == b"to the topic"
    channel.queue_declare(topic, auto_delete=True)
    channel.basic_publish("", topic, b"to the queue", mandatory=True)
    assert over_amqp(channel, topic).body == b"to the queue"
    assert requester.quiet()


@pytest.mark.parametrize("root", ["$stream", "$delayed", "$exclusive", "$dlq", "$CONTROL", "$SYS", "$share"])
def test_names_that_mean_something_to_other_brokers_are_refused(mqtt, amqp_connect, name, root):
    device = mqtt()
    assert device.publish(f"{root}/{name}", "x") == 0x90
    if root not in ("$SYS", "$share"):
        assert device.subscribe(f"{root}/{name}") == 0x8F
        assert device.subscribe(f"$share/g/{root}/{name}") == 0x8F
    connection = amqp_connect()

    def refusal(call: Callable[[Any], object]) -> str:
        channel = connection.channel()
        channel.confirm_delivery()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            call(channel)
        assert refused.value.reply_code == 406
        return str(refused.value.reply_text)

    reserved = f"what begins with {root} is reserved"
    assert reserved in refusal(lambda c: c.queue_declare(f"{root}/{name}"))
    assert reserved in refusal(lambda c: c.basic_publish("amq.topic", f"{root}.{name}", b"x"))
    assert reserved in refusal(lambda c: c.basic_publish("", f"{root}/{name}", b"x"))
