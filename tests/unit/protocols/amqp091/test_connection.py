"""The connection: errors, closing, heartbeats, chunking."""

import random

import pytest
from pamqp import commands

from config import limits
from protocols import large_bodies
from protocols.amqp091 import events as ev
from tests.unit.protocols.amqp091.driver import (
    PAYLOAD_MAX,
    feed,
    flat,
    frames,
    method,
    new_connection,
    publish,
    running,
    tune_ok,
)
from tests.vectors import amqp


@pytest.mark.parametrize("name", sorted(amqp.CONNECTION_ERRORS))
def test_violation_closes_the_connection_with_its_code(name):
    data, code = amqp.CONNECTION_ERRORS[name]
    conn = running()
    events = feed(conn, data)
    assert [type(event) for event in events] == [ev.ConnectionLost]
    assert (events[0].code, events[0].by_peer) == (code, False)
    ((channel, close),) = frames(conn)
    assert (channel, close.name, close.reply_code) == (0, "Connection.Close", code)
    assert conn.closing
    assert not conn.closed
    assert not conn.channel_is_open(1)
    assert feed(conn, amqp.HELLO_TO_Q + amqp.CONNECTION_CLOSE_OK) == []
    assert conn.closed
    assert conn.output == []


@pytest.mark.parametrize("name", sorted(amqp.CONNECTION_ERRORS))
def test_violation_split_into_bytes_closes_with_the_same_code(name):
    data, code = amqp.CONNECTION_ERRORS[name]
    conn = running()
    events = []
    for at in range(len(data)):
        events += feed(conn, data[at : at + 1])
    assert [event.code for event in events] == [code]
    assert [close.reply_code for _, close in frames(conn)] == [code]


def conversation() -> bytes:
    return b"".join(
        (
            amqp.PROTOCOL_HEADER,
            amqp.START_OK,
            tune_ok(),
            amqp.OPEN,
            amqp.CHANNEL_1_OPEN,
            method(1, commands.Queue.Declare(0, "q", arguments={"x-queue-type": "stream"})),
            amqp.HELLO_TO_Q * 3,
            publish(1, "q", b"x" * 6000, headers={"a": 1}),
            amqp.HEARTBEAT,
            publish(1, "q", b""),
            amqp.ACK_7 * 3,
            amqp.ACK_7_MULTIPLE,
            amqp.REJECT_7_REQUEUE,
            amqp.CHANNEL_1_CLOSE,
            amqp.CONNECTION_CLOSE,
        )
    )


def steps(data: bytes, cuts: list[int]) -> tuple[list, bytes]:
    conn = new_connection()
    events = []
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        events += flat(feed(conn, data[start:end]))
    assert conn.closing
    return events, b"".join(conn.output)


def test_input_split_anywhere_gives_the_same_conversation():
    data = conversation()
    # auth and open are decided between two calls, so the cut after them is always there
    decisions = [len(amqp.PROTOCOL_HEADER + amqp.START_OK)]
    decisions.append(decisions[0] + len(tune_ok() + amqp.OPEN))
    whole = steps(data, decisions)
    assert whole[0][-1] == ("ConnectionLost", True, 200, "ok")
    for cut in [*range(1, 700), *range(700, len(data), 97)]:
        assert steps(data, sorted({*decisions, cut})) == whole
    assert steps(data, list(range(1, len(data)))) == whole


def test_large_message_in_small_chunks_arrives_whole():
    conn = running(frame_max=131072)
    body = random.Random(1).randbytes(3_000_000)
    data = publish(1, "q", body, piece_bytes=131064)
    events = []
    for start in range(0, len(data), 64):
        events += conn.receive(data[start : start + 64], 0.0)
    (run,) = events
    assert run.bodies == [body]


@pytest.mark.parametrize("chunk_bytes", [131_064, 131_071, 131_072, 131_073, 262_144])
def test_large_messages_cut_at_the_edges_of_frames_arrive_whole(chunk_bytes):
    conn = running(frame_max=131072)
    bodies = [random.Random(number).randbytes(size) for number, size in enumerate((700_000, 131_064 * 3))]
    data = b"".join(publish(1, "q", body, piece_bytes=131064) for body in bodies)
    events = []
    for start in range(0, len(data), chunk_bytes):
        events += conn.receive(data[start : start + chunk_bytes], 0.0)
    assert [body for run in events for body in run.bodies] == bodies


