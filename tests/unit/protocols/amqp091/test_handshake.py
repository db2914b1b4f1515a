"""From protocol header to connection.open-ok (2.2.4)."""

import pytest
from pamqp import commands

from config import limits
from protocols.amqp091 import events as ev
from protocols.amqp091.handshake import credentials
from protocols.errors import LocalProtocolError, ProtocolError
from tests.unit.protocols.amqp091.driver import feed, frames, method, new_connection, running, tune_ok
from tests.vectors import amqp


def test_handshake_reaches_open_ok():
    conn = new_connection()
    assert conn.receive(amqp.PROTOCOL_HEADER, 0.0) == []
    ((channel, start),) = frames(conn)
    assert (channel, start.name, start.mechanisms, start.version_minor) == (
        0,
        "Connection.Start",
        "PLAIN AMQPLAIN",
        9,
    )
    assert start.server_properties["capabilities"]["publisher_confirms"] is True

    (auth,) = conn.receive(amqp.START_OK, 0.0)
    assert (auth.mechanism, auth.username, auth.password) == ("PLAIN", "guest", "guest")
    assert conn.output == []
    conn.accept_auth()
    ((_, tune),) = frames(conn)
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (8, 4096, 60)

    (opened,) = conn.receive(tune_ok() + amqp.OPEN, 0.0)
    assert isinstance(opened, ev.OpenRequested)
    assert opened.vhost == "/"
    conn.accept_open()
    ((_, open_ok),) = frames(conn)
    assert open_ok.name == "Connection.OpenOk"
    assert not conn.closing


@pytest.mark.parametrize(
    "data", [b"AMQP\x00\x00\x09\x00", b"AMQP\x03\x01\x00\x00", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"X"]
)
def test_wrong_protocol_header_is_answered_with_the_supported_one_4_2_2(data):
    conn = new_connection()
    (lost,) = conn.receive(data, 0.0)
    assert isinstance(lost, ev.ConnectionLost)
    assert conn.output == [amqp.PROTOCOL_HEADER]
    assert conn.closed


def at_tune():
    conn = new_connection()
    feed(conn, amqp.PROTOCOL_HEADER)
    feed(conn, amqp.START_OK)
    conn.output.clear()
    return conn


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (tune_ok(channel_max=9), 530),
        (tune_ok(frame_max=4097), 530),
        (tune_ok(frame_max=4095), 501),
        (tune_ok(frame_max=8), 501),
    ],
)
def test_tune_ok_out_of_range_is_refused(reply, code):
    conn = at_tune()
    (lost,) = feed(conn, reply)
    assert lost.code == code
    ((_, close),) = frames(conn)
    assert (close.name, close.reply_code, close.class_id, close.method_id) == (
        "Connection.Close",
        code,
        10,
        31,
    )


def test_tune_ok_zero_takes_the_offered_value():
    conn = at_tune()
    assert feed(conn, tune_ok(0, 0, 0)) == []
    assert (conn.channel_max, conn.frame_max, conn.heartbeat_s) == (8, 4096, 0)


def test_tune_ok_lowers_the_offered_values():
    conn = new_connection(frame_max=131072, channel_max=2047)
    feed(conn, amqp.PROTOCOL_HEADER + amqp.START_OK)
    feed(conn, tune_ok(5, 8192, 3))
    assert (conn.channel_max, conn.frame_max, conn.heartbeat_s) == (5, 8192, 3)


def refused(capabilities):
    conn = new_connection()
    properties = {"capabilities": capabilities}
    start_ok = commands.Connection.StartOk(properties, "PLAIN", "\0guest\0guest", "en_US")
    conn.receive(amqp.PROTOCOL_HEADER + method(0, start_ok), 1.0)
    conn.output.clear()
    return conn


