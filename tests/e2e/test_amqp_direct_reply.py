"""Direct reply-to: requests over queues, replies straight to the connection that asked."""

import uuid

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.waiting import until

REPLY_TO = "amq.rabbitmq.reply-to"


def ask(channel, queue, body, **properties):
    properties = pika.BasicProperties(reply_to=REPLY_TO, **properties)
    channel.basic_publish("", queue, body, properties)


def wait_answered(server, replies, count):
    """The replies, once the server has answered so many requests."""

    def are_there():
        server.connection.process_data_events(0)
        replies.channel.connection.process_data_events(0)
        return len(replies.deliveries) >= count

    until(are_there)
    return replies.deliveries


@pytest.fixture
def server(amqp_connect, name):
    """A channel of another connection that answers to the queue `name` with the request in capitals."""
    channel = amqp_connect().channel()
    channel.queue_declare(name)

    def answer(channel, method, properties, body):
        reply = pika.BasicProperties(correlation_id=properties.correlation_id)
        channel.basic_publish("", properties.reply_to, body.upper(), reply)

    channel.basic_consume(name, answer, auto_ack=True)
    return channel


def test_reply_comes_to_who_asked_over_another_connection(server, amqp_connect, name):
    client = amqp_connect().channel()
    replies = Collector(client, REPLY_TO, auto_ack=True)
    others = Collector(amqp_connect().channel(), REPLY_TO, auto_ack=True)
    for number in range(3):
        ask(client, name, f"hello {number}", correlation_id=str(number))
    deliveries = wait_answered(server, replies, 3)
    assert [(d.body, d.properties.correlation_id) for d in deliveries] == [
        (b"HELLO 0", "0"),
        (b"HELLO 1", "1"),
        (b"HELLO 2", "2"),
    ]
    assert deliveries[0].method.exchange == ""
    assert deliveries[0].method.routing_key.startswith(f"{REPLY_TO}.")
    assert not deliveries[0].method.redelivered
    assert [d.tag for d in deliveries] == [1, 2, 3]
    assert others.wait_quiet() == []


def test_many_requests_with_properties_of_their_own_are_answered_in_order(server, amqp_connect, name):
    client = amqp_connect().channel()
    replies = Collector(client, REPLY_TO, auto_ack=True)
    wanted = [uuid.uuid4().hex for _ in range(400)]
    for one in wanted:
        ask(client, name, one, correlation_id=one)
    answers = wait_answered(server, replies, len(wanted))
    assert [d.properties.correlation_id for d in answers] == wanted


@pytest.mark.parametrize("size", [0, 200_000])
def test_replies_of_any_size_arrive(server, amqp_connect, name, size):
    client = amqp_connect().channel()
    replies = Collector(client, REPLY_TO, auto_ack=True)
    ask(client, name, b"a" * size)
    assert wait_answered(server, replies, 1)[0].body == b"A" * size


def requester_key(client, channel, queue):
    """The routing key that replies to `client` have."""
    ask(client, queue, "key?")
    client.queue_declare(queue, passive=True)
    _, properties, _ = channel.basic_get(queue, auto_ack=True)
    return properties.reply_to


def test_mandatory_reply_comes_back_when_the_requester_is_gone(amqp_connect, channel, queue):
    client = amqp_connect().channel()
    replies = Collector(client, REPLY_TO, auto_ack=True)
    key = requester_key(client, channel, queue)
    channel.basic_publish("", key, "in time", mandatory=True)
    assert replies.wait(1)[0].body == b"in time"
    assert channel.queue_declare(key, passive=True).method.consumer_count == 1
    replies.cancel()
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", key, "too late", mandatory=True)
    channel.basic_publish("", key, "nobody cares")  # confirmed all the same
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", f"{REPLY_TO}.made-up", "x", mandatory=True)
    with pytest.raises(ChannelClosedByBroker, match=r"404.*no queue 'amq.rabbitmq.reply-to\."):
        channel.queue_declare(key, passive=True)


def test_requester_gone_with_its_connection_gets_nothing(amqp_connect, channel, queue):
    connection = amqp_connect()
    client = connection.channel()
    Collector(client, REPLY_TO, auto_ack=True)
    key = requester_key(client, channel, queue)
    connection.close()
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", key, "too late", mandatory=True)


def test_bare_name_is_there_for_declare_and_not_for_bindings(channel):
    told = channel.queue_declare(REPLY_TO, passive=True).method
    assert (told.queue, told.message_count, told.consumer_count) == (REPLY_TO, 0, 1)
    channel.queue_delete(REPLY_TO)
    with pytest.raises(ChannelClosedByBroker, match="404"):
        channel.basic_get(REPLY_TO)


def test_consuming_replies_with_acknowledgements_is_406(channel):
    with pytest.raises(ChannelClosedByBroker, match=r"406.*reply consumer cannot acknowledge"):
        Collector(channel, REPLY_TO)


def test_second_reply_consumer_of_a_channel_is_406_and_fine_after_cancel(channel):
    Collector(channel, REPLY_TO, auto_ack=True).cancel()
    Collector(channel, REPLY_TO, auto_ack=True)
    with pytest.raises(ChannelClosedByBroker, match=r"406.*reply consumer already set"):
        Collector(channel, REPLY_TO, auto_ack=True)


@pytest.mark.parametrize("count", [1, 50])
def test_request_without_a_reply_consumer_is_406(amqp_connect, queue, count):
    channel = amqp_connect().channel()

    def ask_all():
        for number in range(count):
            ask(channel, queue, "x", correlation_id=str(number))
        channel.queue_declare(queue, passive=True)

    with pytest.raises(ChannelClosedByBroker, match=r"406.*fast reply consumer does not exist"):
        ask_all()


def test_requests_alike_from_two_channels_name_each_its_own(amqp_connect, channel, queue):
    connection = amqp_connect()
    clients = [connection.channel() for _ in range(2)]
    for client in clients:
        Collector(client, REPLY_TO, auto_ack=True)
    keys = [requester_key(client, channel, queue) for client in (*clients, clients[0])]
    assert keys[0] != keys[1]
    assert keys[0] == keys[2]
    amqp.publish(channel, keys[1], "to the second")


@pytest.mark.parametrize("count", [1, 3])
def test_request_of_a_transaction_keeps_the_address_it_was_published_with(amqp_connect, name, count):
    responder = amqp_connect().channel()
    responder.queue_declare(name)
    client = amqp_connect().channel()
    client.tx_select()
    tag = client.basic_consume(REPLY_TO, lambda *_: None, auto_ack=True)
    for number in range(count):
        ask(client, name, str(number), correlation_id=str(number))
    client.basic_cancel(tag)
    replies = Collector(client, REPLY_TO, auto_ack=True)
    client.tx_commit()
    for number in range(count):
        _, properties, body = responder.basic_get(name, auto_ack=True)
        assert (properties.correlation_id, body) == (str(number), str(number).encode())
        assert properties.reply_to.startswith(f"{REPLY_TO}.")
        responder.basic_publish("", properties.reply_to, b"too late")
    assert replies.wait_quiet() == []


def test_request_of_a_transaction_without_a_requester_is_refused_at_once(amqp_connect, name):
    channel = amqp_connect().channel()
    channel.queue_declare(name)
    channel.tx_select()
    ask(channel, name, "to nobody")
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.basic_qos(prefetch_count=1)
    assert refused.value.reply_code == 406
