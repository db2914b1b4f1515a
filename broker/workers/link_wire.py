"""One end of a link: frames collect during a turn of the loop and go out in one write."""

from __future__ import annotations

import asyncio
import struct
from abc import ABC, abstractmethod
from typing import Final, cast

import structlog

from broker.workers.link_codec import Reader, Unreadable
from broker.workers.link_frames import HEAD, HEAD_BYTES
from broker.workers.link_greeting import Greeting, agreed
from broker.workers.link_values import CODEC
from config import limits

_log: Final = structlog.get_logger("sluicemq.workers")


class LinkWire(asyncio.Protocol, ABC):
    """Takes frames apart and puts them together; what they mean says the end that it is.

    `number` is the other worker's, -1 if it is not known yet; `version` the one that the link speaks, -1
    before the other end has greeted. `output` are the frames of this turn; `is_full`: more waits to be
    written than the other end takes; `silent_ms`: who counts that is told when something comes. What cannot
    be read ends the link.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, number: int = -1) -> None:
        self._loop = loop
        self.number = number
        self.version = -1
        self._reader: Reader = CODEC.reader({})
        self._frame_bytes_max = limits.LINK_HELLO_BYTES_MAX
        self._is_broken = False
        self.transport: asyncio.Transport | None = None
        self.output: list[bytes] = []
        self.is_full = False
        self.silent_ms = 0
        self._is_scheduled = False
        self._rest = bytearray()
        self._wanted_bytes = HEAD_BYTES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self.transport = cast(asyncio.Transport, transport)
        self.silent_ms = 0
        self.transport.set_write_buffer_limits(high=limits.LINK_OUTPUT_BYTES_HIGH)

    def pause_writing(self) -> None:
        """Note that the other end takes no more for a while."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Note that the other end takes more."""
        self.is_full = False

    @property
    def is_up(self) -> bool:
        """Whether something that is said is heard."""
        return self.transport is not None and not self.transport.is_closing()

    def send(self, frame: bytes) -> None:
        """Send a frame with those of this turn."""
        self.output.append(frame)
        if not self._is_scheduled:
            self.want_flush()

    def want_flush(self) -> None:
        """Have `output` written at the end of the turn."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what has come together."""
        self._is_scheduled = False
        output = self.output
        if output and self.transport is not None:
            self.output = []
            self.transport.write(b"".join(output) if len(output) > 1 else output[0])

    def data_received(self, data: bytes) -> None:
        """Take all frames that are there."""
        self.silent_ms = 0
        if self._is_broken:
            return
        try:
            self._take_frames(data)
        except Exception as error:
            self._break(error)
            return
        self.taken()

    def _take_frames(self, data: bytes) -> None:
        rest = self._rest
        if rest:
            rest += data
            if len(rest) < self._wanted_bytes:
                return
            data = bytes(rest)
            rest.clear()
        at, end = 0, len(data)
        head = HEAD.unpack_from
        self._wanted_bytes = HEAD_BYTES
        while end - at >= HEAD_BYTES:
            length, kind = head(data, at)
            if not HEAD_BYTES <= length <= self._frame_bytes_max:
                raise Unreadable(f"a frame of {length} bytes: at most {self._frame_bytes_max}")
            if at + length > end:
                self._wanted_bytes = length
                break
            self.take(kind, data, at, at + length)
            at += length
        if at < end:
            rest += data[at:]

    def _break(self, error: Exception) -> None:
        """End the link: what came over it cannot be read, or nothing can be done with it."""
        self._is_broken = True
        self._rest.clear()
        is_malformed = isinstance(error, Unreadable | struct.error)
        reason = str(error) if is_malformed else repr(error)
        _log.error("worker.link_broken", worker=self.number, reason=reason, exc_info=not is_malformed)
        if self.transport is not None:
            self.transport.abort()

    def meet(self, own: Greeting, other: Greeting) -> None:
        """Go on as both ends can, now that the other one has greeted. Raises LinkRefused, Unreadable."""
        if self.version >= 0:
            raise Unreadable("a second greeting")
        self.version = agreed(own, other)
        self._reader = CODEC.reader(other.table)
        self._frame_bytes_max = limits.LINK_FRAME_BYTES_MAX

    @abstractmethod
    def take(self, kind: int, data: bytes, at: int, end: int) -> None:
        """Take the frame at this place, which begins with its length."""

    @abstractmethod
    def taken(self) -> None:
        """Note that all frames of a chunk were taken."""
