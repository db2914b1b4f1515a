import random

import pytest

from config import limits
from protocols.amqp10 import constants as c
from protocols.amqp10 import events as ev
from protocols.amqp10 import performatives as p
from protocols.amqp10.framing import FrameReader, encode_frame, encode_sasl_frame
from protocols.errors import LocalProtocolError
from tests.unit.protocols.amqp10.driver import (
    HELLO,
    INIT,
    OPEN,
    answer,
    attach_receiver,
    attach_sender,
    begin,
    feed,
    flat,
    flow,
    frames,
    link_of,
    links_of,
    new_connection,
    running,
    said,
    transfer,
)


def names(events):
    return [type(event).__name__ for event in events]


def test_a_handshake_in_one_piece_is_answered_step_by_step():
    conn = new_connection(properties={}, offered_capabilities=("ANONYMOUS-RELAY",))
    events = feed(conn, HELLO)
    assert names(events) == ["AuthRequested", "OpenRequested"]
    assert (events[0].mechanism, events[0].username, events[0].password) == ("PLAIN", "guest", "guest")
    assert conn.is_let_in
    output = frames(conn)
    assert [frame.payload for frame in output if frame.kind == -1] == [c.SASL_HEADER, c.AMQP_HEADER]
    mechanisms, outcome, opened = (frame.body for frame in output if frame.kind != -1)
    assert mechanisms == p.SaslMechanisms(("PLAIN", "ANONYMOUS"))
    assert outcome == p.SaslOutcome(0)
    assert opened.container_id == "sluicemq"
    assert opened.max_frame_size == limits.AMQP10_FRAME_BYTES_MAX
    assert opened.offered_capabilities == ("ANONYMOUS-RELAY",)


def test_a_handshake_octet_by_octet_is_the_same():
    conn = new_connection()
    events = [event for at in range(len(HELLO)) for event in feed(conn, HELLO[at : at + 1])]
    assert names(events) == ["AuthRequested", "OpenRequested"]
    assert conn.is_let_in


@pytest.mark.parametrize(
    "header",
    [c.AMQP_HEADER, c.TLS_HEADER, b"AMQP\x00\x00\x09\x01", b"GET / HTTP/1.1\r\n", b"AMQP\x00\x02\x00\x00"],
)
def test_another_header_is_answered_with_the_one_of_sasl_and_the_end(header):
    conn = new_connection()
    events = feed(conn, header)
    assert names(events) == ["ConnectionLost"]
    assert conn.closed
    assert conn.output == [c.SASL_HEADER]


def test_without_sasl_the_front_end_is_asked_for_a_client_without_a_name():
    conn = new_connection(requires_sasl=False)
    events = feed(conn, c.AMQP_HEADER + OPEN)
    assert names(events) == ["AuthRequested", "OpenRequested"]
    assert events[0].mechanism == ""
    assert frames(conn)[0].payload == c.AMQP_HEADER


def test_nothing_is_read_while_the_front_end_decides():
    conn = new_connection()
    assert names(conn.receive(HELLO, 0.0)) == ["AuthRequested"]
    assert conn.receive(begin(), 0.0) == []
    assert names(conn.accept_auth()) == ["OpenRequested"]
    assert names(conn.accept_open()) == ["SessionBegun"]


def test_too_much_before_the_decision_ends_the_connection():
    conn = new_connection()
    conn.receive(c.SASL_HEADER + INIT, 0.0)
    events = []
    for _ in range(9):
        events += conn.receive(b"x" * 64 * 1024, 0.0)
    assert names(events) == ["ConnectionLost"]
    assert conn.closed


@pytest.mark.parametrize(
    ("init", "reason"),
    [
        (p.SaslInit("SCRAM-SHA-1", b""), "unknown"),
        (p.SaslInit("PLAIN", b"guest"), "malformed"),
        (p.SaslInit("PLAIN"), "malformed"),
    ],
)
def test_credentials_that_cannot_be_are_refused(init, reason):
    conn = new_connection()
    assert feed(conn, c.SASL_HEADER + encode_sasl_frame(init)) == []
    assert said(conn)[-1] == p.SaslOutcome(c.SASL_AUTH)
    (lost,) = conn.handle_timeout(conn.next_deadline())
    assert reason in lost.reason
    assert conn.closed


def test_refused_credentials_get_the_outcome():
    conn = new_connection()
    conn.receive(c.SASL_HEADER + INIT, 0.0)
    conn.refuse_auth("no")
    assert said(conn)[-1] == p.SaslOutcome(c.SASL_AUTH)
    assert names(conn.receive_eof()) == ["ConnectionLost"]


