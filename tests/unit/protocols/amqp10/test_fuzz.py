"""Arbitrary input gives events or a close, never an exception, and bounded memory."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import limits
from protocols.amqp10 import constants as c
from protocols.amqp10 import events as ev
from protocols.amqp10 import performatives as p
from protocols.amqp10.framing import encode_frame
from tests.unit.protocols.amqp10.driver import (
    HELLO,
    attach_receiver,
    attach_sender,
    begin,
    feed,
    flat,
    flow,
    new_connection,
    running,
    transfer,
)
from tests.unit.protocols.amqp10.recorded import FRAMES

ATTACH = attach_sender(4) + encode_frame(0, p.Detach(4, True))
LEGAL = [
    transfer(0) * 3,
    b"".join(transfer(number) for number in range(256, 300)),
    b"".join(
        transfer(number, b"x" * (number % 3), (0, 2, 3, 2, 9)[number % 5]) for number in range(256, 270)
    ),
    b"".join(transfer(number, b"x" * (number % 3), 2 + number % 2) for number in range(256, 290)),
    transfer(1, b"x" * 3000, more=True) + transfer(1, b"y"),
    transfer(2, more=True) + transfer(2, aborted=True),
    flow(10),
    flow(10, drain=True, echo=True),
    flow(0, None, echo=True),
    b"".join(encode_frame(0, p.Disposition(True, at, None, True, p.Accepted())) for at in range(20)),
    encode_frame(0, p.Disposition(True, 0, 9, False, p.Modified(True))),
    ATTACH,
    begin(5) + encode_frame(5, p.End()),
    c.HEARTBEAT_FRAME,
]
PIECES = [*LEGAL, *(data for _, data in FRAMES)]
STARTED = (begin(), begin(1), attach_sender(0), attach_receiver(1), attach_sender(2), attach_sender(3))


def check(conn, data: bytes, chunk_bytes: int) -> None:
    lost = 0
    for start in range(0, len(data), chunk_bytes):
        events = feed(conn, data[start : start + chunk_bytes])
        assert not lost or not events
        lost += sum(isinstance(event, ev.ConnectionLost) for event in events)
        held = sum(map(len, conn._pending))
        assert held <= limits.AMQP10_PIPELINED_BYTES_MAX + chunk_bytes
    lost += sum(isinstance(event, ev.ConnectionLost) for event in conn.receive_eof())
    assert lost == 1
    assert conn.closed


@given(st.binary(max_size=300), st.integers(1, 50))
def test_random_bytes_before_the_handshake_never_raise(data, chunk_bytes):
    check(new_connection(), data, chunk_bytes)


@given(st.integers(0, len(HELLO)), st.binary(max_size=300), st.integers(1, 50))
def test_random_bytes_within_the_handshake_never_raise(begun, data, chunk_bytes):
    check(new_connection(), HELLO[:begun] + data, chunk_bytes)


@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=20), max_size=12), st.integers(1, 5000))
def test_legal_and_illegal_frames_in_random_order_never_raise(pieces, chunk_bytes):
    check(running(*STARTED), b"".join(pieces), chunk_bytes)


# a link that is attached takes transfers once the front-end has answered: that depends on the pieces
@given(
    st.lists(st.sampled_from([one for one in LEGAL if one is not ATTACH]), max_size=12), st.integers(1, 500)
)
def test_frames_split_anywhere_mean_the_same(pieces, chunk_bytes):
    data = b"".join(pieces)
    whole, parted = running(*STARTED), running(*STARTED)
    expected = flat(feed(whole, data))
    events = []
    for start in range(0, len(data), chunk_bytes):
        events += feed(parted, data[start : start + chunk_bytes])
    assert flat(events) == expected
    assert b"".join(whole.output) == b"".join(parted.output)


@pytest.mark.parametrize("seed", range(150))
def test_legal_input_with_random_changes_never_raises(seed):
    rng = random.Random(seed)
    data = bytearray(b"".join(rng.choice(PIECES) for _ in range(6)))
    for _ in range(rng.randrange(1, 6)):
        action = rng.randrange(3)
        at = rng.randrange(len(data))
        if action == 0:
            data[at] = rng.randrange(256)
        elif action == 1 and len(data) > 20:
            del data[at : at + rng.randrange(1, 9)]
        else:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
    check(running(*STARTED), bytes(data), rng.choice([7, 100, 1 << 20]))


@pytest.mark.parametrize("seed", range(60))
def test_frames_with_random_bodies_never_raise(seed):
    rng = random.Random(seed)
    parts = []
    for _ in range(5):
        code = rng.choice([0x10, 0x11, 0x12, 0x13, 0x14, 0x14, 0x14, 0x15, 0x15, 0x16, 0x17, 0x18])
        body = rng.randbytes(rng.randrange(40))
        if rng.random() < 0.8:
            body = b"\x00\x53" + bytes([code, 0xC0, len(body) + 1, rng.randrange(12)]) + body
        parts.append((8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00" + bytes([rng.randrange(3)]) + body)
    check(running(*STARTED), b"".join(parts), rng.choice([3, 1 << 20]))
