"""What a connection puts out, on its way to the peer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.paced_output import PacedOutput
from config import limits
from protocols.connection import Connection


class Output:
    """Writes what a connection puts out: at once, or in steps what is large and what comes behind that."""

    __slots__ = ("_caught_up", "_loop", "_paced", "_transport")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, caught_up: Callable[[], None]
    ) -> None:
        """`caught_up` is called when what was written in steps is written to its end."""
        self._loop = loop
        self._transport = transport
        self._caught_up = caught_up
        self._paced: PacedOutput | None = None  # once a large message was written

    def write(self, connection: Connection) -> bool:
        """Write what the connection has; gives whether a part of it has to wait."""
        paced = self._paced
        if connection.has_large_output or (paced is not None and paced.pending_bytes):
            if paced is None:
                paced = self._paced = PacedOutput(self._loop, self._transport, self._caught_up)
            paced.add(connection.take_output())
            return paced.pending_bytes > 0
        output = connection.output
        data = output[0] if len(output) == 1 else b"".join(output)
        output.clear()
        self._transport.write(data)
        return False

    def go_on(self) -> None:
        """The transport has room again."""
        if self._paced is not None:
            self._paced.go_on()

    def buffered_bytes(self) -> int:
        """What was written and the peer has not taken yet."""
        waiting_bytes = 0 if self._paced is None else self._paced.pending_bytes
        return self._transport.get_write_buffer_size() + waiting_bytes

    def close(self) -> None:
        """Close the transport once all is written, soon in any case: a peer who reads nothing more would keep
        its last words, and all that belongs to it, in memory.
        """
        transport = self._transport
        if self._paced is not None and self._paced.pending_bytes:
            self._loop.call_later(limits.GOODBYE_TIMEOUT_S, transport.abort)
        elif not transport.is_closing():
            transport.close()
            if transport.get_write_buffer_size():
                self._loop.call_later(limits.GOODBYE_TIMEOUT_S, transport.abort)

    def dissolve(self) -> None:
        """The transport is gone: nothing more is written, and nobody referred to."""
        del self._caught_up
        if self._paced is not None:
            self._paced.clear()
            self._paced = None