def test_refused_credentials_close_with_403_who_knows_of_that():
    conn = refused({"authentication_failure_close": True})
    conn.refuse_auth("login was refused")
    ((_, close),) = frames(conn)
    assert (close.reply_code, close.reply_text) == (403, "ACCESS_REFUSED - login was refused")
    (lost,) = conn.receive(amqp.CONNECTION_CLOSE_OK, 0.0)
    assert (lost.code, lost.by_peer) == (403, False)
    assert conn.closed


def test_refused_credentials_without_the_capability_end_the_transport_later():
    conn = refused({})
    conn.refuse_auth("login was refused")
    assert conn.output == []
    deadline = 1.0 + limits.AMQP_REFUSAL_DELAY_S
    assert conn.next_deadline() == deadline
    assert conn.handle_timeout(deadline - 0.1) == []
    (lost,) = conn.handle_timeout(deadline)
    assert (lost.code, lost.by_peer, conn.closed) == (403, False, True)


AMQPLAIN = b"\x05LOGINS\x00\x00\x00\x04user\x08PASSWORDS\x00\x00\x00\x06s3cret"


def test_amqplain_is_a_table_without_its_length():
    start_ok = commands.Connection.StartOk({}, "AMQPLAIN", AMQPLAIN, "en_US")
    assert credentials(start_ok) == ("user", "s3cret")


def test_update_secret_is_answered_and_told():
    conn = running()
    (changed,) = feed(conn, method(0, commands.Connection.UpdateSecret("new", "token expired")))
    assert (type(changed), changed.secret) == (ev.SecretChanged, b"new")
    assert [frame.name for _, frame in frames(conn)] == ["Connection.UpdateSecretOk"]


def test_blocked_is_told_once_and_only_to_who_knows_of_it():
    told = {}
    for knows in (True, False):
        conn = new_connection()
        properties = {"capabilities": {"connection.blocked": knows}}
        feed(conn, amqp.PROTOCOL_HEADER)
        feed(conn, method(0, commands.Connection.StartOk(properties, "PLAIN", "\0a\0b", "en_US")))
        conn.block("too early")
        feed(conn, tune_ok() + amqp.OPEN)
        conn.output.clear()
        conn.unblock()
        for _ in range(2):
            conn.block("busy")
        for _ in range(2):
            conn.unblock()
        told[knows] = [frame.name for _, frame in frames(conn)]
    assert told == {True: ["Connection.Blocked", "Connection.Unblocked"], False: []}


def test_one_channel_more_than_negotiated_is_530():
    conn = running(channels=7)
    feed(conn, method(65535, commands.Channel.Open()))
    conn.output.clear()
    (lost,) = feed(conn, method(8, commands.Channel.Open()))
    assert lost.code == 530
    ((_, close),) = frames(conn)
    assert close.reply_text.endswith("(8) has reached the negotiated channel_max (8)")


def test_refused_virtual_host_closes_with_530():
    conn = at_tune()
    conn.receive(tune_ok() + amqp.OPEN, 0.0)
    conn.fail(530, "vhost x not found", 10, 40)
    ((_, close),) = frames(conn)
    assert (close.reply_code, close.class_id, close.method_id) == (530, 10, 40)


@pytest.mark.parametrize(
    ("mechanism", "response", "code"),
    [
        ("CRAM-MD5", b"", 503),
        ("PLAIN", b"", 502),
        ("PLAIN", b"\0guest", 502),
        ("PLAIN", b"\0a\0b\0c", 502),
        ("PLAIN", b"\0\xff\0b", 502),
        ("AMQPLAIN", b"", 502),
        ("AMQPLAIN", b"\x00", 502),
        ("AMQPLAIN", AMQPLAIN[:-1], 502),
        ("AMQPLAIN", AMQPLAIN[:-11] + b"t\x01", 502),
    ],
)
def test_malformed_credentials_are_protocol_errors(mechanism, response, code):
    with pytest.raises(ProtocolError) as caught:
        credentials(commands.Connection.StartOk({}, mechanism, response, "en_US"))
    assert caught.value.code == code