@pytest.mark.parametrize(
    ("opened", "condition"),
    [
        (p.Open("c", max_frame_size=511), c.INVALID_FIELD),
        (p.Open("c", idle_time_out=10), c.NOT_ALLOWED),
    ],
)
def test_an_open_that_cannot_be_kept_is_answered_with_open_and_close(opened, condition):
    conn = new_connection()
    events = feed(conn, c.SASL_HEADER + INIT + c.AMQP_HEADER + encode_frame(0, opened))
    assert names(events) == ["AuthRequested", "ConnectionLost"]
    last = said(conn)[-2:]
    assert type(last[0]) is p.Open
    assert last[1].error.condition == condition
    # the client's own close ends it
    feed(conn, encode_frame(0, p.Close()))
    assert conn.closed


CONNECTION_ERRORS = {
    "frame too large": (b"\x00\x03\x00\x00\x02\x00\x00\x00", c.FRAMING_ERROR),
    "frame too small": (b"\x00\x00\x00\x07\x02\x00\x00\x00", c.FRAMING_ERROR),
    "data offset of 1": (b"\x00\x00\x00\x08\x01\x00\x00\x00", c.FRAMING_ERROR),
    "data offset behind the end": (b"\x00\x00\x00\x08\x03\x00\x00\x00", c.FRAMING_ERROR),
    "frame of an unknown type": (b"\x00\x00\x00\x08\x02\x07\x00\x00", c.FRAMING_ERROR),
    "frame of SASL": (INIT, c.FRAMING_ERROR),
    "open again": (OPEN, c.NOT_ALLOWED),
    "unknown performative": (b"\x00\x00\x00\x0c\x02\x00\x00\x00\x00\x53\x99\x45", c.DECODE_ERROR),
    "garbage": (b"\x00\x00\x00\x0c\x02\x00\x00\x00\xff\xff\xff\xff", c.DECODE_ERROR),
    "flow without a session": (flow(1), c.NOT_ALLOWED),
    "channel beyond channel-max": (begin(300), c.FRAMING_ERROR),
    "begin as an answer": (encode_frame(0, p.Begin(0, 0, 1, 1)), c.NOT_ALLOWED),
    "begin twice": (begin() + begin(), c.NOT_ALLOWED),
    "handle beyond handle-max": (begin() + attach_sender(5000), c.FRAMING_ERROR),
    "octets behind a performative": (begin() + encode_frame(0, p.End(), b"x"), c.DECODE_ERROR),
}


@pytest.mark.parametrize(("data", "condition"), CONNECTION_ERRORS.values(), ids=CONNECTION_ERRORS.keys())
def test_an_error_of_the_connection_closes_it(data, condition):
    conn = running()
    events = feed(conn, data)
    assert type(events[-1]) is ev.ConnectionLost
    assert events[-1].condition == condition
    closed = said(conn)[-1]
    assert type(closed) is p.Close
    assert closed.error.condition == condition
    assert feed(conn, begin(3)) == []
    feed(conn, encode_frame(0, p.Close()))
    assert conn.closed


SESSION_ERRORS = {
    "unknown handle": (transfer(0, handle=7), c.UNATTACHED_HANDLE),
    "flow on an unknown handle": (flow(1, handle=7), c.UNATTACHED_HANDLE),
    "detach of an unknown handle": (encode_frame(0, p.Detach(7)), c.UNATTACHED_HANDLE),
    "handle in use": (attach_sender(0), c.HANDLE_IN_USE),
    "no initial delivery count": (attach_sender(5, initial_delivery_count=None), c.INVALID_FIELD),
    "settle mode 3": (attach_sender(5, snd_settle_mode=3), c.INVALID_FIELD),
    "no delivery ID": (transfer(0, delivery_id=None), c.INVALID_FIELD),
    "no delivery tag": (transfer(0, delivery_tag=None), c.INVALID_FIELD),
    "transfer to a receiver": (transfer(0, handle=1), c.NOT_ALLOWED),
    "another delivery within one": (transfer(0, more=True) + transfer(1), c.INVALID_FIELD),
}


