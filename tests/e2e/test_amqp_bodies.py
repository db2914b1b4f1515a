"""Bodies over AMQP: none, one frame, the edges of a frame, many frames, many messages."""

import hashlib
import struct

import pytest
from pamqp import commands

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.raw_amqp import BODY, HEADER, METHOD, content_header, frame

FRAME_MAX = 4096


def test_empty_body_arrives_with_its_properties(channel, queue):
    amqp.publish(channel, queue, b"", type="nothing inside")
    _, properties, body = channel.basic_get(queue, auto_ack=True)
    assert (body, properties.type) == (b"", "nothing inside")


def test_empty_bodies_between_others_arrive_in_order(channel, queue):
    consumer = Collector(channel, queue, ack=True)
    amqp.publish(channel, queue, b"a", b"", b"", b"b", b"")
    consumer.wait(5)
    assert consumer.bodies() == ["a", "", "", "b", ""]


@pytest.mark.parametrize(
    "size", [1, FRAME_MAX - 9, FRAME_MAX - 8, FRAME_MAX - 7, 2 * (FRAME_MAX - 8), 100_000]
)
def test_bodies_around_the_frame_size_arrive_unchanged(amqp_connect, queue, size):
    channel = amqp_connect(frame_max=FRAME_MAX).channel()
    channel.confirm_delivery()
    body = bytes(number % 251 for number in range(size))
    amqp.publish(channel, queue, body, body)
    assert channel.basic_get(queue, auto_ack=True)[2] == body
    consumer = Collector(channel, queue, ack=True)
    assert consumer.wait(1)[0].body == body


def test_frames_of_the_broker_keep_to_the_negotiated_size(raw_amqp, channel, queue):
    amqp.publish(channel, queue, b"x" * 10_000)
    connection = raw_amqp(frame_max=FRAME_MAX)
    connection.open_channel()
    connection.send(1, commands.Basic.Get(0, queue, True))
    connection.expect(commands.Basic.GetOk)
    sizes = [len(connection.read().payload) for _ in range(4)]
    assert sizes[1:] == [FRAME_MAX - 8, FRAME_MAX - 8, 10_000 - 2 * (FRAME_MAX - 8)]


@pytest.mark.parametrize("size", [FRAME_MAX - 8, FRAME_MAX - 7, FRAME_MAX])
def test_a_frame_whose_payload_alone_keeps_to_the_negotiated_size_is_taken(raw_amqp, channel, queue, size):
    connection = raw_amqp(frame_max=FRAME_MAX)
    connection.open_channel(confirm=True)
    connection.publish(1, queue, b"x" * size, body_frame_max=size)
    header = b"\x20\x00" + struct.pack(">I", size - 18) + b"\x01kS" + struct.pack(">I", size - 25)
    connection.publish(1, queue, b"y", header + b"z" * (size - 25))
    connection.read_confirms(2)
    assert [len(channel.basic_get(queue, auto_ack=True)[2]) for _ in range(2)] == [size, 1]


@pytest.mark.parametrize("kind", [HEADER, BODY, METHOD])
def test_a_frame_with_a_larger_payload_is_501(raw_amqp, queue, kind):
    connection = raw_amqp(frame_max=FRAME_MAX)
    connection.open_channel()
    connection.send(1, commands.Basic.Publish(0, "", queue))
    connection.send_quietly(frame(kind, 1, b"x" * (FRAME_MAX + 1)))
    assert connection.close_reason()[0] == 501


def test_body_in_many_small_frames_arrives_whole(raw_amqp, channel, queue):
    body = bytes(number % 251 for number in range(3_000))
    connection = raw_amqp()
    connection.open_channel(confirm=True)
    connection.publish(1, queue, body, body_frame_max=7)
    connection.read_confirms(1)
    assert channel.basic_get(queue, auto_ack=True)[2] == body


def test_frames_sent_byte_by_byte_arrive_whole(raw_amqp, channel, queue):
    connection = raw_amqp()
    connection.open_channel(confirm=True)
    sent: list[bytes] = []
    send_bytes, connection.send_bytes = connection.send_bytes, sent.append
    connection.publish(1, queue, b"slowly")
    for octet in b"".join(sent):
        send_bytes(bytes([octet]))
    connection.read_confirms(1)
    assert channel.basic_get(queue, auto_ack=True)[2] == b"slowly"


