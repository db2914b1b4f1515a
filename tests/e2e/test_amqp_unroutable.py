"""With `auto_create: false` a publish to a queue that does not exist is refused, and the publisher told."""

import pytest
from pamqp import commands
from pika.exceptions import NackError, UnroutableError

from tests.e2e import amqp
from tests.e2e.amqp import Collector


def test_mandatory_publish_to_a_missing_queue_raises_in_pika(strict_broker, amqp_connect, name):
    channel = amqp_connect(strict_broker).channel()
    channel.confirm_delivery()
    with pytest.raises(UnroutableError) as unroutable:
        channel.basic_publish("", name, b"lost?", mandatory=True)
    (returned,) = unroutable.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert returned.body == b"lost?"


def test_return_arrives_complete_before_the_ack(strict_broker, raw_amqp, name):
    connection = raw_amqp(strict_broker)
    connection.open_channel(confirm=True)
    content_type = b"\x80\x00\x04text"
    connection.publish(1, name, b"back to me", content_type, mandatory=True)
    returned = connection.read_content(commands.Basic.Return)
    assert (returned.method.reply_code, returned.method.routing_key) == (312, name)
    assert (returned.body, returned.header_payload[12:]) == (b"back to me", content_type)
    assert connection.read_confirms(1) == [1]


def test_mandatory_publish_without_confirms_is_returned(strict_broker, raw_amqp, name):
    connection = raw_amqp(strict_broker)
    connection.open_channel()
    connection.publish(1, name, b"x", mandatory=True)
    assert connection.read_content(commands.Basic.Return).body == b"x"


@pytest.mark.extension
def test_publish_to_a_missing_queue_without_mandatory_is_refused(strict_broker, amqp_connect, name):
    channel = amqp_connect(strict_broker).channel()
    channel.confirm_delivery()
    with pytest.raises((amqp.ChannelClosedByBroker, NackError)) as refused:
        channel.basic_publish("", f"$queue/{name}/key", b"x")
    if isinstance(refused.value, amqp.ChannelClosedByBroker):
        assert refused.value.reply_code == 404


def test_consuming_a_missing_queue_is_404(strict_broker, amqp_connect, name):
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        Collector(amqp_connect(strict_broker).channel(), name)
    assert closed.value.reply_code == 404


def test_getting_from_a_missing_queue_is_404(strict_broker, amqp_connect, name):
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        amqp_connect(strict_broker).channel().basic_get(name)
    assert closed.value.reply_code == 404


def test_declared_queue_receives_mandatory_publishes(strict_broker, amqp_connect, name):
    channel = amqp_connect(strict_broker).channel()
    channel.confirm_delivery()
    channel.queue_declare(name, durable=True)
    channel.basic_publish("", name, b"x", mandatory=True)
    assert channel.basic_get(name, auto_ack=True)[2] == b"x"