def test_memory_for_a_large_message_is_asked_for_until_it_is_taken():
    conn = running(frame_max=131072)
    body = random.Random(2).randbytes(limits.LARGE_PAGES_BYTES_MIN + 1_000_000)
    data = publish(1, "q", body, piece_bytes=131064)
    assert conn.memory_to_take() is None
    conn.receive(data[:1_000_000], 0.0)
    take = conn.memory_to_take()
    if large_bodies.body_buffer(len(body)).__class__ is large_bodies.LargeBody:
        assert take is not None
        take()
    assert conn.memory_to_take() is None
    (run,) = conn.receive(data[1_000_000:], 0.0)
    assert run.bodies == [body]
    assert conn.memory_to_take() is None


def test_wrong_end_of_a_frame_that_came_in_parts_is_refused():
    conn = running(frame_max=131072)
    data = publish(1, "q", b"x" * 200_000, piece_bytes=131064)
    conn.receive(data[:100_000], 0.0)
    broken = bytearray(data)
    broken[broken.index(b"\xce\x03", 100_000)] = 0
    assert not [event for event in conn.receive(bytes(broken[100_000:]), 0.0) if hasattr(event, "bodies")]
    assert conn.closing


def test_channel_closed_within_a_frame_of_a_large_message_discards_the_rest():
    conn = running(frame_max=131072)
    data = publish(1, "q", b"x" * 200_000, piece_bytes=131064)
    conn.receive(data[:100_000], 0.0)
    conn.fail_channel(1, 406, "no more")
    assert conn.receive(data[100_000:], 0.0) == []
    assert not conn.closing
    assert conn.unfinished_bytes == 0


def test_body_in_frames_of_one_byte_arrives_whole():
    conn = running()
    (run,) = feed(conn, publish(1, "q", b"x" * 20_000, piece_bytes=1))
    assert run.bodies == [b"x" * 20_000]


def test_close_by_the_client_is_answered_and_ends_input():
    conn = running()
    (run, lost) = feed(conn, amqp.HELLO_TO_Q + amqp.CONNECTION_CLOSE + amqp.HELLO_TO_Q)
    assert run.bodies == [b"hello"]
    assert (lost.code, lost.reason, lost.by_peer) == (200, "ok", True)
    assert conn.output == [amqp.CONNECTION_CLOSE_OK]
    assert feed(conn, amqp.HELLO_TO_Q) == []
    assert not conn.closed
    assert conn.receive_eof() == []
    assert conn.closed


def test_who_was_told_close_ok_has_a_moment_to_close_the_transport_and_may_close_once_more():
    conn = running()
    feed(conn, amqp.CONNECTION_CLOSE)
    assert feed(conn, amqp.HEARTBEAT + amqp.CONNECTION_CLOSE) == []
    assert conn.output == [amqp.CONNECTION_CLOSE_OK] * 2
    deadline = conn.next_deadline()
    assert deadline == limits.AMQP_LINGER_S
    assert conn.handle_timeout(deadline - 0.1) == []
    assert not conn.closed
    assert conn.handle_timeout(deadline) == []
    assert conn.closed


def test_close_by_the_broker_discards_input_until_close_ok():
    conn = running()
    conn.fail(320, "shutting down")
    conn.fail(320, "again")
    assert [close.reply_text for _, close in frames(conn)] == ["CONNECTION_FORCED - shutting down"]
    conn.send_method(1, commands.Basic.QosOk())
    conn.send_method(0, commands.Connection.Blocked("x"))
    conn.send_content(1, commands.Basic.GetOk(1), b"\0\0", b"late")
    conn.fail_channel(1, 404, "x")
    assert conn.output == []
    (lost,) = feed(conn, amqp.HELLO_TO_Q + amqp.CONNECTION_CLOSE_OK)
    assert (lost.code, lost.reason, lost.by_peer) == (320, "shutting down", False)
    assert conn.closed


