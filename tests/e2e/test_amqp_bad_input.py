"""Input that no AMQP client should send ends that one connection, with the specification's code."""

import os
import random
import struct

import pytest
from pamqp import commands

from tests.e2e import amqp
from tests.e2e.raw_amqp import (
    BODY,
    HEADER,
    HEARTBEAT,
    METHOD,
    PROTOCOL_HEADER,
    content_header,
    frame,
    method_frame,
)

PUBLISH = struct.pack(">HHH", 60, 40, 0) + b"\x00\x01q\x00"  # ticket, exchange "", routing key "q", no bits
FRAME_ERRORS = (501, 502, 503, 504, 505)


def publish_frame(channel: int = 1) -> bytes:
    return frame(METHOD, channel, PUBLISH)


@pytest.fixture
def bystander(channel, queue):
    """Another connection with a queue, which must still work after the test."""
    amqp.publish(channel, queue, "before")
    yield channel
    amqp.publish(channel, queue, "after")
    assert amqp.count(channel, queue) == 2
    assert channel.is_open


def end_of(connection) -> int | None:
    """The reply code the connection ends with; fails when it lives on."""
    reason = connection.close_reason()
    if reason is None:
        return None
    assert reason[2] == 0, f"only a channel was closed: {reason}"
    assert connection.wait_eof(), "still connected after connection.close-ok"
    return reason[0]


# what is sent on an open connection with channel 1 open, and the codes that may come
VIOLATIONS = {
    "wrong end octet": (frame(HEARTBEAT, 0, b"", end=b"\x00"), (501,)),
    "wrong end octet of a method": (method_frame(1, commands.Basic.Qos(0, 1, False))[:-1] + b"\x00", (501,)),
    "frame over frame-max": (struct.pack(">BHI", BODY, 1, 131_073), (501,)),
    "header over frame-max": (struct.pack(">BHI", HEADER, 1, 131_073), (501,)),
    "heartbeat on a channel": (frame(HEARTBEAT, 1, b""), (505,)),
    "huge frame": (struct.pack(">BHI", METHOD, 1, 0xFFFFFFFF), (501,)),
    "unknown frame type": (frame(77, 1, b"x"), (501, 505)),
    "unknown class": (frame(METHOD, 1, struct.pack(">HH", 4242, 10)), (502, 503, 540)),
    "unknown method": (frame(METHOD, 1, struct.pack(">HH", 60, 4242)), (502, 503, 540)),
    "method shorter than its numbers": (frame(METHOD, 1, b"\x00\x3c"), (501, 502)),
    "method cut short": (frame(METHOD, 1, struct.pack(">HHH", 50, 10, 0) + b"\x05ab"), (501, 502)),
    "method on channel 0": (frame(METHOD, 0, PUBLISH), (501, 502, 503, 504, 505)),
    "method on an unopened channel": (method_frame(9, commands.Basic.Qos(0, 1, False)), (504,)),
    "channel opened twice": (method_frame(1, commands.Channel.Open()), (504,)),
    "connection method on a channel": (
        method_frame(1, commands.Connection.Close(200, "", 0, 0)),
        (501, 503, 504),
    ),
    "connection opened twice": (method_frame(0, commands.Connection.Open("/")), (503, 504, 505, 530)),
    "start-ok again": (
        method_frame(0, commands.Connection.StartOk({}, "PLAIN", "\0a\0b", "en_US")),
        (503, 504, 530),
    ),
    "method of a server": (method_frame(1, commands.Channel.OpenOk()), (503, 504, 540)),
    "body with no header": (publish_frame() + frame(BODY, 1, b"x"), (505,)),
    "header with no publish": (frame(HEADER, 1, content_header(1)), (505, 503)),
    "body with no publish": (frame(BODY, 1, b"x"), (505, 503)),
    "method between publish and header": (publish_frame() + publish_frame(), (505,)),
    "method between header and body": (
        publish_frame() + frame(HEADER, 1, content_header(5)) + publish_frame(),
        (505,),
    ),
    "more body than announced": (
        publish_frame() + frame(HEADER, 1, content_header(2)) + frame(BODY, 1, b"xyz"),
        (501, 502, 505),
    ),
    "header of another class": (
        publish_frame() + frame(HEADER, 1, struct.pack(">HHQ", 50, 0, 1) + b"\0\0"),
        FRAME_ERRORS,
    ),
    "header cut short": (publish_frame() + frame(HEADER, 1, b"\x00\x3c\x00"), (501, 502)),
    "properties cut short": (
        publish_frame() + frame(HEADER, 1, content_header(1, b"\x80\x00\x30a")),
        (501, 502),
    ),
    "header table cut short": (
        publish_frame() + frame(HEADER, 1, content_header(1, b"\x20\x00\x00\x00\x00\x09\x01a")),
        (501, 502),
    ),
    "unknown field type": (
        publish_frame() + frame(HEADER, 1, content_header(1, b"\x20\x00\x00\x00\x00\x04\x01a~\x00")),
        (501, 502),
    ),
    "queue name that is not UTF-8": (
        frame(METHOD, 1, struct.pack(">HHH", 50, 10, 0) + b"\x02\xff\xfe" + b"\x00" + b"\0\0\0\0"),
        (501, 502),
    ),
    "random bytes": (random.Random(1).randbytes(5_000), (501, 502, 503, 504, 505)),
}

