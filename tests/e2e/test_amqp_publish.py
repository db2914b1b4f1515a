"""AMQP publishing: addresses and publisher confirms."""

import pika
import pytest
from pamqp import commands

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.raw_amqp import BODY, HEADER, content_header, frame


def test_publish_by_queue_name_reaches_the_queue(channel, queue):
    amqp.publish(channel, queue, "hello")
    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (method.exchange, method.routing_key, body) == ("", queue, b"hello")


@pytest.mark.extension
def test_publish_by_queue_address_reaches_the_queue(channel, queue):
    amqp.publish(channel, f"$queue/{queue}", "root")
    amqp.publish(channel, f"$queue/{queue}/eu/created", "keyed")
    first, _, first_body = channel.basic_get(queue, auto_ack=True)
    second, _, second_body = channel.basic_get(queue, auto_ack=True)
    assert (first.routing_key, first_body) == (f"$queue/{queue}", b"root")
    assert (second.routing_key, second_body) == (f"$queue/{queue}/eu/created", b"keyed")


@pytest.mark.extension
def test_publishes_by_name_and_by_address_keep_one_order(channel, queue):
    for number in range(20):
        amqp.publish(channel, queue if number % 2 else f"$queue/{queue}/k", str(number))
    assert amqp.count(channel, queue) == 20
    consumer = Collector(channel, queue, ack=True)
    consumer.wait(20)
    assert consumer.bodies() == [str(number) for number in range(20)]


def test_single_publish_is_confirmed(raw_amqp, queue):
    connection = raw_amqp()
    connection.open_channel(confirm=True)
    connection.publish(1, queue, b"x")
    assert connection.read_confirms(1) == [1]


def test_every_publish_of_many_is_confirmed(raw_amqp, channel, queue):
    connection = raw_amqp()
    connection.open_channel(confirm=True)
    for number in range(500):
        connection.publish(1, queue, b"%d" % number)
    assert sorted(connection.read_confirms(500)) == list(range(1, 501))
    assert amqp.count(channel, queue) == 500


@pytest.mark.extension
def test_confirms_come_in_order(raw_amqp, queue):
    """Acknowledged at the durable watermark, in order."""
    connection = raw_amqp()
    connection.open_channel(confirm=True)
    for number in range(300):
        connection.publish(1, queue, b"%d" % number)
    confirmed = connection.read_confirms(300)
    assert confirmed == list(range(1, 301))


def test_confirm_numbers_begin_at_select_in_each_channel(raw_amqp, queue):
    connection = raw_amqp()
    connection.open_channel(1)
    connection.publish(1, queue, b"before")
    connection.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    connection.publish(1, queue, b"after")
    assert connection.read_confirms(1) == [1]
    connection.open_channel(2, confirm=True)
    connection.publish(2, queue, b"other")
    assert connection.read_confirms(1) == [1]


def test_second_confirm_select_keeps_the_numbers(raw_amqp, queue):
    connection = raw_amqp()
    connection.open_channel(confirm=True)
    connection.publish(1, queue, b"one")
    assert connection.read_confirms(1) == [1]
    connection.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    connection.publish(1, queue, b"two")
    assert connection.expect(commands.Basic.Ack).delivery_tag == 2


def test_publish_without_confirm_select_gets_no_confirm(raw_amqp, channel, queue):
    connection = raw_amqp()
    connection.open_channel()
    connection.publish(1, queue, b"x")
    passive = commands.Queue.Declare(0, queue, passive=True)
    for _ in range(50):  # RabbitMQ routes while it answers
        if connection.call(1, passive, commands.Queue.DeclareOk).message_count == 1:
            return
    raise AssertionError("the message did not arrive")


def test_confirmed_message_can_be_read_at_once(channel, amqp_connect, queue):
    reader = amqp_connect().channel()
    for number in range(20):
        amqp.publish(channel, queue, str(number))
        assert reader.basic_get(queue, auto_ack=True)[2] == b"%d" % number


def test_mandatory_publish_to_a_queue_is_not_returned(channel, queue):
    channel.basic_publish("", queue, b"x", mandatory=True)
    assert amqp.count(channel, queue) == 1


def test_unknown_exchange_is_404(channel):
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        channel.basic_publish("no-such-exchange", "key", b"x")
    assert closed.value.reply_code == 404


def test_immediate_is_540(raw_amqp, queue):
    connection = raw_amqp()
    connection.open_channel()
    connection.send(1, commands.Basic.Publish(0, "", queue, immediate=True))
    connection.send_bytes(frame(HEADER, 1, content_header(1)) + frame(BODY, 1, b"x"))
    assert connection.close_reason()[0] == 540


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"expiration": "abc"}, "invalid expiration 'abc': no_integer"),
        ({"expiration": "-1"}, "invalid expiration '-1': {value_negative,-1}"),
        ({"expiration": "1.5"}, "invalid expiration '1.5': {leftover_string,\".5\"}"),
        ({"expiration": ""}, "invalid expiration '': no_integer"),
        ({"expiration": "315360000001"}, "invalid expiration '315360000001': {value_too_large,315360000001}"),
        ({"user_id": "bob"}, "user_id property set to 'bob' but authenticated user was 'guest'"),
    ],
)
def test_property_that_means_nothing_closes_the_channel_with_406(channel, queue, properties, reason):
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        channel.basic_publish("", queue, b"x", pika.BasicProperties(**properties))
    assert (closed.value.reply_code, closed.value.reply_text) == (406, f"PRECONDITION_FAILED - {reason}")


@pytest.mark.parametrize("expiration", ["+60000", "00060000", "315360000000"])
def test_expiration_is_any_whole_number_of_at_most_ten_years(channel, queue, expiration):
    channel.basic_publish("", queue, b"x", pika.BasicProperties(expiration=expiration))
    assert channel.basic_get(queue)[1].expiration == expiration


def test_expiration_0_is_gone_at_once_but_for_a_consumer_that_is_there(channel, queue):
    channel.basic_publish("", queue, b"before")
    channel.basic_publish("", queue, b"unheard", pika.BasicProperties(expiration="0"))
    channel.basic_publish("", queue, b"after")
    assert [channel.basic_get(queue)[2] for _ in range(3)] == [b"before", b"after", None]
    consumer = Collector(channel, queue)
    channel.basic_publish("", queue, b"heard", pika.BasicProperties(expiration="0"))
    assert [delivery.body for delivery in consumer.wait(1)] == [b"heard"]


@pytest.mark.parametrize("modes", [[3], [2, 3, 0, 255, 1]])
def test_delivery_modes_without_a_meaning_are_taken_and_seen(channel, queue, modes):
    """As RabbitMQ 4.3: what is not 2 is not persistent."""
    channel.confirm_delivery()
    for mode in modes:
        channel.basic_publish("", queue, b"x", pika.BasicProperties(delivery_mode=mode))
    received = [channel.basic_get(queue, auto_ack=True)[1] for _ in modes]
    assert [properties.delivery_mode for properties in received] == modes