def test_close_ok_is_found_however_it_is_split():
    data = amqp.HELLO_TO_Q + amqp.CONNECTION_CLOSE_OK
    for cut in range(len(data)):
        conn = running()
        feed(conn, amqp.HELLO_TO_Q[:20])
        conn.fail(320, "x")
        assert len(feed(conn, data[:cut]) + feed(conn, data[cut:])) == 1
        assert conn.closed


def test_closes_of_both_sides_that_cross_end_the_connection():
    conn = running()
    conn.fail(320, "x")
    conn.output.clear()
    (lost,) = feed(conn, amqp.CONNECTION_CLOSE)
    assert conn.output == [amqp.CONNECTION_CLOSE_OK]
    assert conn.closed


def test_close_not_answered_in_time_ends_the_connection():
    conn = running()
    conn.receive(b"", 100.0)
    conn.fail(320, "x")
    assert conn.next_deadline() == 100.0
    assert conn.handle_timeout(130.0) == []
    assert conn.next_deadline() == 130.0 + limits.AMQP_CLOSE_TIMEOUT_S
    assert conn.handle_timeout(131.0) == []
    (lost,) = conn.handle_timeout(130.0 + limits.AMQP_CLOSE_TIMEOUT_S)
    assert lost.code == 320
    assert conn.closed
    assert conn.next_deadline() is None
    assert conn.handle_timeout(200.0) == []


def test_error_is_reported_once():
    conn = running()
    (lost,) = feed(conn, amqp.BODY_HELLO)
    assert lost.code == 505
    assert conn.receive_eof() == []
    assert conn.closed


def test_end_of_transport_is_a_connection_lost_by_the_peer():
    conn = running()
    (lost,) = conn.receive_eof()
    assert (lost.code, lost.by_peer) == (0, True)
    assert conn.closed
    assert conn.output == []


def test_heartbeats_are_sent_every_half_interval():
    conn = running(heartbeat_s=60)
    assert conn.next_deadline() == 30.0
    assert conn.handle_timeout(29.0) == []
    assert conn.output == []
    conn.handle_timeout(30.0)
    assert conn.output == [amqp.HEARTBEAT]
    assert conn.next_deadline() == 60.0


def test_client_silent_for_two_heartbeat_intervals_is_dropped():
    conn = running(heartbeat_s=60)
    feed(conn, amqp.HEARTBEAT, 50.0)
    for now in (80.0, 110.0, 140.0, 169.0):
        assert conn.handle_timeout(now) == []
    (lost,) = conn.handle_timeout(170.0)
    assert lost.code == 0
    assert conn.closed


def test_heartbeat_0_of_the_client_switches_heartbeats_off():
    conn = new_connection()
    feed(conn, amqp.PROTOCOL_HEADER + amqp.START_OK)
    feed(conn, tune_ok(heartbeat=0) + amqp.OPEN)
    assert conn.next_deadline() is None
    assert conn.handle_timeout(1e9) == []


@pytest.mark.parametrize("size", [0, 1, PAYLOAD_MAX, PAYLOAD_MAX + 1, 3 * PAYLOAD_MAX])
def test_sent_content_is_split_by_frame_max(size):
    conn = running()
    body = bytes(at % 251 for at in range(size))
    conn.send_content(1, commands.Basic.GetOk(5, False, "", "q", 3), b"\x10\x00\x02", body)
    (_, get_ok), (_, header), *bodies = frames(conn)
    assert (get_ok.name, get_ok.message_count) == ("Basic.GetOk", 3)
    assert (header.body_size, header.properties.delivery_mode) == (size, 2)
    assert b"".join(value.value for _, value in bodies) == body
    assert all(len(value.value) <= PAYLOAD_MAX for _, value in bodies)


def test_frame_above_the_negotiated_size_is_refused():
    conn = new_connection(frame_max=131072)
    feed(conn, amqp.PROTOCOL_HEADER + amqp.START_OK)
    feed(conn, tune_ok(frame_max=4096) + amqp.OPEN)
    feed(conn, amqp.CHANNEL_1_OPEN)
    assert len(feed(conn, publish(1, "q", b"x" * PAYLOAD_MAX))) == 1
    (lost,) = feed(conn, publish(1, "q", b"x" * 5000, piece_bytes=5000))
    assert lost.code == 501
