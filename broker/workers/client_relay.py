"""A relay: what comes by one connection goes out by another, no faster than that one takes it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import cast


class Relayed(asyncio.Protocol):
    """One end of a relay: what comes here goes out by `far`; `other` is the protocol of that."""

    def __init__(self, far: asyncio.Transport) -> None:
        self._far = far
        self.near: asyncio.Transport | None = None
        self.other = _Far(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.near = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._far.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.near = None
        self._far.close()

    def pause_writing(self) -> None:
        with suppress(RuntimeError):
            self._far.pause_reading()

    def resume_writing(self) -> None:
        with suppress(RuntimeError):
            self._far.resume_reading()


class _Far(asyncio.Protocol):
    """The other end of a relay."""

    def __init__(self, relayed: Relayed) -> None:
        self._relayed = relayed

    def data_received(self, data: bytes) -> None:
        if self._relayed.near is not None:
            self._relayed.near.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._relayed.near is not None:
            self._relayed.near.close()

    def pause_writing(self) -> None:
        if self._relayed.near is not None:
            self._relayed.near.pause_reading()

    def resume_writing(self) -> None:
        if self._relayed.near is not None:
            self._relayed.near.resume_reading()
