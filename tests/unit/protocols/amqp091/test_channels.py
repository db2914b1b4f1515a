"""What happens on channels: opening, closing, methods, settling, content."""

import pytest
from pamqp import commands

from protocols.amqp091 import events as ev
from protocols.amqp091 import methods
from tests.unit.protocols.amqp091.driver import PAYLOAD_MAX, feed, flat, frames, method, publish, running
from tests.vectors import amqp


def test_channel_opens_closes_and_opens_again():
    conn = running(channels=0)
    (opened,) = feed(conn, amqp.CHANNEL_1_OPEN)
    assert opened.channel == 1
    assert frames(conn)[0][1].name == "Channel.OpenOk"
    assert conn.channel_is_open(1)
    (closed,) = feed(conn, amqp.CHANNEL_1_CLOSE)
    assert isinstance(closed, ev.ChannelClosed)
    assert conn.output == [amqp.CHANNEL_1_CLOSE_OK]
    assert not conn.channel_is_open(1)
    (again,) = feed(conn, amqp.CHANNEL_1_OPEN)
    assert isinstance(again, ev.ChannelOpened)


def test_failed_channel_discards_input_until_close_ok():
    conn = running()
    conn.fail_channel(1, 404, "no exchange 'x'", 60, 40)
    ((channel, close),) = frames(conn)
    assert (channel, close.reply_code, close.reply_text) == (1, 404, "NOT_FOUND - no exchange 'x'")
    assert (close.class_id, close.method_id) == (60, 40)
    assert not conn.channel_is_open(1)
    garbage = method(1, commands.Queue.Declare(0, "q")) + amqp.HELLO_TO_Q + amqp.BODY_HELLO + amqp.ACK_7
    assert feed(conn, garbage) == []
    conn.send_method(1, commands.Basic.QosOk())
    conn.send_content(1, commands.Basic.GetOk(1), b"\0\0", b"late")
    conn.fail_channel(1, 404, "again")
    assert conn.output == []
    (closed,) = feed(conn, amqp.CHANNEL_1_CLOSE_OK)
    assert isinstance(closed, ev.ChannelClosed)


def test_closes_of_both_sides_that_cross_end_the_channel():
    conn = running()
    conn.fail_channel(1, 406, "x")
    conn.output.clear()
    assert feed(conn, amqp.CHANNEL_1_CLOSE) == []
    assert conn.output == [amqp.CHANNEL_1_CLOSE_OK]
    (closed,) = feed(conn, amqp.CHANNEL_1_CLOSE_OK)
    assert isinstance(closed, ev.ChannelClosed)


def test_channel_that_failed_inside_content_opens_again():
    conn = running()
    feed(conn, amqp.PUBLISH_Q + amqp.HEADER_5)
    conn.fail_channel(1, 404, "gone")
    assert feed(conn, amqp.BODY_HELLO) == []
    assert len(feed(conn, amqp.CHANNEL_1_CLOSE_OK + amqp.CHANNEL_1_OPEN + amqp.HELLO_TO_Q)) == 3


PASSED = [
    commands.Channel.Flow(True),
    commands.Exchange.Declare(0, "e", "topic", durable=True, arguments={"alternate-exchange": "x"}),
    commands.Exchange.Delete(0, "e"),
    commands.Exchange.Bind(0, "a", "b", "k"),
    commands.Exchange.Unbind(0, "a", "b", "k"),
    commands.Queue.Declare(0, "q", durable=True, arguments={"x-queue-type": "quorum"}),
    commands.Queue.Bind(0, "q", "e", "k", arguments={"x": 1}),
    commands.Queue.Purge(0, "q"),
    commands.Queue.Delete(0, "q", if_empty=True),
    commands.Queue.Unbind(0, "q", "e", "k"),
    commands.Basic.Qos(0, 100, True),
    commands.Basic.Consume(0, "q", "tag", no_ack=True, arguments={"x-consumer-group": "g"}),
    commands.Basic.Cancel("tag"),
    commands.Basic.Get(0, "q", no_ack=True),
    commands.Basic.Recover(True),
    commands.Tx.Select(),
    commands.Tx.Commit(),
    commands.Tx.Rollback(),
    commands.Confirm.Select(),
]


@pytest.mark.parametrize("command", PASSED, ids=lambda command: command.name)
def test_method_arrives_with_its_arguments(command):
    (event,) = feed(running(), method(1, command))
    assert isinstance(event, ev.MethodReceived)
    assert (event.channel, type(event.method)) == (1, type(command))
    assert dict(event.method) == dict(command)


