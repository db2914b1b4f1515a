"""Frames for a client: out of pieces of any size, and publishes as the specification writes them."""

import pytest
from pamqp import commands

from protocols.amqp091.client import PERSISTENT, Frame, FrameReader, encode_publish, start_ok
from protocols.amqp091.methods import decode_method, encode_method
from protocols.errors import ProtocolError
from tests.vectors import amqp as vectors


@pytest.mark.parametrize("size", [1, 3, 7, 1_000])
def test_frames_come_out_of_pieces_of_any_size(size: int) -> None:
    data = vectors.DELIVER_HELLO + vectors.HEARTBEAT
    reader, frames = FrameReader(), []
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
        while (frame := reader.next()) is not None:
            frames.append(frame)
    assert [frame.kind for frame in frames] == [1, 2, 3, 8]
    assert (frames[0].channel, frames[0].method.delivery_tag, frames[2].payload) == (1, 1, b"hello")
    assert reader.take_rest() == b""


def test_what_is_behind_the_last_answer_can_be_taken() -> None:
    reader = FrameReader()
    reader.feed(vectors.CHANNEL_1_CLOSE_OK + vectors.DELIVER_HELLO[:9])
    assert isinstance(reader.next().method, commands.Channel.CloseOk)
    assert reader.next() is None
    assert reader.take_rest() == vectors.DELIVER_HELLO[:9]


def test_4_2_2_a_broker_of_another_version_answers_with_its_header() -> None:
    reader = FrameReader()
    reader.feed(vectors.PROTOCOL_HEADER)
    assert reader.next() == Frame(0, 0, vectors.PROTOCOL_HEADER, None)


def test_2_3_5_a_frame_without_its_end_octet_is_refused() -> None:
    reader = FrameReader()
    reader.feed(vectors.HEARTBEAT[:-1] + b"\xcd")
    with pytest.raises(ProtocolError, match="does not end"):
        reader.next()


def test_a_publish_is_what_the_specification_writes() -> None:
    assert encode_publish("q", b"hello", PERSISTENT) == vectors.HELLO_TO_Q
    assert encode_publish("q", b"", mandatory=True) == vectors.PUBLISH_Q_MANDATORY + vectors.HEADER_0


def test_a_long_body_is_cut_into_frames() -> None:
    reader = FrameReader()
    reader.feed(encode_publish("q", b"abcdefgh", exchange="x", channel=7, body_frame_bytes_max=3))
    frames = [reader.next() for _ in range(5)]
    assert frames[0].method.exchange == "x"
    assert [frame.payload for frame in frames[2:]] == [b"abc", b"def", b"gh"]
    assert {frame.channel for frame in frames} == {7}


def test_start_ok_logs_in() -> None:
    answer = decode_method(encode_method(0, start_ok("u", "p", product="test"))[7:-1])
    assert (answer.mechanism, answer.response, answer.locale) == ("PLAIN", b"\0u\0p", "en_US")  # type: ignore[attr-defined]
    assert answer.client_properties["capabilities"]["consumer_cancel_notify"] is True  # type: ignore[attr-defined]
