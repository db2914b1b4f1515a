"""Arbitrary input gives events or a close, never an exception, and bounded memory."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp091 import events as ev
from tests.unit.protocols.amqp091.driver import FRAME_MAX, feed, new_connection, publish, running
from tests.vectors import amqp

LEGAL = [
    amqp.HELLO_TO_Q,
    amqp.HELLO_TO_Q * 20,
    publish(1, "q", b"x" * 9000, headers={"a": [1, {"b": "c"}], "t": True}, message_id="m"),
    publish(2, "other", b"", priority=3, timestamp=None),
    amqp.ACK_7 * 20,
    amqp.NACK_7_MULTIPLE_REQUEUE,
    amqp.HEARTBEAT,
    amqp.CHANNEL_1_CLOSE + amqp.CHANNEL_1_OPEN,
]
PIECES = [*LEGAL, *(data for data, _ in amqp.CONNECTION_ERRORS.values()), amqp.CONNECTION_CLOSE]


def check(conn, data: bytes, chunk_bytes: int) -> None:
    lost = 0
    for start in range(0, len(data), chunk_bytes):
        events = feed(conn, data[start : start + chunk_bytes])
        assert not lost or not events
        lost += sum(isinstance(event, ev.ConnectionLost) for event in events)
        held = sum(map(len, conn._pending))
        assert held <= 2 * FRAME_MAX + chunk_bytes
    lost += sum(isinstance(event, ev.ConnectionLost) for event in conn.receive_eof())
    assert lost == 1
    assert conn.closed


@given(st.binary(max_size=300), st.integers(1, 50))
def test_random_bytes_before_the_handshake_never_raise(data, chunk_bytes):
    check(new_connection(), data, chunk_bytes)


@given(st.binary(max_size=300), st.integers(1, 50))
def test_random_bytes_after_the_protocol_header_never_raise(data, chunk_bytes):
    check(new_connection(), amqp.PROTOCOL_HEADER + data, chunk_bytes)


@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=20), max_size=12), st.integers(1, 5000))
def test_legal_and_illegal_frames_in_any_order_never_raise(pieces, chunk_bytes):
    check(running(channels=2), b"".join(pieces), chunk_bytes)


@pytest.mark.parametrize("seed", range(150))
def test_legal_input_with_changed_bytes_never_raises(seed):
    rng = random.Random(seed)
    data = bytearray(b"".join(rng.choice(LEGAL) for _ in range(6)))
    for _ in range(rng.randrange(1, 6)):
        action = rng.randrange(3)
        at = rng.randrange(len(data))
        if action == 0:
            data[at] = rng.randrange(256)
        elif action == 1:
            del data[at : at + rng.randrange(1, 9)]
        else:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
    check(running(channels=2), bytes(data), rng.choice([7, 100, 1 << 20]))


@pytest.mark.parametrize("seed", range(40))
def test_frames_with_random_payloads_never_raise(seed):
    rng = random.Random(seed)
    indexes = [0x003C0028, 0x003C0014, 0x0032000A, 0x0028000A, 0x000A0032, 0x00140028, 0x003C0078]
    parts = []
    for _ in range(5):
        payload = rng.randbytes(rng.randrange(40))
        kind = rng.choice([1, 1, 1, 2, 3])
        if kind == 1:
            payload = rng.choice(indexes).to_bytes(4, "big") + payload
        head = bytes([kind]) + rng.randrange(3).to_bytes(2, "big") + len(payload).to_bytes(4, "big")
        parts.append(head + payload + b"\xce")
    check(running(channels=2), b"".join(parts), rng.choice([3, 1 << 20]))
