from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from protocols.amqp10.errors import AmqpError
from protocols.amqp10.framing import FrameReader, decode_frame, encode_frame, encode_sasl_frame
from tests.unit.protocols.amqp10.recorded import FRAMES


def _decoded(data: bytes):
    found = decode_frame(data)
    assert found is not None
    frame, end = found
    assert end == len(data)
    return frame


@pytest.mark.parametrize(("who", "data"), FRAMES)
def test_a_recorded_frame_decodes_and_encodes_to_the_same(who, data):
    frame = _decoded(data)
    if frame.body is None:
        assert data in (c.SASL_HEADER, c.AMQP_HEADER, c.HEARTBEAT_FRAME)
        return
    encode = encode_sasl_frame if frame.kind == c.FRAME_SASL else None
    again = encode(frame.body) if encode else encode_frame(frame.channel, frame.body, frame.payload)
    # peers tell defaults or leave them out: the meaning is the same, ours is never longer
    assert _decoded(again) == frame
    assert len(again) <= len(data)


# what is told in the shortest form, without defaults, is the same octet for octet
@pytest.mark.parametrize("kind", [p.Begin, p.SaslInit, p.Transfer, p.Close, p.Detach])
def test_recorded_frames_of_proton_encode_octet_for_octet(kind):
    frames = [(data, _decoded(data)) for who, data in FRAMES if who == "proton"]
    alike = [
        encode_sasl_frame(frame.body) == data
        if frame.kind
        else encode_frame(frame.channel, frame.body, frame.payload) == data
        for data, frame in frames
        if type(frame.body) is kind
    ]
    assert alike
    assert all(alike)


def test_sections_of_recorded_messages_encode_alike():
    parts: dict[tuple[str, bytes], bytes] = {}
    messages = []
    last: dict[Any, Any] = {}
    for who, data in FRAMES:
        body, payload = _decoded(data).body, _decoded(data).payload
        if type(body) is p.Transfer:
            key = (who, last.get(who, b"") if body.delivery_tag is None else body.delivery_tag)
            last[who] = key[1]
            parts[key] = parts.get(key, b"") + payload
            if not body.more:
                messages.append(parts.pop(key))
    # of large messages the corpus has some frames only: those do not begin with a section
    messages = [message for message in messages if message.startswith(b"\x00\x53")]
    assert len(messages) > 100
    for message in messages:
        at = 0
        while at < len(message):
            section, at = t.decode_value(message, at, len(message))
            assert t.decode_whole(t.encode_value(section)) == section


def test_frames_come_in_any_pieces():
    data = c.SASL_HEADER + c.HEARTBEAT_FRAME + encode_frame(3, p.Close(), b"")
    reader = FrameReader()
    frames = [frame for at in range(len(data)) for frame in reader.feed(data[at : at + 1])]
    assert [(frame.kind, frame.channel, frame.body) for frame in frames] == [
        (-1, 0, None),
        (0, 0, None),
        (0, 3, p.Close()),
    ]


def test_extended_headers_are_passed_over():
    body = p.encode(p.Close())
    data = (16 + len(body)).to_bytes(4, "big") + b"\x04\x00\x00\x00" + b"extended" + body
    assert _decoded(data).body == p.Close()


@given(st.binary(min_size=8, max_size=100))
def test_random_octets_are_a_frame_an_error_or_not_whole(data):
    try:
        found = decode_frame(data, 1000)
    except AmqpError:
        return
    assert found is None or found[1] <= len(data)