@pytest.mark.parametrize(("data", "condition"), SESSION_ERRORS.values(), ids=SESSION_ERRORS.keys())
def test_an_error_of_a_session_ends_it_and_no_other(data, condition):
    conn = running(begin(), begin(1), attach_sender(0), attach_receiver(1))
    events = feed(conn, data)
    assert type(events[-1]) is ev.SessionEnded
    assert events[-1].error.condition == condition
    assert said(conn)[-1].error.condition == condition
    assert not conn.session_is_open(0)
    assert conn.session_is_open(1)
    # discarded until the client ends it; then the channel is free
    assert feed(conn, transfer(0) + flow(1)) == []
    assert feed(conn, encode_frame(0, p.End())) == []
    assert names(feed(conn, begin())) == ["SessionBegun"]


LINK_ERRORS = {
    "more than the credit": (b"".join(transfer(number) for number in range(11)), c.TRANSFER_LIMIT_EXCEEDED),
    "too large": (transfer(0, b"x" * 2000), c.MESSAGE_SIZE_EXCEEDED),
    "too large in parts": (
        transfer(0, b"x" * 600, more=True) + transfer(0, b"x" * 600, more=True),
        c.MESSAGE_SIZE_EXCEEDED,
    ),
    "tag too long": (transfer(0, delivery_tag=b"x" * 33), c.INVALID_FIELD),
    "resumed": (transfer(0, resume=True), c.NOT_IMPLEMENTED),
}


@pytest.mark.parametrize(("data", "condition"), LINK_ERRORS.values(), ids=LINK_ERRORS.keys())
def test_an_error_of_a_link_detaches_it_and_no_other(data, condition):
    conn = new_connection(message_bytes_max=1000)
    feed(conn, HELLO + begin() + attach_sender(0) + attach_receiver(1), credit=10)
    conn.output.clear()
    events = feed(conn, data)
    assert type(events[-1]) is ev.LinkDetached
    assert events[-1].error.condition == condition
    (detach,) = (body for body in said(conn) if type(body) is p.Detach)
    assert detach.error.condition == condition
    assert detach.closed
    assert conn.session_is_open(0)
    assert feed(conn, transfer(20)) == []
    assert feed(conn, encode_frame(0, p.Detach(0, True))) == []
    assert names(feed(conn, attach_sender(0))) == ["AttachRequested"]
    assert conn.unfinished_bytes == 0


@pytest.mark.parametrize(("mode", "settled"), [(0, True), (1, False), (1, None)])
def test_a_settled_flag_against_the_settle_mode_detaches(mode, settled):
    conn = running(begin(), attach_sender(0, snd_settle_mode=mode))
    events = feed(conn, transfer(0, settled=settled))
    assert events[-1].error.condition == c.INVALID_FIELD


def test_close_is_answered_and_the_transport_left_to_the_client():
    conn = running()
    (lost,) = feed(conn, encode_frame(0, p.Close(p.Error("amqp:connection:forced", "bye"))))
    assert (lost.condition, lost.reason, lost.by_peer) == ("amqp:connection:forced", "bye", True)
    assert said(conn) == [p.Close()]
    assert not conn.closed
    assert conn.handle_timeout(limits.AMQP_LINGER_S + 1) == []
    assert conn.closed


def test_sessions_begin_and_end():
    conn = running()
    assert names(feed(conn, begin(3))) == ["SessionBegun"]
    (begun,) = frames(conn)
    assert begun.channel == 3
    assert begun.body.remote_channel == 3
    assert begun.body.handle_max == limits.AMQP10_HANDLE_MAX
    (ended,) = feed(conn, encode_frame(3, p.End()))
    assert (ended.channel, ended.error, ended.by_peer) == (3, None, True)
    assert said(conn) == [p.End()]
    assert not conn.session_is_open(3)


def test_a_link_is_accepted_as_the_front_end_says():
    conn = running(begin())
    (asked,) = conn.receive(attach_receiver(1, snd_settle_mode=1), 0.0)
    conn.accept_attach(asked.link, p.Source("/queues/real"), None, properties={})
    (attach,) = said(conn)
    assert attach.name == "receiver-1"
    assert attach.role is c.SENDER
    assert attach.source.address == "/queues/real"
    assert attach.initial_delivery_count == 0
    assert attach.snd_settle_mode == 1


def test_a_refused_link_gets_attach_without_its_terminus_then_detach():
    conn = running(begin())
    (asked,) = conn.receive(attach_sender(0), 0.0)
    conn.refuse_attach(asked.link, c.NOT_FOUND, "no queue 'q'")
    attach, detach = said(conn)
    assert attach.target is None
    assert attach.role is c.RECEIVER
    assert detach == p.Detach(0, True, p.Error(c.NOT_FOUND, "no queue 'q'"))
    assert feed(conn, encode_frame(0, p.Detach(0, True))) == []
    assert names(feed(conn, attach_sender(0))) == ["AttachRequested"]


