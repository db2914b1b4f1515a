"""AMQP consuming: flags, tags, cancelling, basic.get."""

import pytest
from pamqp import commands

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.raw_amqp import method_frame
from tests.waiting import until


def test_consumer_receives_waiting_and_new_messages(channel, queue):
    amqp.publish(channel, queue, "waiting")
    consumer = Collector(channel, queue, ack=True)
    consumer.wait(1)
    amqp.publish(channel, queue, "coming")
    consumer.wait(2)
    assert consumer.bodies() == ["waiting", "coming"]
    assert [delivery.tag for delivery in consumer.deliveries] == [1, 2]
    assert consumer.deliveries[0].method.consumer_tag == consumer.tag


@pytest.mark.timed
def test_consumer_receives_a_message_after_a_pause(broker, channel, queue):
    consumer = Collector(channel, queue, ack=True)
    amqp.publish(channel, queue, "first")
    consumer.wait(1)
    broker.pass_time(8)
    consumer.wait_quiet()
    amqp.publish(channel, queue, "after the pause")
    consumer.wait(2)
    assert consumer.bodies() == ["first", "after the pause"]


def test_messages_sent_to_a_no_ack_consumer_are_done(channel, amqp_connect, queue):
    amqp.publish(channel, queue, "a", "b")
    connection = amqp_connect()
    consumer = Collector(connection.channel(), queue, auto_ack=True)
    consumer.wait(2)
    connection.close()
    assert amqp.count(channel, queue) == 0


def test_exclusive_consumer_refuses_a_second_with_403(channel, amqp_connect, queue):
    first = Collector(channel, queue, exclusive=True)
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        Collector(amqp_connect().channel(), queue)
    assert closed.value.reply_code == 403
    first.cancel()
    Collector(amqp_connect().channel(), queue)


def test_exclusive_consumer_is_refused_beside_another_with_403(channel, amqp_connect, queue):
    Collector(channel, queue)
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        Collector(amqp_connect().channel(), queue, exclusive=True)
    assert closed.value.reply_code == 403


def test_exclusive_consumer_is_allowed_after_the_connection_of_the_first_ended(channel, amqp_connect, queue):
    connection = amqp_connect()
    Collector(connection.channel(), queue, exclusive=True)
    connection.close()
    amqp.publish(channel, queue, "x")
    assert Collector(channel, queue, exclusive=True).wait(1)[0].body == b"x"


def test_no_local_is_taken_and_own_messages_come_as_from_rabbitmq(raw_amqp, queue):
    connection = raw_amqp()
    connection.open_channel()
    connection.call(1, commands.Basic.Consume(0, queue, "me", no_local=True), commands.Basic.ConsumeOk)
    connection.publish(1, queue, b"my own")
    assert connection.read_content(commands.Basic.Deliver).body == b"my own"


def test_chosen_consumer_tag_is_kept(channel, queue):
    amqp.publish(channel, queue, "x")
    consumer = Collector(channel, queue, consumer_tag="worker/é-1")
    assert consumer.tag == "worker/é-1"
    assert consumer.wait(1)[0].method.consumer_tag == "worker/é-1"


def test_broker_generates_different_consumer_tags(raw_amqp, queue):
    connection = raw_amqp()
    connection.open_channel()
    tags = {
        connection.call(1, commands.Basic.Consume(0, queue), commands.Basic.ConsumeOk).consumer_tag
        for _ in range(3)
    }
    assert len(tags) == 3
    assert all(tags)


def test_duplicate_consumer_tag_is_530(raw_amqp, queue):
    connection = raw_amqp()
    connection.open_channel()
    connection.call(1, commands.Basic.Consume(0, queue, "twice"), commands.Basic.ConsumeOk)
    connection.send(1, commands.Basic.Consume(0, queue, "twice"))
    reason = connection.close_reason()
    assert reason is not None
    assert reason[0] == 530


def test_same_consumer_tag_on_two_channels_is_allowed(raw_amqp, queue):
    connection = raw_amqp()
    for number in (1, 2):
        connection.open_channel(number)
        connection.call(number, commands.Basic.Consume(0, queue, "same"), commands.Basic.ConsumeOk)


def test_consume_with_nowait_delivers_without_consume_ok(raw_amqp, channel, queue):
    amqp.publish(channel, queue, "x")
    connection = raw_amqp()
    connection.open_channel()
    connection.send(1, commands.Basic.Consume(0, queue, "silent", nowait=True))
    delivery = connection.read_content(commands.Basic.Deliver)
    assert (delivery.method.consumer_tag, delivery.body) == ("silent", b"x")
    connection.send(1, commands.Basic.Cancel("silent", nowait=True))
    connection.call(1, commands.Queue.Declare(0, queue, passive=True), commands.Queue.DeclareOk)


