"""AMQP settling: ack, nack, reject, multiple, requeue, recover, and what happens without."""

import pytest
from pamqp import commands

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.raw_amqp import method_frame
from tests.waiting import until


@pytest.fixture
def consuming(amqp_connect):
    """A channel to consume on, so that the publishing one stays free."""
    return amqp_connect().channel()


def take(channel, queue, count: int) -> list[amqp.Delivery]:
    """Get `count` messages, unacked."""
    return [amqp.Delivery(*channel.basic_get(queue)) for _ in range(count)]


def drain(channel, queue) -> list[str]:
    """All that waits, in order, acked."""
    drained = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        drained.append(got[2].decode())
    return drained


def test_acked_messages_do_not_come_back(channel, consuming, queue):
    amqp.publish(channel, queue, "a", "b")
    consumer = Collector(consuming, queue, ack=True)
    consumer.wait(2)
    consuming.connection.close()
    assert amqp.count(channel, queue) == 0


def test_ack_multiple_settles_all_up_to_the_tag(channel, consuming, queue):
    amqp.publish(channel, queue, *"abcd")
    take(consuming, queue, 4)
    consuming.basic_ack(3, multiple=True)
    consuming.close()
    assert drain(channel, queue) == ["d"]


def test_ack_multiple_of_tag_0_settles_all(channel, consuming, queue):
    amqp.publish(channel, queue, *"abc")
    take(consuming, queue, 3)
    consuming.basic_ack(0, multiple=True)
    consuming.close()
    assert drain(channel, queue) == []


def test_acks_in_any_order_settle_their_messages(channel, consuming, queue):
    amqp.publish(channel, queue, *"abcde")
    take(consuming, queue, 5)
    for tag in (4, 1, 5):
        consuming.basic_ack(tag)
    consuming.close()
    assert drain(channel, queue) == ["b", "c"]


def test_nack_requeue_returns_to_the_original_place(channel, consuming, queue):
    amqp.publish(channel, queue, *"abcde")
    take(consuming, queue, 3)
    consuming.basic_nack(2, requeue=True)
    consuming.queue_declare(queue, passive=True)  # answered after the nack was done
    assert drain(channel, queue) == ["b", "d", "e"]
    consuming.basic_nack(3, multiple=True, requeue=True)
    consuming.queue_declare(queue, passive=True)
    assert drain(channel, queue) == ["a", "c"]


def test_nack_multiple_with_requeue_returns_messages_to_their_places(channel, consuming, queue):
    amqp.publish(channel, queue, *"abcd")
    take(consuming, queue, 3)
    consuming.basic_nack(2, multiple=True, requeue=True)
    consuming.queue_declare(queue, passive=True)
    assert drain(channel, queue) == ["a", "b", "d"]


def test_nack_without_requeue_delivers_no_more(channel, consuming, queue):
    amqp.publish(channel, queue, *"abc")
    take(consuming, queue, 2)
    consuming.basic_nack(2, multiple=True, requeue=False)
    consuming.close()
    assert drain(channel, queue) == ["c"]


@pytest.mark.parametrize(("requeue", "left"), [(True, ["a", "b"]), (False, ["b"])])
def test_reject_returns_or_fails_the_message(channel, consuming, queue, requeue, left):
    amqp.publish(channel, queue, "a", "b")
    take(consuming, queue, 1)
    consuming.basic_reject(1, requeue=requeue)
    consuming.queue_declare(queue, passive=True)
    assert drain(channel, queue) == left


def test_requeued_message_returns_to_the_only_consumer(channel, consuming, queue):
    amqp.publish(channel, queue, "again")
    consumer = Collector(consuming, queue)
    consuming.basic_nack(consumer.wait(1)[0].tag, requeue=True)
    second = consumer.wait(2)[1]
    assert (second.body, second.method.redelivered, second.tag) == (b"again", True, 2)