def test_detach_is_answered_as_it_was_asked():
    conn = running(begin(), attach_sender(0), attach_receiver(1))
    first, second = feed(conn, encode_frame(0, p.Detach(0, False)) + encode_frame(0, p.Detach(1, True)))
    assert not first.closed
    assert second.closed
    assert said(conn) == [p.Detach(0), p.Detach(1, True)]
    assert not first.link.is_attached


def test_a_link_detached_before_its_answer_is_attached_first():
    conn = running(begin())
    events = conn.receive(attach_sender(0) + encode_frame(0, p.Detach(0, True)), 0.0)
    assert names(events) == ["AttachRequested", "LinkDetached"]
    conn.accept_attach(events[0].link, None, None)
    assert [type(body) for body in said(conn)] == [p.Attach, p.Detach]


def test_detach_by_the_front_end_discards_until_the_answer():
    conn = running(begin(), attach_sender(0))
    link = link_of(conn, 0)
    conn.detach(link, c.RESOURCE_DELETED)
    assert said(conn) == [p.Detach(0, True, p.Error(c.RESOURCE_DELETED))]
    assert feed(conn, transfer(0) + encode_frame(0, p.Detach(0, True))) == []
    conn.grant(link, 5)
    assert conn.output == []


# transfers


def test_transfers_alike_are_one_run():
    conn = running(begin(), attach_sender(0))
    (run,) = feed(conn, b"".join(transfer(number, b"%d" % (number % 10)) for number in range(900)))
    assert run.first_id == 0
    assert len(run.payloads) == 900
    assert run.payloads[891] == b"1"
    assert run.tags[891] == b"0891"
    assert not run.settled
    assert link_of(conn, 0).credit == 100


@pytest.mark.parametrize("chunk_bytes", [1, 7, 100, 1 << 20])
@pytest.mark.parametrize("start", [0, 250, 65_000, (1 << 32) - 100])
def test_transfers_in_any_pieces_are_the_same(chunk_bytes, start):
    conn = running(begin(next_outgoing_id=start), attach_sender(0), attach_sender(3))
    ids = [(start + at) & 0xFFFFFFFF for at in range(300)]
    parts = [transfer(number, b"x" * (number % 100 == 0)) for number in ids]
    parts[150] = transfer(ids[150], b"other", handle=3)
    parts[200] = transfer(ids[200], settled=True)
    data = b"".join(parts)
    events = []
    for at in range(0, len(data), chunk_bytes):
        events += feed(conn, data[at : at + chunk_bytes])
    seen = [
        (run.first_id + at & 0xFFFFFFFF, link.handle, run.settled, payload, tag)
        for run in events
        for at, (link, payload, tag) in enumerate(zip(links_of(run), run.payloads, run.tags, strict=True))
    ]
    assert [one[0] for one in seen] == ids
    assert [one[1] for one in seen] == [3 if at == 150 else 0 for at in range(300)]
    assert [one[2] for one in seen] == [at == 200 for at in range(300)]
    assert [one[4] for one in seen] == [b"%04d" % number for number in ids]


@pytest.mark.parametrize("chunk_bytes", [1, 100, 1 << 20])
@pytest.mark.parametrize("start", [0, 65_000, (1 << 32) - 100])
def test_transfers_of_many_links_in_any_pieces_are_the_same(chunk_bytes, start):
    handles = (0, 1, 2, 3, 300)
    rng = random.Random(start)
    conn = running(begin(next_outgoing_id=start), *map(attach_sender, handles))
    expected = []
    for at in range(300):
        number = start + at & 0xFFFFFFFF
        settled = rng.random() < 0.02
        expected.append((number, rng.choice(handles), settled, rng.randbytes(rng.randrange(4))))
    data = b"".join(transfer(number, body, handle, settled=s) for number, handle, s, body in expected)
    events = []
    for at in range(0, len(data), chunk_bytes):
        events += feed(conn, data[at : at + chunk_bytes])
    seen = [
        (run.first_id + at & 0xFFFFFFFF, link.handle, run.settled, payload)
        for run in events
        for at, (link, payload) in enumerate(zip(links_of(run), run.payloads, strict=True))
    ]
    assert seen == expected
    for handle in handles:
        count = sum(one[1] == handle for one in expected)
        assert (link_of(conn, handle).delivery_count, link_of(conn, handle).credit) == (count, 1000 - count)