def test_body_of_five_megabytes_arrives_unchanged(channel, amqp_connect, queue):
    body = hashlib.sha256(b"seed").digest() * (5 * 1024 * 1024 // 32)
    amqp.publish(channel, queue, body)
    consumer = Collector(amqp_connect().channel(), queue, ack=True)
    assert hashlib.sha256(consumer.wait(1, 15)[0].body).digest() == hashlib.sha256(body).digest()


def test_large_and_small_bodies_keep_their_order(channel, queue):
    sizes = [10, 300_000, 0, 5, 200_000, 131_064, 131_065, 1]
    for size in sizes:
        amqp.publish(channel, queue, b"x" * size)
    consumer = Collector(channel, queue, ack=True)
    assert [len(delivery.body) for delivery in consumer.wait(len(sizes))] == sizes


def test_interleaved_publishes_on_two_channels_arrive_whole(raw_amqp, channel, queue):
    """Frames of one content never mix with those of another channel's."""
    connection = raw_amqp()
    parts: dict[int, list[bytes]] = {}
    send_bytes = connection.send_bytes
    for number in (1, 2):
        connection.open_channel(number, confirm=True)
    for number in (1, 2):
        frames: list[bytes] = []
        for kind, payload in (
            (1, commands.Basic.Publish(0, "", queue).marshal()),
            (2, b"\x00\x3c\x00\x00" + (6).to_bytes(8, "big") + b"\x00\x00"),
            (3, b"%d%d%d" % (number, number, number)),
            (3, b"%d%d%d" % (number, number, number)),
        ):
            if kind == 1:
                payload = b"\x00\x3c\x00\x28" + payload
            frames.append(
                bytes([kind])
                + number.to_bytes(2, "big")
                + len(payload).to_bytes(4, "big")
                + payload
                + b"\xce"
            )
        parts[number] = frames
    for first, second in zip(parts[1], parts[2], strict=True):
        send_bytes(first + second)
    for _ in range(2):
        connection.expect(commands.Basic.Ack)
    received = sorted(channel.basic_get(queue, auto_ack=True)[2] for _ in range(2))
    assert received == [b"111111", b"222222"]


def test_two_thousand_messages_arrive_in_order(raw_amqp, amqp_connect, queue):
    connection = raw_amqp()
    connection.open_channel(confirm=True)
    for number in range(2_000):
        connection.publish(1, queue, b"%d" % number)
    consumer = Collector(amqp_connect().channel(), queue, ack=True)
    consumer.wait(2_000, 15)
    assert consumer.bodies() == [str(number) for number in range(2_000)]
    assert connection.read_confirms(2_000)[-1] <= 2_000


MIB = 1 << 20
BODY_MAX = 128 * MIB


@pytest.mark.parametrize("size", [16 * MIB, pytest.param(BODY_MAX, marks=pytest.mark.long)])
@pytest.mark.timeout(120, method="signal")
def test_large_body_arrives_at_a_waiting_consumer_and_after_it(amqp_connect, channel, queue, size):
    body = hashlib.shake_256(b"large").digest(1 * MIB) * (size // MIB)
    consumer = Collector(amqp_connect().channel(), queue)
    amqp.publish(channel, queue, body)
    (delivery,) = consumer.wait(1, timeout_s=60)
    assert delivery.body == body
    consumer.channel.basic_nack(delivery.tag)
    consumer.channel.connection.close()
    assert channel.basic_get(queue, auto_ack=True)[2] == body


def test_body_of_a_byte_too_much_closes_its_channel_and_no_other(raw_amqp, queue):
    connection = raw_amqp()
    connection.open_channel(1)
    connection.open_channel(2)
    connection.send(1, commands.Basic.Publish(0, "", queue))
    connection.send_bytes(frame(HEADER, 1, content_header(BODY_MAX + 1)))
    connection.send_bytes(frame(BODY, 1, b"its beginning, which is on its way"))
    code, text, channel = connection.close_reason()
    assert (code, channel) == (406, 1)
    assert (
        text
        == f"PRECONDITION_FAILED - message size {BODY_MAX + 1} is larger than configured max size {BODY_MAX}"
    )
    connection.call(2, commands.Queue.Declare(0, queue, passive=True), commands.Queue.DeclareOk)


def test_client_that_reads_slowly_gets_the_whole_of_a_large_body_and_what_follows(raw_amqp, channel, queue):
    body = bytes(number % 251 for number in range(9 * MIB))
    amqp.publish(channel, queue, body, "small")
    connection = raw_amqp()
    connection.open_channel()
    connection.send(1, commands.Basic.Get(0, queue, True))
    connection.send(1, commands.Basic.Get(0, queue, True))
    assert connection.read_content(commands.Basic.GetOk, timeout_s=20).body == body
    assert connection.read_content(commands.Basic.GetOk).body == b"small"
    connection.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