def test_redelivered_is_set_from_the_second_delivery(channel, consuming, queue):
    amqp.publish(channel, queue, "a", "b")
    first, _ = take(consuming, queue, 2)
    assert first.method.redelivered is False
    consuming.basic_nack(1, requeue=True)
    assert take(consuming, queue, 1)[0].method.redelivered is True
    consuming.close()
    consumer = Collector(channel, queue)
    assert [delivery.method.redelivered for delivery in consumer.wait(2)] == [True, True]


def test_redelivered_is_not_set_for_messages_never_delivered(channel, amqp_connect, queue):
    amqp.publish(channel, queue, *"abcdef")
    connection = amqp_connect()
    consuming = connection.channel()
    consuming.basic_qos(prefetch_count=2)
    Collector(consuming, queue).wait(2)
    connection.close()
    consumer = Collector(channel, queue, ack=True)
    flags = [delivery.method.redelivered for delivery in consumer.wait(6)]
    assert flags == [True, True, False, False, False, False]
    assert consumer.bodies() == list("abcdef")


@pytest.mark.parametrize("how", ["nack", "reject", "channel", "connection"])
def test_delivery_count_is_set_from_the_second_attempt(channel, amqp_connect, name, how):
    """As RabbitMQ's quorum queues count: the deliveries before this one but those that were nacked."""
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
    amqp.publish(channel, name, "x", headers={"mine": "kept"})
    counts = []
    for _ in range(3):
        connection = amqp_connect()
        consuming = connection.channel()
        consumer = Collector(consuming, name)
        delivery = consumer.wait(1)[0]
        consumer.cancel()
        assert delivery.headers["mine"] == "kept"
        counts.append(delivery.headers.get("x-delivery-count"))
        if how == "nack":
            consuming.basic_nack(delivery.tag, requeue=True)
        elif how == "reject":
            consuming.basic_reject(delivery.tag, requeue=True)
        elif how == "channel":
            consuming.close()
        connection.close()
    assert counts == ([None, None, None] if how == "nack" else [None, 1, 2])
    channel.queue_delete(name)


@pytest.mark.extension
def test_delivery_count_is_added_to_messages_without_headers(channel, queue):
    amqp.publish(channel, queue, "x", content_type="text/plain")
    seen = []
    for _ in range(3):
        delivery = take(channel, queue, 1)[0]
        assert delivery.properties.content_type == "text/plain"
        seen.append(delivery.properties.headers)
        channel.basic_nack(delivery.tag, requeue=True)
    assert seen == [None, {"x-delivery-count": 1}, {"x-delivery-count": 2}]


def test_recover_redelivers_every_unacked_message(channel, consuming, queue):
    amqp.publish(channel, queue, *"abc")
    consumer = Collector(consuming, queue)
    consumer.wait(3)
    consuming.basic_ack(2)
    consuming.basic_recover(requeue=True)
    again = consumer.wait(5)[3:]
    assert amqp.bodies(again) == ["a", "c"]
    assert all(delivery.method.redelivered for delivery in again)


def test_recover_async_requeues_without_an_answer(raw_amqp, channel, queue):
    amqp.publish(channel, queue, "a")
    connection = raw_amqp()
    connection.open_channel()
    connection.send(1, commands.Basic.Get(0, queue, False))
    assert connection.read_content(commands.Basic.GetOk).body == b"a"
    connection.send(1, commands.Basic.RecoverAsync(True))
    connection.call(1, commands.Queue.Declare(0, queue, passive=True), commands.Queue.DeclareOk)
    assert drain(channel, queue) == ["a"]


def test_unknown_delivery_tag_is_406(channel, amqp_connect, queue):
    connection = amqp_connect()
    for call in ("basic_ack", "basic_nack", "basic_reject"):
        failing = connection.channel()
        getattr(failing, call)(99)
        with pytest.raises(amqp.ChannelClosedByBroker) as closed:
            failing.queue_declare(queue, passive=True)
        assert closed.value.reply_code == 406
    assert connection.is_open