def test_transfers_of_many_links_are_one_run_that_can_be_taken_apart():
    conn = running(begin(), *map(attach_sender, range(4)))
    order = (1, 2, 3, 1, 1, 2, 0, 3, 3)
    (run,) = feed(conn, b"".join(transfer(500 + at, b"%d" % at, handle) for at, handle in enumerate(order)))
    assert [link.handle for link in run.links] == list(order)
    parts = [(part.link.handle, part.first_id, part.payloads, part.tags) for part in run.of_one_link()]
    assert parts[:3] == [
        (1, 500, [b"0"], [b"0500"]),
        (2, 501, [b"1"], [b"0501"]),
        (3, 502, [b"2"], [b"0502"]),
    ]
    assert parts[3] == (1, 503, [b"3", b"4"], [b"0503", b"0504"])
    assert not any(part.links for part in run.of_one_link())


def test_a_link_beyond_its_credit_is_detached_and_others_go_on():
    conn = running(begin(), *map(attach_sender, range(1, 4)))
    conn.grant(link_of(conn, 2), 0)
    link_of(conn, 2).credit_end = 1
    order = (1, 2, 3, 2, 1, 3)
    events = feed(conn, b"".join(transfer(500 + at, b"x", handle) for at, handle in enumerate(order)))
    assert names(events) == ["TransferRun", "LinkDetached", "TransferRun"]
    assert [link.handle for link in links_of(events[0])] == [1, 2, 3]
    assert events[1].link.handle == 2
    assert (events[2].first_id, [link.handle for link in links_of(events[2])]) == (504, [1, 3])


def test_a_message_too_large_for_its_link_is_not_taken_with_others():
    conn = running(begin(), *map(attach_sender, range(1, 4)))
    link_of(conn, 2).max_message_size = 10
    sizes = ((1, 11), (2, 10), (3, 11), (2, 11), (1, 11))
    data = b"".join(transfer(500 + at, b"x" * size, handle) for at, (handle, size) in enumerate(sizes))
    events = feed(conn, data)
    assert names(events) == ["TransferRun", "LinkDetached", "TransferRun"]
    assert events[1].error.condition == c.MESSAGE_SIZE_EXCEEDED


def test_the_window_of_a_session_bounds_what_comes_on_many_links():
    conn = running(begin(), *map(attach_sender, range(1, 4)))
    session = conn._sessions[0]
    session._incoming_window = 1
    events = feed(conn, b"".join(transfer(500 + at, b"x", 1 + at % 3) for at in range(3)))
    # of one that opens again when half of it is gone
    assert sum(len(event.payloads) for event in events) == 3
    session._incoming_window = limits.AMQP10_INCOMING_WINDOW // 2 + 2
    events = feed(conn, b"".join(transfer(600 + at, b"x", 1 + at % 3) for at in range(3)))
    assert sum(len(event.payloads) for event in events) == 3
    assert session._incoming_window == limits.AMQP10_INCOMING_WINDOW


def test_a_transfer_that_is_settled_between_others_is_a_run_of_its_own():
    conn = running(begin(), attach_sender(0))
    data = b"".join(transfer(number, settled=number in (350, 351)) for number in range(300, 500))
    runs = feed(conn, data)
    assert [(run.first_id, run.settled, len(run.tags)) for run in runs] == [
        (300, False, 50),
        (350, True, 2),
        (352, False, 148),
    ]


def test_a_delivery_in_several_transfers_is_told_once_it_is_whole():
    conn = running(begin(), attach_sender(0), attach_sender(3))
    assert feed(conn, transfer(0, b"ab", more=True)) == []
    assert conn.unfinished_bytes == 2 + limits.AMQP10_PART_BYTES
    (other,) = feed(conn, transfer(1, b"other", handle=3))
    assert other.payloads == [b"other"]
    (run,) = feed(
        conn,
        transfer(0, b"cd", delivery_id=None, delivery_tag=None, more=True)
        + transfer(0, b"ef", delivery_tag=None, settled=True),
    )
    assert (run.first_id, run.payloads, run.settled) == (0, [b"abcdef"], True)
    assert conn.unfinished_bytes == 0


def test_an_aborted_delivery_is_dropped():
    conn = running(begin(), attach_sender(0))
    assert names(feed(conn, transfer(0, b"ab", more=True) + transfer(0, b"", aborted=True))) == [
        "CreditChanged"
    ]
    (run,) = feed(conn, transfer(1, b"next"))
    assert (run.first_id, run.payloads) == (1, [b"next"])


