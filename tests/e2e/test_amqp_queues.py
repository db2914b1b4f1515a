"""AMQP queues: declare, look, purge, delete; who may use them and how long they live."""

import struct

import pytest
from pamqp import commands

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.raw_amqp import METHOD, frame
from tests.waiting import until


def code_of(call, *arguments, **options) -> int:
    """The reply code with which the broker closes the channel."""
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        call(*arguments, **options)
    return closed.value.reply_code


def test_declare_answers_with_message_and_consumer_counts(channel, queue, amqp_connect):
    amqp.publish(channel, queue, "a", "b", "c")
    other = amqp_connect().channel()
    consumer = Collector(other, queue)
    consumer.wait(3)
    amqp.publish(channel, queue, "d")
    consumer.wait(4)
    consumer.cancel()
    other.basic_nack(consumer.deliveries[3].tag, requeue=True)
    other.queue_declare(queue, passive=True)
    declared = channel.queue_declare(queue, durable=True).method
    assert (declared.queue, declared.message_count, declared.consumer_count) == (queue, 1, 0)


def test_consumer_count_follows_consumers(channel, queue, amqp_connect):
    other = amqp_connect().channel()
    consumers = [Collector(other, queue) for _ in range(3)]
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 3
    consumers[0].cancel()
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 2


def test_declaring_again_with_equal_arguments_keeps_the_messages(channel, queue):
    amqp.publish(channel, queue, "kept")
    assert channel.queue_declare(queue, durable=True).method.message_count == 1


def declared(raw_amqp, name, number):
    """What answers a declaration with `x-max-length`, written so."""
    connection = raw_amqp()
    connection.open_channel()
    table = b"\x0cx-max-length" + number
    named = bytes([len(name)]) + name.encode()
    arguments = struct.pack(">I", len(table)) + table
    connection.send_bytes(frame(METHOD, 1, struct.pack(">HHH", 50, 10, 0) + named + b"\x02" + arguments))
    return type(connection.read().method)


@pytest.mark.parametrize(
    ("number", "value"),
    [
        (b"b\x7f", 127),
        (b"B\xc8", 200),
        (b"s\x7f\xff", 32_767),
        (b"u\xea\x60", 60_000),
        (b"I\x00\x01\x00\x00", 65_536),
        (b"i\xee\x6b\x28\x00", 4_000_000_000),
        (b"l\x00\x00\x00\x00\x00\x00\x00\x05", 5),
    ],
)
def test_equal_numbers_of_other_sizes_are_equal_arguments(raw_amqp, channel, name, number, value):
    assert declared(raw_amqp, name, number) is commands.Queue.DeclareOk
    channel.queue_declare(name, durable=True, arguments={"x-max-length": value})
    assert declared(raw_amqp, name, b"l" + struct.pack(">q", value + 1)) is commands.Channel.Close
    channel.queue_delete(name)


def test_equal_lists_are_equal_arguments(channel, name):
    arguments = {"x-filter-field-names": ["one", "another"], "x-message-ttl": 60_000}
    for _ in range(2):
        channel.queue_declare(name, durable=True, arguments=arguments)
    assert (
        code_of(channel.queue_declare, name, durable=True, arguments={**arguments, "x-message-ttl": 1}) == 406
    )


def test_passive_declare_of_a_missing_queue_is_404(channel, name):
    assert code_of(channel.queue_declare, name, passive=True) == 404


def test_refused_passive_declare_creates_nothing(channel, amqp_connect, name):
    assert code_of(channel.queue_declare, name, passive=True) == 404
    assert code_of(amqp_connect().channel().queue_declare, name, passive=True) == 404


@pytest.mark.parametrize(
    "changed",
    [{"durable": False}, {"durable": True, "auto_delete": True}, {"durable": True, "exclusive": True}],
)
def test_declare_with_other_properties_is_406_or_405(channel, queue, amqp_connect, changed):
    code = code_of(amqp_connect().channel().queue_declare, queue, **changed)
    assert code == 405 if "exclusive" in changed and code == 405 else code == 406
    assert channel.queue_declare(queue, durable=True).method.queue == queue


def test_declare_with_another_type_is_406(amqp_connect, channel, name):
    channel.queue_declare(name, durable=False)
    assert code_of(amqp_connect().channel().queue_declare, name, durable=True) == 406


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_classic_and_quorum_queues_keep_messages(channel, name, kind):
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
    amqp.publish(channel, name, "x")
    assert channel.basic_get(name, auto_ack=True)[2] == b"x"
    channel.queue_delete(name)


def test_unknown_queue_type_is_refused(channel, name):
    assert code_of(channel.queue_declare, name, durable=True, arguments={"x-queue-type": "heap"}) in (
        406,
        540,
    )


def test_reserved_queue_name_is_403(channel):
    assert code_of(channel.queue_declare, "amq.mine", durable=True) == 403


def test_queue_name_of_255_bytes_is_accepted(channel):
    longest = "é" * 127 + "x"
    assert channel.queue_declare(longest, exclusive=True).method.queue == longest
    amqp.publish(channel, longest, "long")
    assert channel.basic_get(longest, auto_ack=True)[2] == b"long"


def test_server_named_queues_differ(channel):
    first = channel.queue_declare("", exclusive=True).method.queue
    second = channel.queue_declare("", exclusive=True).method.queue
    assert first
    assert second
    assert first != second


