"""One end of a link: frames collect during a turn of the loop and go out in one write."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import cast

from broker.workers.link_frames import HEAD, HEAD_BYTES
from config import limits


class LinkWire(asyncio.Protocol, ABC):
    """Takes frames apart and puts them together; what they mean says the end that it is.

    `output` are the frames of this turn; `is_full`: more waits to be written than the other end takes.
    `is_heard`: something came since that was last taken back.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.transport: asyncio.Transport | None = None
        self.output: list[bytes] = []
        self.is_full = False
        self.is_heard = False
        self._is_scheduled = False
        self._rest = bytearray()
        self._wanted_bytes = HEAD_BYTES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self.transport = cast(asyncio.Transport, transport)
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
        self.is_heard = True
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
            if at + length > end:
                self._wanted_bytes = length
                break
            self.take(kind, data, at, at + length)
            at += length
        if at < end:
            rest += data[at:]
        self.taken()

    @abstractmethod
    def take(self, kind: int, data: bytes, at: int, end: int) -> None:
        """Take the frame at this place, which begins with its length."""

    @abstractmethod
    def taken(self) -> None:
        """Note that all frames of a chunk were taken."""