def test_cancel_stops_deliveries_and_leaves_unacked_messages_with_the_channel(channel, amqp_connect, queue):
    amqp.publish(channel, queue, "held", "also held")
    consuming = amqp_connect().channel()
    consumer = Collector(consuming, queue)
    consumer.wait(2)
    consumer.cancel()
    amqp.publish(channel, queue, "later")
    consumer.wait_quiet()
    assert consumer.bodies() == ["held", "also held"]
    assert amqp.count(channel, queue) == 1, "only the later one waits"
    consuming.basic_ack(consumer.deliveries[0].tag)
    assert consuming.is_open
    consuming.close()
    assert Collector(channel, queue).wait(2)[0].body == b"also held"


def test_cancel_of_an_unknown_tag_is_answered(raw_amqp):
    connection = raw_amqp()
    connection.open_channel()
    answer = connection.call(1, commands.Basic.Cancel("never was"), commands.Basic.CancelOk)
    assert answer.consumer_tag == "never was"


def test_consuming_again_after_cancel_continues(channel, queue):
    for number in range(5):
        consumer = Collector(channel, queue, ack=True)
        amqp.publish(channel, queue, str(number))
        assert consumer.wait(1)[0].body == b"%d" % number
        consumer.cancel()


def test_get_returns_messages_in_order_then_empty(channel, queue):
    assert channel.basic_get(queue) == (None, None, None)
    amqp.publish(channel, queue, "a", "b", "c")
    method, properties, body = channel.basic_get(queue)
    assert (body, method.message_count, method.redelivered) == (b"a", 2, False)
    assert properties.delivery_mode == 2
    channel.basic_ack(method.delivery_tag)
    assert [channel.basic_get(queue, auto_ack=True)[2] for _ in range(3)] == [b"b", b"c", None]


@pytest.mark.timed
@pytest.mark.parametrize("no_ack", [True, False])
def test_get_from_a_queue_that_was_deleted_and_made_again_gives_what_the_new_one_has(
    broker, channel, name, no_ack
):
    for body in ("first", "second"):
        channel.queue_declare(name)
        amqp.publish(channel, name, body)
        _, _, got = channel.basic_get(name, auto_ack=no_ack)
        assert got == body.encode()
        broker.pass_time(1.2)  # the lease loop looks at who holds nothing any more
        amqp.count(channel, name)
        channel.queue_delete(name)


def test_get_without_ack_claims_the_message_until_the_channel_closes(channel, amqp_connect, queue):
    amqp.publish(channel, queue, "a")
    getting = amqp_connect().channel()
    assert getting.basic_get(queue)[2] == b"a"
    assert channel.basic_get(queue) == (None, None, None)
    getting.close()
    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (body, method.redelivered) == (b"a", True)


def test_get_returns_what_a_consumer_without_credit_leaves(channel, amqp_connect, queue):
    consuming = amqp_connect().channel()
    consuming.basic_qos(prefetch_count=1)
    consumer = Collector(consuming, queue)
    amqp.publish(channel, queue, "consumed")
    consumer.wait(1)
    amqp.publish(channel, queue, "got")
    assert channel.basic_get(queue, auto_ack=True)[2] == b"got"


@pytest.mark.extension
@pytest.mark.parametrize("no_ack", [True, False])
def test_gets_that_the_end_of_their_channel_overtakes_take_no_messages(raw_amqp, channel, queue, no_ack):
    amqp.publish(channel, queue, *[str(number) for number in range(10)])
    connection = raw_amqp()
    connection.open_channel()
    gets = method_frame(1, commands.Basic.Get(0, queue, no_ack)) * 200  # more than are acted on in one turn
    connection.send_bytes(gets + method_frame(1, commands.Channel.Close(200, "", 0, 0)))
    connection.expect(commands.Channel.CloseOk)
    connection.open_channel()
    got = []
    for _ in range(10):
        connection.send(1, commands.Basic.Get(0, queue, True))
        got.append(connection.read_content(commands.Basic.GetOk).body)
    assert got == [str(number).encode() for number in range(10)]


def test_delivery_tags_count_gets_and_deliveries_together(channel, queue):
    amqp.publish(channel, queue, "a", "b")
    assert channel.basic_get(queue)[0].delivery_tag == 1
    assert Collector(channel, queue).wait(1)[0].tag == 2


def test_messages_of_a_consumer_that_disconnects_are_delivered_in_order_again(raw_amqp, channel, queue):
    amqp.publish(channel, queue, *(str(number) for number in range(50)))
    dropped = raw_amqp()
    dropped.open_channel()
    dropped.send(1, commands.Basic.Consume(0, queue, "short"))
    dropped.expect(commands.Basic.ConsumeOk)
    dropped.drop()

    def is_gone() -> bool:
        method = channel.queue_declare(queue, passive=True).method
        return (method.message_count, method.consumer_count) == (50, 0)

    until(is_gone)
    consumer = Collector(channel, queue, ack=True)
    consumer.wait(50)
    assert consumer.bodies() == [str(number) for number in range(50)]


def test_cancel_on_failover_is_taken_and_must_be_a_boolean(channel, queue):
    amqp.publish(channel, queue, "x")
    Collector(channel, queue, arguments={"x-cancel-on-ha-failover": True}).wait(1)
    with pytest.raises(amqp.ChannelClosedByBroker, match="406"):
        Collector(channel, queue, arguments={"x-cancel-on-ha-failover": 1})
