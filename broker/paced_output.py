"""Writing what is too large to be written in one turn of the loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from config import limits


class PacedOutput:
    """Output of a connection that waits: a bounded part of it is written in each turn, and only while the
    transport has room. `pending_bytes`: how much waits.
    """

    __slots__ = ("_caught_up", "_is_scheduled", "_loop", "_parts", "_transport", "_write", "pending_bytes")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, caught_up: Callable[[], None]
    ) -> None:
        """`caught_up` is called when all was written that did not fit at once."""
        self._loop = loop
        self._transport = transport
        # TLS would make a record of each part
        has_tls = transport.get_extra_info("sslcontext") is not None
        self._write = self._write_joined if has_tls else transport.writelines
        self._caught_up = caught_up
        self._parts: deque[bytes | memoryview] = deque()
        self._is_scheduled = False
        self.pending_bytes = 0

    def add(self, parts: Iterable[bytes | memoryview]) -> None:
        """Write these behind what waits."""
        for part in parts:
            self._parts.append(part)
            self.pending_bytes += len(part)
        if not self._is_scheduled:
            self._write_some()

    def go_on(self) -> None:
        """The transport has room again."""
        if self._parts and not self._is_scheduled:
            self._write_some()
            if not self._parts:
                self._caught_up()

    def clear(self) -> None:
        """Nothing more is to be written."""
        self._parts.clear()
        self.pending_bytes = 0

    def _turn(self) -> None:
        self._is_scheduled = False
        self.go_on()

    def _write_some(self) -> None:
        transport = self._transport
        parts = self._parts
        written_bytes = 0
        while parts:
            if written_bytes >= limits.WRITE_TURN_BYTES_MAX:
                self._is_scheduled = True
                self._loop.call_soon(self._turn)
                return
            if transport.get_write_buffer_size() > limits.WRITE_BUFFER_BYTES_HIGH:
                return  # the transport says when
            step: list[bytes | memoryview] = []
            step_bytes = 0
            while parts and step_bytes < limits.WRITE_STEP_BYTES:
                part = parts.popleft()
                step.append(part)
                step_bytes += len(part)
            self.pending_bytes -= step_bytes
            written_bytes += step_bytes
            self._write(step)

    def _write_joined(self, parts: Iterable[bytes | memoryview]) -> None:
        self._transport.write(b"".join(parts))