def test_queue_address_with_a_dollar_passes_both_ways():
    declare = commands.Queue.Declare(0, "")
    declare.queue = "$queue/orders/#"
    conn = running()
    (event,) = feed(conn, methods.encode_method(1, declare))
    assert event.method.queue == "$queue/orders/#"
    conn.send_method(1, methods.QueueDeclareOk("$queue/orders/#", 0, 0))
    assert b"$queue/orders/#" in b"".join(conn.output)


def test_cancel_ok_of_the_client_is_ignored():
    assert feed(running(), method(1, commands.Basic.CancelOk("tag"))) == []


def test_consecutive_single_acks_make_one_run():
    acks = b"".join(method(1, commands.Basic.Ack(tag)) for tag in range(1, 21))
    (run,) = feed(running(), acks)
    assert (run.kind, run.delivery_tags, run.multiple, run.requeue) == (
        ev.ACK,
        list(range(1, 21)),
        False,
        False,
    )


def test_settlements_of_different_kinds_make_runs_in_order():
    data = (
        amqp.ACK_7 * 2
        + amqp.ACK_7_MULTIPLE
        + amqp.NACK_7 * 2
        + amqp.NACK_7_MULTIPLE_REQUEUE
        + amqp.REJECT_7_REQUEUE * 2
        + amqp.ACK_7
    )
    found = [(run.kind, run.delivery_tags, run.multiple, run.requeue) for run in feed(running(), data)]
    assert found == [
        (ev.ACK, [7, 7], False, False),
        (ev.ACK, [7], True, False),
        (ev.NACK, [7, 7], False, False),
        (ev.NACK, [7], True, True),
        (ev.REJECT, [7, 7], False, True),
        (ev.ACK, [7], False, False),
    ]


def test_delivery_tag_of_64_bits_is_read():
    (run,) = feed(running(), amqp.ACK_7[:11] + b"\xff" * 8 + b"\x00\xce")
    assert run.delivery_tags == [2**64 - 1]


def test_alternating_acks_of_two_channels_make_separate_runs():
    acks = b"".join(method(1 + tag % 2, commands.Basic.Ack(tag)) for tag in range(6))
    assert len(feed(running(channels=2), acks)) == 6


def test_body_in_many_frames_and_chunks_arrives_whole():
    body = bytes(range(256)) * 200
    data = publish(1, "q", body, piece_bytes=777)
    conn = running()
    events = []
    for start in range(0, len(data), 1000):
        events += feed(conn, data[start : start + 1000])
    (run,) = events
    assert run.bodies == [body]


def test_interleaved_content_of_two_channels_arrives_on_each():
    one, two = publish(1, "q", b"x" * 10, piece_bytes=4), publish(2, "q", b"y" * 10, piece_bytes=4)

    def split(data: bytes) -> list[bytes]:
        parts = []
        while data:
            size = 8 + int.from_bytes(data[3:7], "big")
            parts.append(data[:size])
            data = data[size:]
        return parts

    mixed = b"".join(a + b for a, b in zip(split(one), split(two), strict=True))
    assert [event[1] for event in flat(feed(running(channels=2), mixed))] == [1, 2]


def test_message_above_the_limit_closes_the_channel_with_406_unbuffered():
    conn = running(message_bytes_max=1000)
    events = feed(conn, publish(1, "q", b"x" * 1001) + publish(1, "q", b"y"))
    (failed,) = events
    assert (type(failed), failed.channel, failed.code) == (ev.ChannelFailed, 1, 406)
    ((_, close),) = frames(conn)
    assert (close.name, close.reply_code, close.class_id, close.method_id) == ("Channel.Close", 406, 60, 40)
    assert feed(conn, publish(1, "q", b"z" * 5000)) == []
    assert conn._channels._channels[1].body is None
    feed(conn, amqp.CHANNEL_1_CLOSE_OK + amqp.CHANNEL_1_OPEN)
    (run,) = feed(conn, publish(1, "q", b"x" * 1000))
    assert len(run.bodies[0]) == 1000


def test_bodies_announced_beyond_the_limit_close_the_channel_with_506(monkeypatch):
    monkeypatch.setattr("config.limits.AMQP_ASSEMBLY_BYTES_MAX", 20_000)
    conn = running(channels=3)
    events = []
    for number in (1, 2, 3):
        last_frame_bytes = 9_000 - 2 * PAYLOAD_MAX + 8
        events += feed(conn, publish(number, "q", b"x" * 9_000)[:-last_frame_bytes])
    (failed,) = events
    assert (failed.channel, failed.code) == (3, 506)
    assert conn.channel_is_open(1)
