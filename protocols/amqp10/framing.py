"""Frames (AMQP 1.0, 2.3): four octets of size, data offset, type, channel; then the body."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, NamedTuple

from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives
from protocols.amqp10.errors import AmqpError

HEAD: Final = Struct(">IBBH")


class Frame(NamedTuple):
    """One frame. `body` is a performative, None in an empty frame; `payload` what comes behind it.

    A protocol header is a frame of kind -1 whose payload it is.
    """

    kind: int
    channel: int
    body: Any
    payload: bytes


def check_head(size: int, doff: int, kind: int, frame_max: int) -> None:
    """Raise AmqpError (framing-error) for the head of a frame that cannot be."""
    what = ""
    if size < c.FRAME_HEAD_BYTES:
        what = f"frame size ({size} bytes) < frame header (8 bytes)"
    elif size > frame_max:
        what = f"frame size ({size} bytes) > maximum frame size ({frame_max} bytes)"
    elif doff < c.DOFF_MIN:
        what = f"data offset ({doff}) < minimum data offset (2)"
    elif 4 * doff > size:
        what = f"data offset ({doff}) behind the end of the frame ({size} bytes)"
    elif kind not in (c.FRAME_AMQP, c.FRAME_SASL):
        what = f"unexpected frame type {kind}"
    if what:
        raise AmqpError(c.FRAMING_ERROR, what)


def encode_frame(channel: int, performative: Any, payload: bytes = b"") -> bytes:
    """Encode a frame of AMQP with a performative."""
    body = performatives.encode(performative)
    size = c.FRAME_HEAD_BYTES + len(body) + len(payload)
    return b"".join((HEAD.pack(size, c.DOFF_MIN, c.FRAME_AMQP, channel), body, payload))


def encode_sasl_frame(performative: Any) -> bytes:
    """Encode a frame of SASL."""
    body = performatives.encode(performative)
    return HEAD.pack(c.FRAME_HEAD_BYTES + len(body), c.DOFF_MIN, c.FRAME_SASL, 0) + body


def decode_frame(data: bytes, frame_max: int = c.UINT_MAX) -> tuple[Frame, int] | None:
    """Decode the frame or protocol header that `data` begins with; gives also where it ends.

    None when it is not whole. Raises AmqpError for what is none.
    """
    if len(data) < c.FRAME_HEAD_BYTES:
        return None
    if data.startswith(b"AMQP"):
        return Frame(-1, 0, None, data[: c.PROTOCOL_HEADER_BYTES]), c.PROTOCOL_HEADER_BYTES
    size, doff, kind, channel = HEAD.unpack_from(data)
    check_head(size, doff, kind, frame_max)
    if len(data) < size:
        return None
    start = 4 * doff
    if start == size:
        return Frame(kind, channel, None, b""), size
    body, pos = performatives.decode(data, start, size)
    return Frame(kind, channel, body, data[pos:size]), size


class FrameReader:
    """Takes frames out of the bytes that come, in whatever pieces they come."""

    __slots__ = ("_buffer", "_frame_max")

    def __init__(self, frame_max: int = c.UINT_MAX) -> None:
        self._buffer = b""
        self._frame_max = frame_max

    def feed(self, data: bytes) -> list[Frame]:
        """Take what came; gives every frame that is whole. Raises AmqpError for what is none."""
        self._buffer += data
        frames = []
        while (found := decode_frame(self._buffer, self._frame_max)) is not None:
            frame, end = found
            frames.append(frame)
            self._buffer = self._buffer[end:]
        return frames
