"""The output of a connection, on its way to the peer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from config import limits


@dataclass(eq=False, repr=False, slots=True)
class Output:
    """Output of a connection that is too large to be written in one turn of the loop waits here: a bounded
    part of it is written in each turn, and only while the transport has room.

    `pending_bytes`: how much waits; what comes behind that has to wait, too. `held_by`: the quota for which
    nothing is written just now.
    """

    _loop: asyncio.AbstractEventLoop
    _transport: asyncio.Transport
    _caught_up: Callable[[], None]
    """Called when all was written that did not fit at once."""
    _parts: deque[bytes | memoryview] | None = field(default=None, init=False)  # once there were some
    _is_scheduled: bool = field(default=False, init=False)
    _step_bytes: int = field(default=limits.WRITE_STEP_BYTES, init=False)
    _wrote: Callable[[int], None] | None = field(default=None, init=False)
    held_by: str = field(default="", init=False)
    pending_bytes: int = field(default=0, init=False)

    def hold(self, seconds: float, reason: str) -> None:
        """Write nothing for so long, for a quota; what is held for one already stays so."""
        if not self.held_by:
            self.held_by = reason
            self._loop.call_later(seconds, self._release)

    def _release(self) -> None:
        self.held_by = ""
        if self._parts:
            self.go_on()
        elif not self._transport.is_closing():
            self._caught_up()

    def write_in_steps(
        self,
        parts: Iterable[bytes | memoryview],
        step_bytes: int = limits.WRITE_STEP_BYTES,
        wrote: Callable[[int], None] | None = None,
    ) -> None:
        """Write these behind what waits; `wrote` is called after each step of so many bytes."""
        self._step_bytes = step_bytes
        self._wrote = wrote
        waiting = self._parts
        if waiting is None:
            waiting = self._parts = deque()
        for part in parts:
            if wrote is not None and len(part) > step_bytes:
                whole = memoryview(part)
                waiting.extend(whole[at : at + step_bytes] for at in range(0, len(part), step_bytes))
            else:
                waiting.append(part)
            self.pending_bytes += len(part)
        if not self._is_scheduled:
            self._write_some(waiting)

    def go_on(self) -> None:
        """Go on: the transport has room again."""
        if self._parts and not self._is_scheduled:
            self._write_some(self._parts)
            if not self._parts:
                self._caught_up()

    def buffered_bytes(self) -> int:
        """Return how much was written that the peer has not taken yet."""
        return self._transport.get_write_buffer_size() + self.pending_bytes

    def close(self) -> None:
        """Close the transport once all is written, soon in any case: a peer who reads nothing more would keep
        its last words, and all that belongs to it, in memory.
        """
        transport = self._transport
        if self.pending_bytes:
            self._loop.call_later(limits.GOODBYE_TIMEOUT_S, transport.abort)
        elif not transport.is_closing():
            transport.close()
            if transport.get_write_buffer_size():
                self._loop.call_later(limits.GOODBYE_TIMEOUT_S, transport.abort)

    def dissolve(self) -> None:
        """Let go of everything: the transport is gone, and nothing more is written."""
        self._parts = None
        self._wrote = None
        self.pending_bytes = 0
        del self._caught_up

    def _turn(self) -> None:
        self._is_scheduled = False
        self.go_on()

    def _write_some(self, parts: deque[bytes | memoryview]) -> None:
        transport = self._transport
        written_bytes = 0
        while parts and not self.held_by:
            if written_bytes >= limits.WRITE_TURN_BYTES_MAX:
                self._is_scheduled = True
                self._loop.call_soon(self._turn)
                return
            if transport.get_write_buffer_size() > limits.WRITE_BUFFER_BYTES_HIGH:
                return  # the transport says when
            step: list[bytes | memoryview] = []
            step_bytes = 0
            while parts and step_bytes < self._step_bytes:
                part = parts.popleft()
                step.append(part)
                step_bytes += len(part)
            self.pending_bytes -= step_bytes
            written_bytes += step_bytes
            transport.write(b"".join(step))
            if self._wrote is not None:
                self._wrote(step_bytes)
