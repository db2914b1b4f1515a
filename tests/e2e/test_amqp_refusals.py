"""What this version does not support is refused with 540 NOT_IMPLEMENTED, never accepted and ignored."""

import pytest
from pamqp import commands
from pika.exceptions import NackError, UnroutableError

from tests.e2e import amqp

pytestmark = pytest.mark.extension


def refusal(connection, method) -> int:
    connection.open_channel()
    connection.send(1, method)
    reason = connection.close_reason()
    assert reason is not None, "the broker only hung up"
    return reason[0]


def test_recover_without_requeue_is_540(raw_amqp):
    assert refusal(raw_amqp(), commands.Basic.Recover(False)) == 540


def test_refused_declare_creates_no_queue(raw_amqp, amqp_connect, name):
    declare = commands.Queue.Declare(0, name, durable=True, arguments={"x-queue-type": "other"})
    refusal(raw_amqp(), declare)
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        amqp_connect().channel().queue_declare(name, passive=True)
    assert closed.value.reply_code == 404


@pytest.mark.parametrize("address", ["$queue/", "$queue//key", "$queue/{}/$ack/more", "$queue/{}/$unknown"])
def test_publish_to_a_malformed_address_is_refused(amqp_connect, queue, address):
    publishing = amqp_connect().channel()
    publishing.confirm_delivery()
    with pytest.raises((amqp.ChannelClosedByBroker, NackError, UnroutableError)):
        publishing.basic_publish("", address.format(queue), b"x", mandatory=True)


@pytest.mark.parametrize("address", ["$queue/", "$queue/{}/a+b", "$queue/{}/#/a"])
def test_consuming_with_a_malformed_pattern_is_refused(amqp_connect, queue, address):
    with pytest.raises(amqp.ChannelClosedByBroker):
        amqp.Collector(amqp_connect().channel(), address.format(queue))