def test_the_window_is_opened_before_it_is_used_up():
    conn = running(begin(), attach_sender(0))
    conn.grant(link_of(conn, 0), 10_000)
    for start in range(0, 9000, 500):
        feed(conn, b"".join(transfer(number) for number in range(start, start + 500)))
    assert conn.session_is_open(0)
    flows = [body for body in said(conn) if type(body) is p.Flow]
    assert flows[-1].incoming_window == limits.AMQP10_INCOMING_WINDOW
    assert flows[-1].handle is None


def test_a_transaction_is_told_with_the_run():
    conn = running(begin(), attach_sender(0))
    state = p.TransactionalState(b"t")
    (run, other) = feed(conn, transfer(0, state=state) + transfer(1, state=state) + transfer(2))
    assert (run.state, len(run.payloads)) == (state, 2)
    assert other.state is None


# dispositions


def test_dispositions_alike_are_one_run():
    conn = running(begin(), attach_receiver(1))
    data = b"".join(encode_frame(0, p.Disposition(True, at, None, True, p.Accepted())) for at in range(300))
    data += encode_frame(0, p.Disposition(True, 300, 400, True, p.Accepted()))
    data += encode_frame(0, p.Disposition(True, 401, None, True, p.Released()))
    taken, released = feed(conn, data)
    assert (taken.role, taken.settled, taken.state) == (True, True, p.Accepted())
    assert taken.ranges == [*((at, at) for at in range(300)), (300, 400)]
    assert (released.state, released.ranges) == (p.Released(), [(401, 401)])


def test_settle_says_each_range():
    conn = running(begin(), attach_sender(0))
    conn.settle(0, [(0, 5), (7, 7)])
    rejected = p.Rejected(p.Error(c.RESOURCE_LIMIT_EXCEEDED, "x" * 300))
    conn.settle(0, [(6, 6)], rejected)
    conn.settle(0, [(1, 1)], p.Released(), role=c.SENDER, settled=False)
    assert said(conn) == [
        p.Disposition(True, 0, 5, True, p.Accepted()),
        p.Disposition(True, 7, 7, True, p.Accepted()),
        p.Disposition(True, 6, 6, True, rejected),
        p.Disposition(False, 1, 1, False, p.Released()),
    ]


# deliveries


def test_deliveries_have_ids_and_tags_that_follow_on_each_other():
    conn = running(begin(), attach_receiver(1))
    (credit,) = feed(conn, flow(10))
    assert credit.link.credit == 10
    assert conn.deliver(credit.link, [b"a", b"bb"]) == 0
    assert conn.deliver(credit.link, [b"ccc"]) == 2
    assert [(frame.body.delivery_id, frame.body.delivery_tag, frame.payload) for frame in frames(conn)] == [
        (0, b"\0\0\0\0", b"a"),
        (1, b"\0\0\0\1", b"bb"),
        (2, b"\0\0\0\2", b"ccc"),
    ]
    assert credit.link.credit == 7


def test_more_than_the_credit_is_our_error():
    conn = running(begin(), attach_receiver(1))
    (credit,) = feed(conn, flow(1))
    with pytest.raises(LocalProtocolError):
        conn.deliver(credit.link, [b"a", b"b"])


@pytest.mark.parametrize("size", [0, 400, 489, 490, 491, 5000])
def test_a_delivery_takes_as_many_frames_as_the_client_wants(size):
    conn = new_connection()
    feed(conn, c.SASL_HEADER + INIT + c.AMQP_HEADER + encode_frame(0, p.Open("c", max_frame_size=512)))
    feed(conn, begin() + attach_receiver(1) + flow(10))
    conn.output.clear()
    body = bytes(range(256)) * 20
    conn.deliver(link_of(conn, 1), [body[:size]])
    assert conn.has_large_output is (size > link_of(conn, 1).encoder.payload_max)
    data = b"".join(map(bytes, conn.output))
    output = FrameReader(512).feed(data)
    assert b"".join(frame.payload for frame in output) == body[:size]
    assert [frame.body.more for frame in output] == [True] * (len(output) - 1) + [False]
    assert {frame.body.delivery_id for frame in output} == {0}


