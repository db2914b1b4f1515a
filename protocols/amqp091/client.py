"""The client's side of AMQP 0.9.1, sans-IO: frames out of what a broker sends, and whole publishes.

Methods are `methods.encode_method`'s, acknowledgements `hot.encode_ack`'s.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, NamedTuple

from pamqp import commands

from protocols.amqp091.constants import (
    CAPABILITIES,
    CLASS_BASIC,
    FRAME_BODY,
    FRAME_END,
    FRAME_END_BYTE,
    FRAME_ERROR,
    FRAME_HEAD_BYTES,
    FRAME_HEADER,
    FRAME_METHOD,
    FRAME_OVERHEAD_BYTES,
)
from protocols.amqp091.methods import AnyNames, decode_method, encode_method
from protocols.errors import ProtocolError

FRAME_BYTES_MAX: Final = 131_072
BODY_FRAME_BYTES_MAX: Final = FRAME_BYTES_MAX - FRAME_OVERHEAD_BYTES
NO_PROPERTIES: Final = b"\x00\x00"
PERSISTENT: Final = b"\x10\x00\x02"  # the flag of delivery mode, and 2


_HEAD: Final = Struct(">BHI")
_CONTENT_HEAD: Final = Struct(">HHQ")


class _Publish(AnyNames, commands.Basic.Publish): ...


class Frame(NamedTuple):
    """One frame; `method` is the command of a method frame, else None."""

    kind: int
    channel: int
    payload: bytes
    method: Any


class FrameReader:
    """Takes frames out of the bytes that come, in whatever pieces they come."""

    __slots__ = ("_buffer", "_pos")

    def __init__(self) -> None:
        self._buffer = b""
        self._pos = 0  # what is before it was given

    def feed(self, data: bytes) -> None:
        """Add what came."""
        self._buffer = self._buffer[self._pos :] + data if self._pos < len(self._buffer) else data
        self._pos = 0

    def next(self) -> Frame | None:
        """Return the next frame; None until it is whole. Raises ProtocolError for what is none.

        A broker that refuses the version answers with its protocol header (4.2.2), which is given as a frame
        of kind 0.
        """
        buffer, pos = self._buffer, self._pos
        if buffer.startswith(b"AMQP", pos):
            return self._taken(0, 0, FRAME_OVERHEAD_BYTES, 0, FRAME_OVERHEAD_BYTES)
        if len(buffer) - pos < FRAME_HEAD_BYTES:
            return None
        kind, channel, size = _HEAD.unpack_from(buffer, pos)
        size += FRAME_OVERHEAD_BYTES
        return self._taken(kind, channel, size, FRAME_HEAD_BYTES, size - 1)

    def _taken(self, kind: int, channel: int, size: int, first: int, last: int) -> Frame | None:
        """Return the frame of this size, whose payload is between these."""
        buffer, pos = self._buffer, self._pos
        if len(buffer) - pos < size:
            return None
        if kind and buffer[pos + size - 1] != FRAME_END:
            raise ProtocolError(FRAME_ERROR, "a frame does not end where it should")
        self._pos = pos + size
        payload = buffer[pos + first : pos + last]
        return Frame(kind, channel, payload, decode_method(payload) if kind == FRAME_METHOD else None)

    def take_rest(self) -> bytes:
        """Return what was fed and not yet given as a frame, and forget it."""
        rest, self._buffer, self._pos = self._buffer[self._pos :], b"", 0
        return rest


def start_ok(
    user: str, password: str, *, product: str, mechanism: str = "PLAIN"
) -> commands.Connection.StartOk:
    """Return the answer to connection.start."""
    properties: dict[str, Any] = {"product": product, "capabilities": CAPABILITIES}
    return commands.Connection.StartOk(properties, mechanism, f"\0{user}\0{password}", "en_US")


def encode_frame(kind: int, channel: int, payload: bytes, end: bytes = FRAME_END_BYTE) -> bytes:
    """Return one frame, of any kind and with any payload."""
    return _HEAD.pack(kind, channel, len(payload)) + payload + end


def content_header(body_bytes: int, properties: bytes = NO_PROPERTIES) -> bytes:
    """Return the payload of a content header; `properties` are its flags and list, encoded."""
    return _CONTENT_HEAD.pack(CLASS_BASIC, 0, body_bytes) + properties


def encode_publish(
    routing_key: str,
    body: bytes,
    properties: bytes = NO_PROPERTIES,
    *,
    exchange: str = "",
    channel: int = 1,
    mandatory: bool = False,
    body_frame_bytes_max: int = BODY_FRAME_BYTES_MAX,
) -> bytes:
    """Return all frames of one basic.publish; `properties` are encoded (`content.encode_properties`)."""
    frames = [
        encode_method(channel, _Publish(0, exchange, routing_key, mandatory)),
        encode_frame(FRAME_HEADER, channel, content_header(len(body), properties)),
    ]
    frames += [
        encode_frame(FRAME_BODY, channel, body[start : start + body_frame_bytes_max])
        for start in range(0, len(body), body_frame_bytes_max)
    ]
    return b"".join(frames)