LENIENT_PEER = {  # RabbitMQ looks away, or just hangs up
    "unknown class",
    "unknown method",
    "more body than announced",
    "properties cut short",
    "header table cut short",
    "method on channel 0",
    "queue name that is not UTF-8",
    "unknown field type",
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.extension if name in LENIENT_PEER else ()) for name in VIOLATIONS],
)
def test_violation_ends_the_connection_with_its_code(raw_amqp, bystander, name):
    data, codes = VIOLATIONS[name]
    connection = raw_amqp()
    connection.open_channel()
    connection.send_quietly(data)
    connection.send_quietly(frame(HEARTBEAT, 0, b""))
    assert end_of(connection) in codes


def test_methods_after_a_violation_are_not_carried_out(raw_amqp, channel, queue):
    connection = raw_amqp()
    connection.open_channel()
    connection.send_quietly(frame(77, 1, b"x") + method_frame(1, commands.Queue.Purge(0, queue, True)))
    amqp.publish(channel, queue, "kept")
    end_of(connection)
    assert amqp.count(channel, queue) == 1


@pytest.mark.extension
def test_body_of_16_exabytes_is_refused_with_406(raw_amqp, bystander):
    """A channel error, before any of the body has come."""
    connection = raw_amqp()
    connection.open_channel()
    connection.send_bytes(publish_frame() + frame(HEADER, 1, content_header(2**64 - 1)))
    assert connection.close_reason()[0] in (406, 501, 502)


EARLY = {
    "garbage": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "nothing but zeros": b"\0" * 64,
    "an MQTT client": b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd",
    "a method before start-ok": PROTOCOL_HEADER + method_frame(0, commands.Connection.Open("/")),
    "a publish before anything": PROTOCOL_HEADER + publish_frame(),
    "a huge frame before start-ok": PROTOCOL_HEADER
    + struct.pack(">BHI", METHOD, 0, 100_000_000)
    + b"x" * 100_000,
    "start-ok that is no start-ok": PROTOCOL_HEADER
    + frame(METHOD, 0, struct.pack(">HH", 10, 11) + b"\xff" * 30),
}


@pytest.mark.parametrize("name", EARLY)
def test_violation_before_login_ends_the_connection(raw_amqp, bystander, name):
    connection = raw_amqp(handshake=False)
    connection.send_quietly(EARLY[name])
    assert connection.wait_eof(), "still connected"


def test_skipping_the_login_is_refused(raw_amqp, bystander):
    connection = raw_amqp(handshake=False)
    connection.send_bytes(PROTOCOL_HEADER)
    connection.expect(commands.Connection.Start)
    connection.send(0, commands.Connection.TuneOk(0, 131_072, 0))
    connection.send_quietly(method_frame(0, commands.Connection.Open("/")))
    assert connection.wait_eof()


@pytest.mark.parametrize("size", [1, 6, 7, 8, 20])
def test_client_that_disconnects_inside_a_frame_harms_no_other(raw_amqp, bystander, size):
    connection = raw_amqp()
    connection.open_channel()
    connection.send_bytes(publish_frame()[:size])
    connection.drop()


def test_client_that_disconnects_inside_a_message_publishes_nothing(raw_amqp, channel, queue):
    connection = raw_amqp()
    connection.open_channel()
    connection.send(1, commands.Basic.Publish(0, "", queue))
    connection.send_bytes(frame(HEADER, 1, content_header(100)) + frame(BODY, 1, b"half"))
    connection.drop()
    amqp.publish(channel, queue, "whole")
    assert amqp.count(channel, queue) == 1


def test_channel_error_discards_input_until_close_ok(raw_amqp, channel, queue):
    """Section 2.2.4: after channel.close only close-ok counts."""
    connection = raw_amqp()
    connection.open_channel()
    connection.send_bytes(
        method_frame(1, commands.Queue.Declare(0, "no-such-queue", passive=True))
        + method_frame(1, commands.Queue.Purge(0, queue, True))
        + method_frame(1, commands.Basic.Publish(0, "", queue))
        + frame(HEADER, 1, content_header(1))
        + frame(BODY, 1, b"x")
    )
    close = connection.expect(commands.Channel.Close)
    assert close.reply_code == 404
    assert (close.class_id, close.method_id) == (50, 10)
    connection.send(1, commands.Channel.CloseOk())
    connection.open_channel(1, confirm=True)
    connection.publish(1, queue, b"counts")
    connection.read_confirms(1)
    assert amqp.count(channel, queue) == 1


@pytest.mark.parametrize("seed", range(6))
def test_input_with_wrong_bytes_harms_no_other_connection(raw_amqp, bystander, queue, seed):
    """A good conversation with a few wrong bytes: any answer is fine, harm to others is not."""
    rng = random.Random(seed)
    for _ in range(10):
        good = bytearray(
            publish_frame()
            + frame(HEADER, 1, content_header(3, b"\x20\x00\x00\x00\x00\x04\x01at\x01"))
            + frame(BODY, 1, b"xyz")
            + method_frame(1, commands.Basic.Consume(0, "amq.nothing", "t"))
            + method_frame(1, commands.Basic.Ack(7, True))
        )
        for _ in range(rng.randint(1, 5)):
            good[rng.randrange(len(good))] = rng.randrange(256)
        connection = raw_amqp()
        connection.open_channel()
        connection.send_quietly(bytes(good))
        connection.drop()


def test_random_input_on_fifty_connections_harms_no_other(broker, bystander, raw_amqp):
    rng = random.Random(os.getpid())
    for _ in range(50):
        connection = raw_amqp(handshake=False)
        connection.send_quietly(rng.randbytes(rng.randint(1, 500)))