def test_empty_name_is_the_queue_declared_last(channel):
    name = channel.queue_declare("", exclusive=True).method.queue
    amqp.publish(channel, name, "mine")
    assert channel.basic_get("", auto_ack=True)[2] == b"mine"
    assert channel.queue_purge("").method.message_count == 0
    assert channel.queue_delete("").method.message_count == 0
    assert code_of(channel.queue_declare, name, passive=True) == 404


def test_purge_counts_messages_and_leaves_unacked_ones(channel, queue):
    amqp.publish(channel, queue, *"abcde")
    tag = channel.basic_get(queue)[0].delivery_tag
    assert channel.queue_purge(queue).method.message_count == 4
    assert amqp.count(channel, queue) == 0
    channel.basic_nack(tag, requeue=True)
    assert channel.basic_get(queue, auto_ack=True)[2] == b"a"


def test_purge_of_a_missing_queue_is_404(channel, name):
    assert code_of(channel.queue_purge, name) == 404


def test_message_published_after_a_purge_is_kept(channel, queue):
    amqp.publish(channel, queue, "old")
    channel.queue_purge(queue)
    amqp.publish(channel, queue, "new")
    assert channel.basic_get(queue, auto_ack=True)[2] == b"new"


def test_delete_counts_messages_and_removes_the_queue(channel, queue):
    amqp.publish(channel, queue, "a", "b")
    assert channel.queue_delete(queue).method.message_count == 2
    assert code_of(channel.queue_declare, queue, passive=True) == 404


def test_queue_declared_again_after_delete_is_empty(channel, queue):
    amqp.publish(channel, queue, "a", "b")
    channel.queue_delete(queue)
    assert channel.queue_declare(queue, durable=True).method.message_count == 0
    assert channel.basic_get(queue) == (None, None, None)


def test_conditional_delete_of_a_queue_in_use_or_not_empty_is_406(channel, queue, amqp_connect):
    amqp.publish(channel, queue, "a")
    assert code_of(amqp_connect().channel().queue_delete, queue, if_empty=True) == 406
    user = amqp_connect().channel()
    Collector(user, queue)
    assert code_of(amqp_connect().channel().queue_delete, queue, if_unused=True) == 406
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 1


def test_delete_cancels_consumers(channel, queue, amqp_connect):
    cancelled = []
    other = amqp_connect()
    consuming = other.channel()
    consuming.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    consumer = Collector(consuming, queue)
    channel.queue_delete(queue)
    until(lambda: other.process_data_events(0) or cancelled)
    assert cancelled == [consumer.tag]


def test_exclusive_queue_is_405_for_other_connections(channel, amqp_connect, name):
    channel.queue_declare(name, exclusive=True)
    other = amqp_connect()
    assert code_of(other.channel().queue_declare, name, exclusive=True) == 405
    assert code_of(other.channel().queue_declare, name, passive=True) == 405
    assert code_of(other.channel().queue_delete, name) == 405
    assert code_of(other.channel().queue_purge, name) == 405
    assert code_of(other.channel().basic_get, name) == 405
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        Collector(other.channel(), name)
    assert closed.value.reply_code == 405


def test_exclusive_queue_serves_all_channels_of_its_connection(amqp_connect, name):
    connection = amqp_connect()
    connection.channel().queue_declare(name, exclusive=True)
    amqp.publish(connection.channel(), name, "x")
    consumer = Collector(connection.channel(), name)
    assert consumer.wait(1)[0].body == b"x"


def test_exclusive_queue_is_deleted_with_its_connection(amqp_connect, channel, name):
    connection = amqp_connect()
    connection.channel().queue_declare(name, exclusive=True)
    connection.close()
    assert code_of(channel.queue_declare, name, passive=True) == 404


def test_auto_delete_queue_is_deleted_with_its_last_consumer(amqp_connect, channel, name):
    channel.queue_declare(name, auto_delete=True)
    assert channel.queue_declare(name, passive=True).method.consumer_count == 0, (
        "kept before its first consumer"
    )
    consuming = amqp_connect().channel()
    first, second = Collector(consuming, name), Collector(consuming, name)
    first.cancel()
    channel.queue_declare(name, passive=True)
    second.cancel()
    assert code_of(channel.queue_declare, name, passive=True) == 404


def test_auto_delete_queue_is_deleted_with_the_connection_of_its_consumer(amqp_connect, channel, name):
    channel.queue_declare(name, auto_delete=True)
    connection = amqp_connect()
    Collector(connection.channel(), name)
    connection.close()
    connection = amqp_connect()
    until(lambda: amqp.is_missing(connection, name))


def test_transient_queue_outlives_its_connection(amqp_connect, channel, name):
    connection = amqp_connect()
    declaring = connection.channel()
    declaring.queue_declare(name)
    amqp.publish(declaring, name, "kept", delivery_mode=1)
    connection.close()
    assert channel.queue_declare(name, passive=True).method.message_count == 1
    channel.queue_delete(name)


def test_declare_and_delete_with_nowait_take_effect(raw_amqp, channel, name):
    connection = raw_amqp()
    connection.open_channel()
    connection.send(1, commands.Queue.Declare(0, name, durable=True, nowait=True))
    connection.call(1, commands.Queue.Declare(0, name, passive=True), commands.Queue.DeclareOk)
    connection.send(1, commands.Queue.Delete(0, name, nowait=True))
    connection.send(1, commands.Queue.Declare(0, name, passive=True))
    assert connection.close_reason()[0] == 404