def test_authorisation_identity_is_ignored():
    start_ok = commands.Connection.StartOk({}, "PLAIN", b"other\0user\0pass word", "en_US")
    assert credentials(start_ok) == ("user", "pass word")


@pytest.mark.parametrize("early", [tune_ok(), amqp.OPEN, amqp.CHANNEL_1_OPEN, amqp.HELLO_TO_Q])
def test_frame_before_its_step_of_the_handshake_is_refused(early):
    conn = new_connection()
    (lost,) = feed(conn, amqp.PROTOCOL_HEADER + early)
    assert isinstance(lost, ev.ConnectionLost)
    assert lost.code in (503, 504)


def test_opening_a_channel_before_open_ok_is_refused():
    conn = at_tune()
    events = conn.receive(tune_ok() + amqp.OPEN + amqp.CHANNEL_1_OPEN, 0.0)
    assert [type(event) for event in events] == [ev.OpenRequested, ev.ConnectionLost]
    conn.accept_open()  # too late, and harmless
    assert conn.closing


def test_close_is_answered_at_each_step_of_the_handshake():
    for before in (amqp.PROTOCOL_HEADER, amqp.PROTOCOL_HEADER + amqp.START_OK):
        conn = new_connection()
        conn.receive(before, 0.0)
        conn.output.clear()
        events = conn.receive(amqp.CONNECTION_CLOSE, 0.0)
        assert (events[-1].code, events[-1].by_peer) == (200, True)
        assert conn.output == [amqp.CONNECTION_CLOSE_OK]
        assert conn.receive_eof() == []
        assert conn.closed


def test_handshake_beyond_its_deadline_is_ended():
    conn = new_connection()
    assert conn.next_deadline() == limits.AMQP_HANDSHAKE_TIMEOUT_S
    conn.receive(amqp.PROTOCOL_HEADER, 3.0)
    assert conn.handle_timeout(limits.AMQP_HANDSHAKE_TIMEOUT_S - 0.1) == []
    (lost,) = conn.handle_timeout(limits.AMQP_HANDSHAKE_TIMEOUT_S)
    assert isinstance(lost, ev.ConnectionLost)
    assert conn.closed
    assert conn.next_deadline() is None


def test_answering_without_a_request_raises():
    conn = new_connection()
    with pytest.raises(LocalProtocolError):
        conn.accept_auth()
    with pytest.raises(LocalProtocolError):
        conn.accept_open()


def test_method_of_the_test_driver_matches_the_hand_written_bytes():
    assert method(0, commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US")) == amqp.START_OK
    assert tune_ok(2047, 131072, 60) == amqp.TUNE_OK
    assert method(0, commands.Connection.Open("/")) == amqp.OPEN


@pytest.mark.parametrize("size", [8, 12])
def test_the_header_of_another_version_is_somebody_elses_to_answer(size: int) -> None:
    conn = new_connection(other_headers=(b"AMQP\x03\x01\x00\x00",))
    said = b"AMQP\x03\x01\x00\x00rest"[:size]
    assert not conn.receive(said[:6], 0.0)
    (event,) = conn.receive(said[6:], 0.0)
    assert isinstance(event, ev.OtherVersion)
    assert event.data == said
    assert not conn.output
    assert not conn.closed


def test_a_header_that_nobody_answers_is_refused_beside_others() -> None:
    conn = new_connection(other_headers=(b"AMQP\x03\x01\x00\x00",))
    conn.receive(b"AMQP\x03\x02", 0.0)
    assert conn.output == [b"AMQP\x03\x01\x00\x00"]
    assert conn.closed
    of_another_revision = new_connection(other_headers=(b"AMQP\x03\x01\x00\x00",))
    of_another_revision.receive(b"AMQP\x00\x00\x09\x00", 0.0)
    assert of_another_revision.output == [amqp.PROTOCOL_HEADER]
