"""A relay: what comes by one connection goes out by another, no faster than that one takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from config import limits


class Relayed(asyncio.Protocol):
    """The connection to who serves a client: what comes here goes out by `far`; `other` is the protocol of
    that.

    `has_lease`: whether the lease of this node lasts. Else what comes waits, as that of a link: who was
    paused does not know how old it is. `unheard` gives what the client is told if the connection ends before
    anything came.
    """

    def __init__(
        self,
        far: asyncio.Transport,
        has_lease: Callable[[], bool] | None = None,
        unheard: Callable[[], bytes] | None = None,
    ) -> None:
        self._far = far
        self._has_lease = has_lease
        self._unheard = unheard
        self._held: list[bytes] = []
        self._is_far_full = False
        self.near: asyncio.Transport | None = None
        self.other = _Far(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.near = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._unheard = None
        if self._has_lease is None or (not self._held and self._has_lease()):
            self._far.write(data)
            return
        if not self._held:
            self._look_soon()
        self._held.append(data)
        self._read_or_wait()

    def _look_soon(self) -> None:
        asyncio.get_running_loop().call_later(limits.LINK_LEASE_LOOK_MS / 1000, self._look)

    def _look(self) -> None:
        """Let on what was held, once the lease is renewed."""
        assert self._has_lease is not None
        if not self._held:
            return
        if not self._has_lease():
            self._look_soon()
            return
        self._far.write(b"".join(self._held))
        self._held.clear()
        self._read_or_wait()

    def connection_lost(self, error: Exception | None) -> None:
        self.near = None
        self._held.clear()
        if self._unheard is not None:
            self._far.write(self._unheard())
        self._far.close()

    def pause_writing(self) -> None:
        with suppress(RuntimeError):
            self._far.pause_reading()

    def resume_writing(self) -> None:
        with suppress(RuntimeError):
            self._far.resume_reading()

    def far_is_full(self, is_full: bool) -> None:
        """Note whether the client takes no more for a while."""
        self._is_far_full = is_full
        self._read_or_wait()

    def _read_or_wait(self) -> None:
        if self.near is None or self.near.is_closing():
            return
        if self._held or self._is_far_full:
            self.near.pause_reading()
        else:
            self.near.resume_reading()


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
        self._relayed.far_is_full(True)

    def resume_writing(self) -> None:
        self._relayed.far_is_full(False)
