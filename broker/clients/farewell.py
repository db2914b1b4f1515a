"""The end of a broker, as its clients see it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final, Protocol

import structlog

from broker.connections.registry import Goodbye, Peer
from broker.vhosts.hub import Hub
from config import limits

_log: Final = structlog.get_logger("sluicemq")


class Requests(Protocol):
    """An HTTP server."""

    @property
    def is_busy(self) -> bool:
        """Whether somebody is being answered."""

    def shut_down(self) -> None:
        """Take no more, and finish what is there."""

    def abort(self) -> None:
        """End what is left."""


class Farewell:
    """Has what clients sent confirmed, says goodbye to them, and waits for their answers for a moment: or for
    none of it, once somebody is in a hurry.
    """

    def __init__(self, answers_s: float = limits.GOODBYE_TIMEOUT_S) -> None:
        """`answers_s`: how long clients may take to answer."""
        self._answers_s = answers_s
        self._hurries = asyncio.Event()

    def hurry(self) -> None:
        """Wait for no client any more."""
        if not self._hurries.is_set():
            self._hurries.set()
            _log.info("broker.hurries")

    async def say(self, hub: Hub, http: Collection[Requests], *, confirms: bool) -> None:
        """Say it to all clients; `confirms`: what they sent can still be confirmed."""
        drained = await self._drain(hub) if confirms else ()
        for transport in list(hub.transports):
            transport.send_away(Goodbye.SHUTTING_DOWN)
            if transport in drained:
                transport.reading.release()  # for the answer
        for server in http:
            server.shut_down()
        await self._await_goodbyes(hub, http)

    async def _drain(self, hub: Hub) -> Collection[Peer]:
        """Have what came confirmed, for who is told nothing publishes it again; gives the transports that are
        not read from since.
        """
        drained = dict.fromkeys(hub.transports)
        if not drained:
            return ()
        _log.info("broker.draining", connections=len(drained))
        for transport in drained:
            transport.reading.hold()
        durable = asyncio.ensure_future(hub.client.commits.durable())
        hurries = asyncio.ensure_future(self._hurries.wait())
        await asyncio.wait(
            (durable, hurries), timeout=limits.DRAIN_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
        )
        for wait in (durable, hurries):
            wait.cancel()
        await asyncio.gather(durable, hurries, return_exceptions=True)
        return drained.keys()

    async def _await_goodbyes(self, hub: Hub, http: Collection[Requests]) -> None:
        """Give clients a moment to answer the close, then end what is left."""
        deadline = hub.clock.monotonic() + self._answers_s
        while (  # noqa: ASYNC110
            (hub.transports or any(server.is_busy for server in http))
            and hub.clock.monotonic() < deadline
            and not self._hurries.is_set()
        ):
            await asyncio.sleep(0.01)
        for transport in list(hub.transports):
            transport.abort()
        for server in http:
            server.abort()
        await asyncio.sleep(0)