def test_what_the_window_has_no_room_for_waits_for_it():
    conn = running(begin(incoming_window=3), attach_receiver(1))
    (credit,) = feed(conn, flow(100, None) + encode_frame(0, p.Flow(0, 3, 0, 9, 1, 0, 100)))[-1:]
    assert conn.session_room(0) == 3
    conn.deliver(credit.link, [b"%d" % at for at in range(8)])
    assert conn.session_room(0) == 0
    assert len(frames(conn)) == 3
    assert feed(conn, encode_frame(0, p.Flow(3, 4, 0, 9))) == []
    assert len(frames(conn)) == 4
    (opened,) = feed(conn, encode_frame(0, p.Flow(7, 5, 0, 9)))
    assert type(opened) is ev.WindowOpened
    assert [frame.payload for frame in frames(conn)] == [b"7"]
    assert conn.session_room(0) == 4


def test_credit_is_set_and_counts_what_is_under_way():
    conn = running(begin(), attach_receiver(1))
    (credit,) = feed(conn, flow(10))
    conn.deliver(credit.link, [b"x"] * 4)
    feed(conn, flow(10, delivery_count=1))
    assert credit.link.credit == 7
    feed(conn, flow(0, delivery_count=4))
    assert credit.link.credit == 0
    feed(conn, flow(c.UINT_MAX, delivery_count=4))
    assert credit.link.credit == c.UINT_MAX


def test_credit_that_comes_before_the_link_is_accepted_counts():
    conn = running(begin())
    events = conn.receive(attach_receiver(1) + flow(10), 0.0)
    assert names(events) == ["AttachRequested", "CreditChanged"]
    answer(conn, events)
    assert events[0].link.credit == 10


def test_drain_advances_the_delivery_count():
    conn = running(begin(), attach_receiver(1))
    (credit,) = feed(conn, flow(10, drain=True))
    assert credit.link.drain
    conn.deliver(credit.link, [b"x"] * 4)
    conn.drained(credit.link)
    answered = said(conn)[-1]
    assert (answered.delivery_count, answered.link_credit, answered.drain) == (10, 0, True)


def test_echo_is_answered_for_sessions_and_links():
    conn = running(begin(), attach_sender(0), attach_receiver(1))
    feed(conn, flow(0, None, echo=True) + flow(5, echo=True) + flow(0, 0, echo=True))
    session, receiver, sender = said(conn)
    assert session.handle is None
    assert (receiver.handle, receiver.link_credit) == (1, 5)
    assert (sender.handle, sender.link_credit) == (0, 1000)


# time


def test_empty_frames_go_within_the_idle_time_out_of_the_client():
    conn = new_connection()
    opened = encode_frame(0, p.Open("c", idle_time_out=10_000))
    feed(conn, c.SASL_HEADER + INIT + c.AMQP_HEADER + opened)
    conn.output.clear()
    assert conn.next_deadline() == 5.0
    assert conn.handle_timeout(5.0) == []
    assert conn.output == [c.HEARTBEAT_FRAME]
    assert feed(conn, c.HEARTBEAT_FRAME, 6.0) == []


def test_a_silent_client_is_closed():
    conn = running(idle_timeout_ms=10_000)
    assert conn.handle_timeout(19.0) == []
    (lost,) = conn.handle_timeout(20.0)
    assert lost.condition == c.RESOURCE_LIMIT_EXCEEDED
    assert type(said(conn)[-1]) is p.Close
    conn.handle_timeout(20.0)
    assert conn.handle_timeout(20.0 + limits.AMQP_CLOSE_TIMEOUT_S) == []
    assert conn.closed


def test_a_handshake_that_does_not_end_is_given_up():
    conn = new_connection()
    conn.receive(c.SASL_HEADER, 0.0)
    (lost,) = conn.handle_timeout(conn.next_deadline())
    assert "handshake" in lost.reason
    assert conn.closed


def test_flat_takes_runs_apart():
    conn = running(begin(), attach_sender(0))
    assert flat(feed(conn, transfer(0))) == [("TransferRun", 0, False, 0, None, 0, b"0000", b"x")]


def test_a_drain_is_told_behind_what_waits_for_the_window():
    conn = running(begin(incoming_window=1), attach_receiver(1))
    (credit,) = feed(conn, encode_frame(0, p.Flow(0, 1, 0, 9, 1, 0, 5, drain=True)))
    conn.deliver(credit.link, [b"a", b"b"])
    conn.drained(credit.link)
    assert [frame.payload for frame in frames(conn)] == [b"a"]
    feed(conn, encode_frame(0, p.Flow(1, 1, 0, 9)))
    delivered, told = frames(conn)
    assert delivered.payload == b"b"
    assert (told.body.delivery_count, told.body.link_credit, told.body.drain) == (5, 0, True)