def test_second_ack_of_a_tag_is_406(channel, consuming, queue):
    amqp.publish(channel, queue, "a")
    take(consuming, queue, 1)
    consuming.basic_ack(1)
    consuming.basic_ack(1)
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        consuming.queue_declare(queue, passive=True)
    assert closed.value.reply_code == 406


def test_ack_on_another_channel_is_406_and_settles_nothing(channel, amqp_connect, queue):
    connection = amqp_connect()
    holding, other = connection.channel(), connection.channel()
    amqp.publish(channel, queue, "held")
    take(holding, queue, 1)
    other.basic_ack(1)
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        other.queue_declare(queue, passive=True)
    assert closed.value.reply_code == 406
    holding.close()
    assert drain(channel, queue) == ["held"]


def test_failed_channel_returns_its_messages_to_the_queue(channel, consuming, queue):
    amqp.publish(channel, queue, "a", "b")
    take(consuming, queue, 2)
    consuming.basic_ack(99)
    with pytest.raises(amqp.ChannelClosedByBroker):
        consuming.queue_declare(queue, passive=True)
    assert drain(channel, queue) == ["a", "b"]


def test_acks_sent_before_the_close_are_done(raw_amqp, channel, queue):
    """Everything sent before the close is done, in one packet or not."""
    amqp.publish(channel, queue, *"abc")
    connection = raw_amqp()
    connection.open_channel()
    for _ in range(3):
        connection.send(1, commands.Basic.Get(0, queue, False))
        connection.read_content(commands.Basic.GetOk)
    acks = b"".join(method_frame(1, commands.Basic.Ack(tag)) for tag in (1, 2, 3))
    connection.send_bytes(acks + method_frame(0, commands.Connection.Close(200, "done", 0, 0)))
    connection.expect(commands.Connection.CloseOk)
    assert drain(channel, queue) == []


@pytest.mark.parametrize("how", ["channel", "connection", "socket"])
def test_unacked_messages_return_to_their_places_when_the_consumer_ends(
    channel, amqp_connect, raw_amqp, queue, how
):
    amqp.publish(channel, queue, *"abcd")
    if how == "socket":
        connection = raw_amqp()
        connection.open_channel()
        for _ in range(3):
            connection.send(1, commands.Basic.Get(0, queue, False))
            connection.read_content(commands.Basic.GetOk)
        connection.drop()
        until(lambda: amqp.count(channel, queue) == 4)
    else:
        connection = amqp_connect()
        consuming = connection.channel()
        take(consuming, queue, 3)
        (consuming if how == "channel" else connection).close()
    assert drain(channel, queue) == list("abcd")


def test_requeued_message_goes_to_another_consumer(channel, amqp_connect, queue):
    """A worker that requeues everything does not keep the others from it."""
    refusing_channel = amqp_connect().channel()
    refusing_channel.basic_qos(prefetch_count=1)
    refusing = Collector(refusing_channel, queue)
    amqp.publish(channel, queue, "x")
    delivery = refusing.wait(1)[0]
    willing = Collector(amqp_connect().channel(), queue, ack=True)
    refusing.cancel()
    refusing_channel.basic_nack(delivery.tag, requeue=True)
    assert willing.wait(1)[0].body == b"x"


def test_three_thousand_single_acks_settle_every_message(raw_amqp, channel, queue):
    publishing = raw_amqp()
    publishing.open_channel(confirm=True)
    for _ in range(3_000):
        publishing.publish(1, queue, b"x")
    publishing.read_confirms(3_000)
    connection = raw_amqp()
    connection.open_channel()
    connection.send(1, commands.Basic.Consume(0, queue, "fast"))
    connection.expect(commands.Basic.ConsumeOk)
    for _ in range(3_000):
        connection.read_content(commands.Basic.Deliver)
    connection.send_bytes(b"".join(method_frame(1, commands.Basic.Ack(tag)) for tag in range(1, 3_001)))
    connection.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    assert amqp.count(channel, queue) == 0