@pytest.mark.parametrize("by_client", [True, False])
def test_what_waits_for_the_window_goes_with_its_link(by_client):
    """A transfer on a handle that is detached would end the session, or be on the next link with it."""
    conn = running(begin(incoming_window=1), attach_receiver(1))
    (credit,) = feed(conn, encode_frame(0, p.Flow(0, 1, 0, 9, 1, 0, 5)))
    conn.deliver(credit.link, [b"a", b"b", b"c"])
    if not by_client:
        conn.detach(credit.link, c.RESOURCE_DELETED)
    feed(conn, encode_frame(0, p.Detach(1, True)) + attach_receiver(1))
    conn.output.clear()
    feed(conn, encode_frame(0, p.Flow(1, 100, 0, 9, 1, 0, 5)))
    assert frames(conn) == []
    assert conn.session_room(0) == 100
    assert conn.deliver(link_of(conn, 1), [b"d"]) == 1  # clients take a gap for an error
    assert [frame.payload for frame in frames(conn)] == [b"d"]


def test_what_came_in_part_is_counted_until_it_is_whole_or_its_link_is_gone():
    conn = running(begin(), begin(1), attach_sender(0), attach_sender(1), attach_sender(0, channel=1))
    assert conn.unfinished_bytes == 0
    feed(conn, transfer(0, b"x" * 1_000, more=True) + transfer(1, b"y" * 100, handle=1, more=True))
    feed(conn, transfer(0, b"z" * 10, channel=1, more=True))
    assert conn.unfinished_bytes >= 1_110
    feed(conn, encode_frame(0, p.Transfer(0)) + encode_frame(0, p.Detach(1, True)))
    assert 10 <= conn.unfinished_bytes <= 100
    feed(conn, encode_frame(1, p.End()))
    assert conn.unfinished_bytes == 0


def test_parts_of_no_octets_take_no_memory():
    conn = running(begin(), attach_sender(0))
    feed(conn, transfer(0, b"x", more=True) + encode_frame(0, p.Transfer(0, more=True)) * 1_000)
    assert len(link_of(conn, 0).parts) == 1


def test_more_unfinished_octets_than_one_client_may_have_end_the_connection(monkeypatch):
    monkeypatch.setattr(limits, "AMQP_ASSEMBLY_BYTES_MAX", 1_000)
    conn = running(begin(), attach_sender(0), attach_sender(1))
    feed(conn, transfer(0, b"x" * 600, more=True))
    (lost,) = feed(conn, transfer(1, b"x" * 600, handle=1, more=True))
    assert (lost.condition, conn.unfinished_bytes) == (c.RESOURCE_LIMIT_EXCEEDED, 0)


def test_more_links_than_one_client_may_have_end_the_session(monkeypatch):
    monkeypatch.setattr(limits, "AMQP10_LINKS_PER_CONNECTION_MAX", 3)
    conn = running(begin(), begin(1), attach_sender(0), attach_receiver(1), attach_sender(0, channel=1))
    feed(conn, encode_frame(0, p.Detach(0, True)) + attach_receiver(1, channel=1))
    conn.output.clear()
    feed(conn, attach_sender(0))
    (ended,) = said(conn)
    assert ended.error.condition == c.RESOURCE_LIMIT_EXCEEDED
    feed(conn, attach_sender(2, channel=1))
    assert type(said(conn)[0]) is p.Attach


def test_credit_with_a_delivery_count_that_lies_stays_one_that_can_be_told():
    conn = running(begin(), attach_receiver(1))
    feed(conn, flow(c.UINT_MAX, delivery_count=1 << 30, echo=True))
    assert said(conn)[-1].link_credit == c.UINT_MAX


def test_a_delivery_in_parts_needs_credit_from_its_first_part_on():
    conn = running(begin())
    events = feed(conn, attach_sender(0), credit=0)
    conn.grant(events[0].link, 1)
    feed(conn, transfer(0))
    conn.output.clear()
    feed(conn, transfer(1, b"x", more=True))
    (detach,) = said(conn)
    assert detach.error.condition == c.TRANSFER_LIMIT_EXCEEDED
    assert conn.unfinished_bytes == 0


def test_credit_that_aborted_deliveries_used_is_told():
    conn = running(begin(), attach_sender(0))
    (told,) = feed(conn, transfer(0, b"ab", more=True) + encode_frame(0, p.Transfer(0, aborted=True)))
    assert type(told) is ev.CreditChanged
    assert told.link.credit == 999
